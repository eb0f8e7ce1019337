"""Assemble a self-contained page: script, style, and the content security policy that allows only these two."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

from soul.evaluate.report.markup import element
from soul.evaluate.report.packing import embedded, packed, parts, to_json
from soul.files.whole_file import write_whole

_HERE = Path(__file__).parent


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
