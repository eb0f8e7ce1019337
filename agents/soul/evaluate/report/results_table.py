"""The table of results in the report: the lines of `soul.evaluate.tables.run_table`, which you can sort and open.

It is plain HTML, readable and printable without a script. It contains all published columns; those of the run's suite
(`run_table.columns_of`) are visible until the reader chooses others.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import groupby

from soul.evaluate.numbers.breakdown import Group
from soul.evaluate.numbers.results import Average, Results
from soul.evaluate.numbers.set_result import SetResult
from soul.evaluate.numbers.set_warnings import warnings_of
from soul.evaluate.report.markup import USUAL, Markup, element, interval_bar, join, scale
from soul.evaluate.report.set_detail import priced, set_detail
from soul.evaluate.tables import run_table
from soul.evaluate.tables.run_table import TableLine
from soul.suites import published
from soul.suites.published import Column

COLUMNS: tuple[Column, ...] = tuple(
    published.column(source, model) for source in ("card", "paper") for model in published.models(source)
)
MEANS = {
    "invalid (bounds)": "Samples without a verdict; the score if all of them were the worst, and the best",
    "cost": "Policy and all judges",
    "time": "Mean time for play and verdict of one sample; samples run in parallel",
}
Groups = Mapping[str, Mapping[str, Sequence[Group]]]  # set -> kind -> groups


def results_table(results: Results, groups: Groups, shown: Sequence[Column]) -> Markup:
    """The table.

    Args:
        groups: the breakdowns of each set.
        shown: the published columns that are visible until the reader chooses others.
    """
    titles = _titles(results)
    lines = run_table.lines(results, COLUMNS)
    bodies = []
    for dimension, members in groupby(lines, lambda line: line.dimension):
        drawn = [row for line in members for row in _rows(line, results, groups, len(titles), shown)]
        name = element("tr", element("th", dimension or "other", scope="rowgroup", colspan=99), class_="dimension")
        average = dimension == "average"
        bodies.append(element("tbody", None if average else name, *drawn, class_="averages" if average else "sets"))
    return element("table", _head(titles, shown), *bodies, id="results-table")


def _titles(results: Results) -> tuple[str, ...]:
    """The run's own columns, without the cost if no price is known; the head of the report says so."""
    titles = run_table.titles(results)
    usages = (usage for result in results.sets.values() for usage in result.usage.values())
    return titles if priced(usages) else titles[:-1]


def chooser(shown: Sequence[Column]) -> Markup:
    """Check boxes for the published columns; those of `shown` are checked at first."""
    boxes = []
    for source, title in (("card", "Model card of Ditto-8B"), ("paper", "Paper, its ten tasks")):
        of = [
            element("label", element("input", type="checkbox", value=place, checked=column in shown), column.model)
            for place, column in enumerate(COLUMNS)
            if column.source == source
        ]
        boxes.append(element("fieldset", element("legend", title), *of))
    return element("div", *boxes, id="published")


def _head(titles: Sequence[str], shown: Sequence[Column]) -> Markup:
    own = [
        _title("set", "set", class_="set"),
        _title("score", "score [95 %]"),
        element("th", element("span", "0 to 100", class_="scale"), scope="col"),
        *(_title(name.partition(" ")[0], name, title=MEANS.get(name)) for name in titles[2:]),
        _title("time", "time", title=MEANS["time"]),
    ]
    theirs = [
        _title(
            c.title, c.model, element("small", c.source), class_="published", data_column=place, hidden=c not in shown
        )
        for place, c in enumerate(COLUMNS)
    ]
    return element("thead", element("tr", *own, *theirs))


def _title(key: str, *text: str, **attributes: str | int | bool | None) -> Markup:
    """The head of a column that the script can sort by; `key` names it in the page's URL."""
    button = element("button", *text, type="button")
    return element("th", button, scope="col", aria_sort="none", data_key=key, **attributes)


def _rows(line: TableLine, results: Results, groups: Groups, columns: int, visible: Sequence[Column]) -> list[Markup]:
    """A line with the first `columns` of the run's own columns; for a set, also its (hidden) details."""
    name, shown, *others = line.cells[:columns]
    result = line.result
    range_ = (result.headline.low, result.headline.high) if isinstance(result, SetResult) else USUAL
    bar = interval_bar(result.mean, result.interval, result.bounds, range_)
    cells = [
        _number("strong", shown),
        element(
            "td", bar, None if range_ == USUAL else element("small", scale(range_), class_="range"), class_="drawn"
        ),
        *(_number("span", text) for text in others),
        element("td", _time(result, results)),
        *(
            element("td", text, class_="published", data_column=place, hidden=COLUMNS[place] not in visible)
            for place, text in enumerate(line.published)
        ),
    ]
    if not isinstance(result, SetResult):
        return [element("tr", element("th", name, scope="row", class_="set"), *cells, class_="average")]
    opener = element("button", name, type="button", aria_expanded="false", class_="opener")
    kind = "set-line warned" if warnings_of(result) else "set-line"
    detail = element("td", set_detail(result, groups.get(name, {})), colspan=99)
    return [
        element("tr", element("th", opener, scope="row", class_="set"), *cells, class_=kind, data_set=name),
        element("tr", detail, class_="detail", hidden=True),
    ]


def _number(name: str, text: str) -> Markup:
    """A cell with the number, and the bracket after it in a smaller font."""
    number, bracket, behind = text.partition(" [" if name == "strong" else " (")
    return element("td", element(name, number), element("span", bracket + behind, class_="ends") if behind else None)


def _time(result: SetResult | Average, results: Results) -> str:
    if isinstance(result, SetResult):
        return _seconds(_mean_time(result)) if result.samples else run_table.NONE
    if result.of != len(results.sets):  # other averages do not know which sets they contain
        return ""
    means = [_mean_time(one) for one in results.sets.values() if one.samples]
    return _seconds(statistics.fmean(means)) if means else run_table.NONE


def _mean_time(result: SetResult) -> float:
    return sum(result.seconds.values()) / result.samples


def _seconds(value: float) -> str:
    return f"{value:,.1f} s"


def notes(results: Results) -> Markup:
    """Notes on how to read the numbers."""
    return join(
        element(
            "p",
            "Scores are the headline times 100, the card's scale. A bar is drawn on the range of its metric: "
            "0 to 100, unless another range is written below it. Intervals are 95 % bootstrap intervals over "
            "rows. An average is the mean of its sets' means; samples of several sets are never pooled.",
        ),
        element(
            "p",
            "Published numbers are the model card's and the paper's own. They come from other judges and other rows, "
            "so they show what range to expect, and are not a strict comparison.",
        ),
        *(element("p", text) for text in run_table.explanations(results)),
    )
