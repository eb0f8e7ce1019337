"""The viewer's page: served by `soul view`, or written as one file with the chosen sessions in it.

Both are the same page. It reads its data through the class `Source` of script/source.js: over HTTP from the viewer's
server, or from compressed script elements of the file. Style and scripts of the evaluation's report are reused; the
content security policy is the report's, and the served page may also fetch from its own server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from soul.evaluate.report.markup import element
from soul.evaluate.report.page_parts import (
    embedded,
    filled,
    list_panes,
    packed,
    page_head,
    parts,
    policy,
    read,
    script_of,
    to_json,
    write_page,
)

_HERE = Path(__file__).parent
# Files of script/, in the order in which they need each other: those of the evaluation's report, and the viewer's own.
_SHARED = "store elements link list browser scene sample".split()
_OWN = (
    "source columns sessions chart curves learning diff turns session scatter feedback group row costs against home "
    "view"
).split()
POLL_MS = 3000  # how often a served page asks for new sessions


class ServedPage(NamedTuple):
    """The page for `soul view`. Send `policy` as the header Content-Security-Policy with it."""

    html: str
    policy: str


def served_page(title: str = "soul view", poll_ms: int = POLL_MS) -> ServedPage:
    """The page without data. It fetches from `api/...`, relative to its own URL, which must end with a slash."""
    known = {"entries": "sessions", "served": True, "poll_ms": poll_ms, "sets": [], "names": {}}
    html = "".join(_pieces(title, known, data=(), connect=True))
    return ServedPage(html, _policy(connect=True))


def write_export(
    file: Path,
    overview: Mapping[str, Any],
    columns: Mapping[str, Any],
    chosen: Sequence[int],
    lines: Iterable[str],
    name: str = "run",
) -> Path:
    """Write a run with the texts of chosen sessions as one HTML file, and return the file.

    Args:
        overview: as the API's `run/ID/overview` answers it.
        columns: the `columns` of `run/ID/index`: lists of equal length, or {"values", "codes"} for repeated texts.
        chosen: the ids of the sessions with texts; `lines` are their records as JSON without line ends, in this order.
        name: of the run, as shown.
    """
    known = {"entries": "sessions", "served": False, "run": name, "sets": [], "names": {}}
    write_page(file, _pieces(f"{name}, exported", known, _data(overview, columns, chosen, lines), connect=False))
    return file


def _data(
    overview: Mapping[str, Any], columns: Mapping[str, Any], chosen: Sequence[int], lines: Iterable[str]
) -> Iterator[str]:
    """The script elements with the data: the texts in parts, then what the page unpacks when it opens."""
    starts = []
    for place, (start, body) in enumerate(parts(lines)):
        starts.append(start)
        yield _packed_element(f"part-{place}", body)
    yield _packed_element("overview", packed(to_json(overview)))
    yield _packed_element("index", packed(to_json({"starts": starts, "columns": columns, "texts": list(chosen)})))


def _packed_element(name: str, body: str) -> str:
    return element("script", body, type="application/gzip", id=name) + "\n"


def _pieces(title: str, known: Mapping[str, Any], data: Iterable[str], connect: bool) -> Iterator[str]:
    before, after = _own("page.html").split("$parts\n")
    head = page_head(escape(title), _style(), _policy(connect))
    panes = list_panes("session", "sessions", "Loading", keys=" &ensp; <kbd>1</kbd> to <kbd>5</kbd> views")
    yield filled(before, head=head, panes=panes)
    yield from data
    yield filled(after, known=embedded(known), script=_script())


def _policy(connect: bool) -> str:
    return policy(_style(), _script()) + ("; connect-src 'self'" if connect else "")


def _style() -> str:
    return read("report.css") + _own("view.css")


def _script() -> str:
    return "\n".join([script_of(_SHARED), *(_own(f"script/{name}.js") for name in _OWN)])


def _own(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
