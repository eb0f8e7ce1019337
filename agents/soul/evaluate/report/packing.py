"""Pack a run's samples for the report: an index, unpacked at once, and their texts in parts, unpacked when needed.

Treat policy text as hostile: it may contain `</script>`, `<!--` or characters that a browser reads as line ends. Packed
data is gzip in base64, whose alphabet has none of these; `embedded` is for the few values stored as JSON. A part holds
about a million characters. A browser unpacks one in milliseconds, and a search reads them one by one, so a report of
30,000 samples never has all its texts in memory.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from soul.evaluate.tables.answers import Answers
from soul.judge.call.usage import Usage
from soul.record import Conversations, SessionRecord

PART_CHARACTERS = 1_000_000
SHOWN_CHARACTERS = 160  # of a question or a last turn, in the list
SHOWN_OF_ANSWERS = 80  # characters of the right and of the given answer, in the list
LARGEST_EXACT = 2**53  # the largest integer that JavaScript represents exactly
_SHOWN = {"set", "task", "number", "row", "sample", "stamp", "groups", "shortened", "record", "prompts"}
# Integers that may exceed LARGEST_EXACT, possibly inside a text. In JSON a number follows one of these signs; searching
# for the sign first takes a tenth of the time.
_LONG_NUMBER = re.compile(r"[:,\[]-?[0-9]{16}")


def index(
    samples: Sequence[SessionRecord], answers: Sequence[Answers], sets: Sequence[str], starts: Sequence[int]
) -> dict[str, Any]:
    """The columns that the list of samples shows, sorts by and filters by, in the order of `samples`.

    Args:
        answers: one for each sample.
        sets: names in the table's order; a sample stores its set's place in them.
        starts: the sample with which each part begins.
    """
    places = {name: place for place, name in enumerate(sets)}
    drafts = [sample.draft for sample in samples]
    return plain(
        {
            "starts": list(starts),
            "set": [places[sample.set] for sample in samples],
            "number": [sample.number for sample in samples],
            "sample": [sample.sample for sample in samples],
            "reward": [draft.reward for draft in drafts],
            "cause": [draft.cause for draft in drafts],
            "contentless": [int(draft.contentless) for draft in drafts],
            "ended": [draft.ended for draft in drafts],
            "question": [start_of(one.question, SHOWN_CHARACTERS) for one in answers],
            "target": [start_of(one.target, SHOWN_OF_ANSWERS) for one in answers],
            "given": [start_of(one.given, SHOWN_OF_ANSWERS) for one in answers],
            "last_turn": [  # shown only if no answer was read
                "" if one.given is not None else last_turn(draft.seats)[:SHOWN_CHARACTERS]
                for one, draft in zip(answers, drafts, strict=True)
            ],
            "groups": [sample.groups for sample in samples],
            "cost": [_cost(sample.usage) for sample in samples],
            "seconds": [round(sum(draft.seconds.values()), 3) for draft in drafts],
        }
    )


def sample_lines(samples: Sequence[SessionRecord], answers: Sequence[Answers]) -> Iterator[str]:
    """The samples as stored in the page: the shown fields of their records, and the two answers."""
    for sample, one in zip(samples, answers, strict=True):
        yield to_json({**_shown(sample), "target": one.target, "given": one.given})


def parts(whole: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Pack lines of JSON into parts. Yields the line with which a part begins, and the part."""
    lines: list[str] = []
    start = size = 0
    for place, line in enumerate(whole):
        if lines and size + len(line) > PART_CHARACTERS:
            yield start, packed("\n".join(lines))
            lines, start, size = [], place, 0
        lines.append(line)
        size += len(line)
    if lines:
        yield start, packed("\n".join(lines))


def last_turn(seats: Conversations | None) -> str:
    """The policy's last turn, on one line."""
    turns = [m["content"] for messages in (seats or {}).values() for m in messages if m["role"] == "assistant"]
    return " ".join(turns[-1].split()) if turns else ""


def start_of(text: str | None, most: int) -> str | None:
    """The beginning of a text, on one line."""
    return None if text is None else " ".join(text.split())[:most]


def packed(text: str) -> str:
    """Text as gzip in base64; equal texts give equal results."""
    return base64.b64encode(gzip.compress(_bytes(text), compresslevel=6, mtime=0)).decode("ascii")


def embedded(value: Any) -> str:
    """JSON that is safe in a script element: nothing in it can end the element or start a comment."""
    text = to_json(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return _bytes(text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")).decode("utf-8")


def to_json(value: Any) -> str:
    """JSON that a browser can read; see `plain`."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError):  # a mapping that is not a dict, or NaN
        text = ""
    # This is nearly always enough. Checking every value one by one takes five times as long.
    if not text or _LONG_NUMBER.search(text):
        return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text


def plain(value: Any) -> Any:
    """The value with every number that JSON or JavaScript cannot represent replaced by its text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and abs(value) > LARGEST_EXACT:
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _bytes(text: str) -> bytes:
    # Lone surrogates occur only in JSON strings here. They become escapes, which JSON reads back unchanged.
    return text.encode("utf-8", "backslashreplace")


def _shown(sample: SessionRecord) -> dict[str, Any]:
    """The fields that sample.js reads: draft and episode in one, and the usage counters that are not 0."""
    line, draft = sample.model_dump(include=_SHOWN), sample.draft.model_dump(exclude={"base", "episode"})
    usage = {
        role: {k: v for k, v in use.to_json().items() if v and k != "latency"} for role, use in sample.usage.items()
    }
    return {**line, "draft": {**draft, **sample.draft.episode}, "usage": usage}


def _cost(usage: Mapping[str, Usage]) -> float | None:
    """Cost in US dollars; None if a price is unknown."""
    return None if any(use.unpriced for use in usage.values()) else sum(use.cost_usd for use in usage.values())
