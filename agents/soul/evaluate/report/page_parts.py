"""Assemble a self-contained page: script, style, the policy that allows only these two, and packed samples.

Treat policy text as hostile: it may contain `</script>`, `<!--` or characters that a browser reads as line ends. Packed
data is gzip in base64, whose alphabet has none of these; `embedded` is for the few values stored as JSON. There is an
index, unpacked at once, and the texts are in parts of about a million characters. A browser unpacks one in
milliseconds, and a search reads them one by one, so a report of 30,000 samples never has all its texts in memory.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from soul.evaluate.report.markup import element
from soul.evaluate.tables.answers import Answers
from soul.files.whole_file import write_whole
from soul.judge.call.usage import Usage
from soul.record import Conversations, SessionRecord

_HERE = Path(__file__).parent
PART_CHARACTERS = 1_000_000
SHOWN_CHARACTERS = 160  # of a question or a last turn, in the list
SHOWN_OF_ANSWERS = 80  # characters of the right and of the given answer, in the list
LARGEST_EXACT = 2**53  # the largest integer that JavaScript represents exactly
_SHOWN = {"set", "task", "number", "row", "sample", "stamp", "groups", "shortened", "record", "prompts"}
# Integers that may exceed LARGEST_EXACT, possibly inside a text. In JSON a number follows one of these signs; searching
# for the sign first takes a tenth of the time.
_LONG_NUMBER = re.compile(r"[:,\[]-?[0-9]{16}")


def write_page(file: Path, pieces: Iterable[str]) -> None:
    """Write a page piece by piece. Readers see either the whole new page or the previous one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, pieces)


@dataclass(frozen=True)
class Page:
    """A page with results and a list of entries; page.html is its skeleton.

    Attributes:
        kind: CSS class of the body.
        title: markup, like `results`.
        results: the first view.
        entry, entries: the words for an entry and for several: "sample", "samples".
        state, number: labels of the two filters that depend on the kind of entries.
        count: number of entries.
    """

    kind: str
    title: str
    results: str
    entry: str
    entries: str
    state: str
    number: str
    count: int
    style: str
    script: str

    def pieces(
        self, lines: Iterable[str], known: Mapping[str, Any], index: Callable[[Sequence[int]], Mapping[str, Any]]
    ) -> Iterator[str]:
        """The page in pieces.

        Args:
            lines: the entries as JSON.
            known: values for the script about the whole page.
            index: function from the entries with which the parts of `lines` begin to the columns of the list.
        """
        before, after = read("page.html").split("$parts\n")
        shared = {
            "head": page_head(self.title, self.style, policy(self.style, self.script)),
            "panes": list_panes(self.entry, self.entries, loading="Unpacking"),
        }
        words = {**vars(self), "Entries": self.entries.capitalize(), "count": f"{self.count:,}"}
        yield filled(before, **{**words, **shared})
        starts = []
        for place, (start, body) in enumerate(parts(lines)):
            starts.append(start)
            yield element("script", body, type="application/gzip", id=f"part-{place}") + "\n"
        values = {"known": embedded({"entries": self.entries, **known}), "index": packed(to_json(index(starts)))}
        yield filled(after, script=self.script, **values)


def page_head(title: str, style: str, policy: str) -> str:
    """The beginning of a page, up to </head>; the title is markup."""
    return filled(read("head.html"), title=title, style=style, policy=policy)


def list_panes(entry: str, entries: str, loading: str, keys: str = "") -> str:
    """The list of entries, and beside it the pane for the open one, as list.js and browser.js need them.

    Args:
        entry, entries: the words for one and for several.
        loading: what the page does at first, as a participle.
        keys: markup that names further keys.
    """
    words = {"entries": entries, "Entry": entry.capitalize(), "Entries": entries.capitalize()}
    return filled(read("panes.html"), loading=loading, keys=keys, **words)


def script_of(names: Sequence[str]) -> str:
    """Join these files of script/, in this order."""
    return "\n".join(read(f"script/{name}.js") for name in names)


def read(name: str) -> str:
    """Read a file of this folder."""
    return (_HERE / name).read_text(encoding="utf-8")


def filled(template: str, **values: str) -> str:
    """Fill the placeholders of an HTML template. The values must be markup."""
    text = Template(template).substitute(values)
    return text.encode("utf-8", "replace").decode("utf-8")  # a name may contain a lone surrogate


def policy(style: str, script: str) -> str:
    """The page's content security policy, which allows this script, this style and nothing else."""

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"

    return (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


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
