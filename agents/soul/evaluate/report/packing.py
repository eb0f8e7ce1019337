"""The samples of a run as the report carries them: an index, read at once, and their texts in parts, read when opened.

Policy text is hostile: it may hold `</script>`, `<!--` or what a browser takes for the end of a line. What is packed is
gzip in base64, whose alphabet has none of that; `embedded` is for the little that stands as JSON. A part holds about a
million characters: unpacking one takes a browser some milliseconds, and a search reads one after another, so that a
report of 30,000 samples never has all its texts in memory at once.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from soul.evaluate.report.answers import Answers
from soul.judge.call.usage import Usage
from soul.record import Conversations, SessionRecord

PART_CHARACTERS = 1_000_000
SHOWN_CHARACTERS = 160  # of a question or the last turn, in the list
SHOWN_OF_ANSWERS = 80  # of the right and of the given answer
LARGEST_EXACT = 2**53  # of JavaScript's numbers
_SHOWN = {"set", "task", "number", "row", "sample", "stamp", "groups", "shortened", "record", "prompts"}
# As long as that one, before a point; a text may hold such too. (A number stands behind one of these signs: to look for
# them first takes a tenth of the time.)
_LONG_NUMBER = re.compile(r"[:,\[]-?[0-9]{16}")


def index(
    samples: Sequence[SessionRecord], answers: Sequence[Answers], sets: Sequence[str], starts: Sequence[int]
) -> dict[str, Any]:
    """What the list of samples shows, sorts by and filters by: a column each, in the order of `samples`.

    Args:
        answers: of the samples, in their order.
        sets: in the table's order; a sample names its set by the place in it.
        starts: at which sample each part begins.
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
            "question": [start_of(of.question, SHOWN_CHARACTERS) for of in answers],
            "target": [start_of(of.target, SHOWN_OF_ANSWERS) for of in answers],
            "given": [start_of(of.given, SHOWN_OF_ANSWERS) for of in answers],
            # Shown where no answer was read; nothing else needs it.
            "said": [
                "" if of.given is not None else last_turn(draft.seats)[:SHOWN_CHARACTERS]
                for of, draft in zip(answers, drafts, strict=True)
            ],
            "groups": [sample.groups for sample in samples],
            "cost": [_cost(sample.usage) for sample in samples],
            "seconds": [round(sum(draft.seconds.values()), 3) for draft in drafts],
        }
    )


def sample_lines(samples: Sequence[SessionRecord], answers: Sequence[Answers]) -> Iterator[str]:
    """The samples as the page carries them: what it shows of their records, with the two answers."""
    for sample, of in zip(samples, answers, strict=True):
        yield to_json({**_shown(sample), "target": of.target, "given": of.given})


def parts(whole: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Lines of JSON, packed: at which line a part begins, and the part."""
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
    """What the policy said last, in one line."""
    said = [m["content"] for messages in (seats or {}).values() for m in messages if m["role"] == "assistant"]
    return " ".join(said[-1].split()) if said else ""


def start_of(text: str | None, most: int) -> str | None:
    """The beginning of a text, on one line."""
    return None if text is None else " ".join(text.split())[:most]


def packed(text: str) -> str:
    """Text as base64 of gzip; the same text is always the same."""
    return base64.b64encode(gzip.compress(_bytes(text), compresslevel=6, mtime=0)).decode("ascii")


def embedded(value: Any) -> str:
    """JSON that may stand in a script element: nothing in it can end the element or start a comment."""
    text = to_json(value).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return _bytes(text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")).decode("utf-8")


def to_json(value: Any) -> str:
    """JSON as a browser reads it."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError):  # a mapping that is no dict, a number that is none
        text = ""
    # Nearly always that is it: to look at every value by itself takes five times as long.
    if not text or _LONG_NUMBER.search(text):
        return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text


def plain(value: Any) -> Any:
    """The value without what JSON or JavaScript cannot hold: such a number becomes its text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and abs(value) > LARGEST_EXACT:
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _bytes(text: str) -> bytes:
    # Half of a surrogate pair, which is in JSON strings alone here, becomes its escape; JSON reads it back as it was.
    return text.encode("utf-8", "backslashreplace")


def _shown(sample: SessionRecord) -> dict[str, Any]:
    """What sample.js reads: the episode's own fields beside the seats, and of the usage the counters that are not 0."""
    line, draft = sample.model_dump(include=_SHOWN), sample.draft.model_dump(exclude={"base", "episode"})
    usage = {
        role: {k: v for k, v in use.to_json().items() if v and k != "latency"} for role, use in sample.usage.items()
    }
    return {**line, "draft": {**draft, **sample.draft.episode}, "usage": usage}


def _cost(usage: Mapping[str, Usage]) -> float | None:
    """US dollars; None where a price is not known."""
    return None if any(use.unpriced for use in usage.values()) else sum(use.cost_usd for use in usage.values())
