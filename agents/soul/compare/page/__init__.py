"""Write a comparison as one HTML file that loads nothing: `soul compare A B --html F.html`.

overview.py     the head, the warnings, and the table of sets
entries.py      the paired rows as stored in the page: an index, and their texts in parts
results.html    the first view, styled by page.css; pairs.js shows the rows

Everything else comes from the report of an evaluation (agents/soul/evaluate/report).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from soul.compare.comparison import Comparison
from soul.compare.page.entries import index, paired_rows, row_line
from soul.compare.page.overview import overview, sets_table
from soul.evaluate.report import FILE, set_facts
from soul.evaluate.report.group_names import names_of
from soul.evaluate.report.markup import join
from soul.evaluate.report.packing import to_json
from soul.evaluate.report.page_parts import Page, filled, read, script_of, write_page

SCRIPTS = ("store", "elements", "link", "list", "browser", "scene", "sample")
_HERE = Path(__file__).parent


def write_comparison(comparison: Comparison, file: Path) -> None:
    """Write the page. Its links to the two reports are relative to the folder of `file`."""
    write_page(file, _pieces(comparison, file.parent))


def _pieces(comparison: Comparison, folder: Path) -> Iterator[str]:
    rows = paired_rows(comparison)
    page = Page(
        kind="comparison",
        title=join(" against ".join(reversed(comparison.labels))),
        results=filled(_own("results.html"), overview=overview(comparison), table=sets_table(comparison)),
        entry="row",
        entries="rows",
        state="Outcome",
        number="Difference",
        count=len(rows),
        style=read("report.css") + _own("page.css"),
        script="\n".join((script_of(SCRIPTS), _own("pairs.js"), script_of(["page"]))),
    )
    known = {
        "labels": comparison.labels,
        "reports": [_report(run.folder, folder) for run in (comparison.base, comparison.other)],
        "sets": [set_facts(name, one.headline) for name, one in comparison.sets.items()],
        "names": names_of(row.pair.base[0].groups for row in rows),
    }
    lines = (to_json(row_line(row)) for row in rows)
    return page.pieces(lines, known, lambda starts: index(rows, list(comparison.sets), starts))


def _report(run: Path, folder: Path) -> str | None:
    """The relative URL of a run's report from this folder; None if the run has no report."""
    file = run / FILE
    if not file.is_file():
        return None
    return quote(Path(os.path.relpath(file.resolve(), folder.resolve())).as_posix(), errors="replace")


def _own(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
