"""The head of the page (the two runs, warnings and notes), and the table of sets."""

from __future__ import annotations

from itertools import zip_longest
from urllib.parse import urlencode

from soul.compare import report
from soul.compare.comparison import Comparison, SetComparison
from soul.evaluate.report.markup import Markup, element, join

TALLY = "won / tied / lost"


def overview(comparison: Comparison) -> Markup:
    """Names and folders of the two runs, warnings and notes."""
    base, other = comparison.labels
    facts = (("Baseline", base, comparison.base), ("Compared run", other, comparison.other))
    listed = [
        element("div", element("dt", title), element("dd", element("b", label), f" {run.folder}"))
        for title, label, run in facts
    ]
    warnings = [element("p", text) for text in report.warnings(comparison)]
    return join(
        element("p", "SOUL, row by row", class_="kind"),
        element("h1", f"{other} against {base}"),
        element("dl", *listed, class_="facts"),
        element("section", *warnings, class_="warnings", aria_label="Warnings") if warnings else None,
        element("div", *(element("p", text) for text in report.notes(comparison)), class_="notes"),
    )


def sets_table(comparison: Comparison) -> Markup:
    """The same table as in the terminal; a set's name and its counts link to the rows."""
    titles = report.titles(comparison)
    # The last line, the macro average, belongs to no set.
    lines = zip_longest(report.lines(comparison), comparison.sets.values())
    rows = [_row(titles, cells, one) for cells, one in lines]
    head = element("tr", *(element("th", title, scope="col") for title in titles))
    return element("table", element("thead", head), element("tbody", *rows), id="sets-table")


def _row(titles: tuple[str, ...], cells: tuple[str, ...], one: SetComparison | None) -> Markup:
    name, *others = cells
    if one is None or not one.rows:
        return element("tr", element("th", name, scope="row"), *(element("td", cell) for cell in others))
    drawn = [
        element("td", _tally(one) if title == TALLY else cell) for title, cell in zip(titles[1:], others, strict=True)
    ]
    return element("tr", element("th", _link(name, set=one.name), scope="row"), *drawn)


def _tally(one: SetComparison) -> Markup:
    parts: list[str] = []
    for state, count in zip(("won", "tied", "lost"), one.tally, strict=True):
        text = f"{count:,} {state}"
        parts += [_link(text, set=one.name, state=state) if count else text, " / "]
    return join(*parts[:-1])


def _link(text: str, **query: str) -> Markup:
    """A link to the rows of the page that match these filters (the report's script/link.js)."""
    return element("a", text, href=f"#samples?{urlencode(query, errors='replace')}")
