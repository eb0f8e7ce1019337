"""The table of results in the report: the lines of `soul.evaluate.tables.run_table`, which you can sort and open.

It is plain HTML, readable and printable without a script, with the published columns of the run's suite
(`run_table.columns_of`).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from soul.evaluate.numbers.results import Average, Group, Results
from soul.evaluate.numbers.set_result import SetResult
from soul.evaluate.report.markup import USUAL, Markup, element, interval_bar, join, scale
from soul.evaluate.tables import run_table
from soul.evaluate.tables.run_table import TableLine, invalid_share, score, warnings_of
from soul.judge.call.usage import Usage
from soul.judge.ledger import money, numbers
from soul.metrics.intervals import FEWEST
from soul.suites.published import Column

MEANS = {
    "invalid (bounds)": "Samples without a verdict; the score if all of them were the worst, and the best",
    "cost": "Policy and all judges",
    "time": "Mean time for play and verdict of one sample; samples run in parallel",
}
Groups = Mapping[str, Mapping[str, Sequence[Group]]]  # set -> kind -> groups
# Readable names for kinds and values of groups: records hold codes such as "ood" or "first_order_no_tom".
_NAMES = json.loads(Path(__file__).with_name("group_names.json").read_text(encoding="utf-8"))
KINDS: Mapping[str, str] = _NAMES["kinds"]
VALUES: Mapping[str, Mapping[str, str]] = _NAMES["values"]


def results_table(results: Results, groups: Groups, shown: Sequence[Column]) -> Markup:
    """The table.

    Args:
        groups: the breakdowns of each set.
        shown: the published columns.
    """
    titles = _titles(results)
    lines = run_table.lines(results, shown)
    bodies = []
    for dimension, members in groupby(lines, lambda line: line.dimension):
        drawn = [row for line in members for row in _rows(line, results, groups, len(titles))]
        name = element("tr", element("th", dimension or "other", scope="rowgroup", colspan=99), class_="dimension")
        average = dimension == "average"
        bodies.append(element("tbody", None if average else name, *drawn, class_="averages" if average else "sets"))
    return element("table", _head(titles, shown), *bodies, id="results-table")


def _titles(results: Results) -> tuple[str, ...]:
    """The run's own columns, without the cost if no price is known; the head of the report says so."""
    titles = run_table.titles(results)
    usages = (usage for result in results.sets.values() for usage in result.usage.values())
    return titles if priced(usages) else titles[:-1]


def _head(titles: Sequence[str], shown: Sequence[Column]) -> Markup:
    own = [
        _title("set", "set", class_="set"),
        _title("score", "score [95 %]"),
        element("th", element("span", "0 to 100", class_="scale"), scope="col"),
        *(_title(name.partition(" ")[0], name, title=MEANS.get(name)) for name in titles[2:]),
        _title("time", "time", title=MEANS["time"]),
    ]
    theirs = [_title(c.title, c.model, element("small", c.source), class_="published") for c in shown]
    return element("thead", element("tr", *own, *theirs))


def _title(key: str, *text: str, **attributes: str | int | bool | None) -> Markup:
    """The head of a column that the script can sort by; `key` names it in the page's URL."""
    button = element("button", *text, type="button")
    return element("th", button, scope="col", aria_sort="none", data_key=key, **attributes)


def _rows(line: TableLine, results: Results, groups: Groups, columns: int) -> list[Markup]:
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
        *(element("td", text, class_="published") for text in line.published),
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


def reading_notes(results: Results) -> Markup:
    """Notes on how to read the numbers."""
    return join(
        element(
            "p",
            "Scores are the headline times 100, the card's scale. A bar is drawn on the range of its metric: "
            "0 to 100, unless another range is written below it. Intervals are 95 %, over rows; a dash "
            f"stands for fewer than {FEWEST}. An average is the mean of its sets' means; samples of several sets are "
            "never pooled.",
        ),
        element(
            "p",
            "Published numbers are the model card's and the paper's own. They come from other judges and other rows, "
            "so they show what range to expect, and are not a strict comparison.",
        ),
        *(element("p", text) for text in run_table.explanations(results)),
    )


def set_detail(result: SetResult, groups: Mapping[str, Sequence[Group]]) -> Markup:
    """The opened line of a set."""
    metric = result.headline
    source = f" ({metric.source})" if metric.source else ""
    range_ = f"{metric.low:.3g} to {metric.high:.3g}{'' if metric.higher_is_better else ', lower is better'}"
    head = element(
        "p",
        "Score: ",
        element("strong", metric.name),
        f" x 100, range {range_}{source}. ",
        browse("Browse its samples", result.name) if result.samples else None,
        class_="meaning",
    )
    warnings = [element("p", str(warning), class_="warning") for warning in warnings_of(result)]
    parts = [
        *(_groups(result, kind, members) for kind, members in groups.items()),
        _metrics(result),
        _repeats(result),
        _failures(result),
        _calls_and_time(result),
    ]
    return element("div", head, *warnings, element("div", *parts, class_="parts"), class_="opened")


def browse(text: str, set_: str, **filters: str) -> Markup:
    """A button that lists the samples of a set; `filters` are those of the list (script/page.js reads them)."""
    return element("button", text, type="button", class_="link", data_browse=json.dumps({"set": set_, **filters}))


def samples_link(set_: str) -> str:
    """The link to the samples of a set within the page (script/link.js)."""
    return f"#samples?set={quote(set_, safe='', errors='replace')}"


def small_table(caption: str | None, heads: Sequence[str], lines: Sequence[Sequence[str]]) -> Markup | None:
    """A small table: names in the first column, numbers in the others."""
    if not lines:
        return None
    head = element("tr", *(element("th", name, scope="col") for name in heads))
    body = [
        element("tr", element("th", line[0], scope="row"), *(element("td", cell) for cell in line[1:]))
        for line in lines
    ]
    top = element("caption", caption) if caption else None
    return element("table", top, element("thead", head), element("tbody", *body), class_="part")


def _groups(result: SetResult, kind: str, groups: Sequence[Group]) -> Markup | None:
    range_ = result.headline.low, result.headline.high
    lines = [
        (
            browse(value_name(kind, group.value), result.name, kind=kind, value=group.value),
            score(group.mean, group.interval),
            interval_bar(group.mean, group.interval, group.bounds, range_),
            f"{group.samples:,}",
            invalid_share(group.invalid, group.samples, group.bounds),
        )
        for group in groups
    ]
    name = kind_name(kind)
    return small_table(f"By {name}", (name, "score [95 %]", scale(range_), "n", "invalid (bounds)"), lines)


def _metrics(result: SetResult) -> Markup | None:
    lines = [(name, f"{value:.4g}") for name, value in result.metrics.items()]
    return small_table("Other metrics", ("metric", "value"), lines)


def _repeats(result: SetResult) -> Markup | None:
    several = (("best of", result.best), ("majority of", result.self_consistency))
    lines = [
        (f"{name} {k}", f"{100 * mean:.1f}", f"{rows:,}")
        for name, scores in several
        for k, (mean, rows) in scores.items()
    ]
    return small_table("Several samples per row", ("", "score", "rows"), lines)


def _failures(result: SetResult) -> Markup | None:
    lines = [(browse(cause, result.name, cause=cause), f"{count:,}") for cause, count in result.causes.items()]
    if result.contentless:
        shown = browse("no content (worst score)", result.name, state="contentless")
        lines.append((shown, f"{result.contentless:,}"))
    return small_table("Failures by cause", ("cause", "samples"), lines)


def _calls_and_time(result: SetResult) -> Markup | None:
    if not result.samples:
        return None
    roles = {"policy": result.policy, **{role: use for role, use in result.usage.items() if role != "policy"}}
    shows_cost = priced(roles.values())
    heads = ("role", "calls", "tokens in", "tokens out", "p50 s", "p95 s", *(("cost",) if shows_cost else ()))
    lines = [_usage(role, usage)[: len(heads)] for role, usage in roles.items()]
    return join(
        small_table("Calls and cost" if shows_cost else "Calls", heads, lines),
        small_table(
            "Seconds per sample",
            ("stage", "mean"),
            [(stage, f"{seconds / result.samples:.2f}") for stage, seconds in result.seconds.items()],
        ),
    )


def _usage(role: str, usage: Usage) -> tuple[str, ...]:
    known = numbers(usage)
    latency = [f"{known[key]:.2f}" if key in known else "-" for key in ("latency_p50_s", "latency_p95_s")]
    counts = [f"{count:,}" for count in (usage.calls, usage.prompt_tokens, usage.completion_tokens)]
    return role, *counts, *latency, money(usage)


def priced(usages: Iterable[Usage]) -> bool:
    """Check whether at least one of these costs is known, so that a column is worth showing."""
    return any(usage.cost_usd or not usage.unpriced for usage in usages)


def kind_name(kind: str) -> str:
    """The name of a kind of groups."""
    return KINDS.get(kind, kind)


def value_name(kind: str, value: str) -> str:
    """The name of a value; without an entry in VALUES, the value itself with spaces for underscores."""
    return VALUES.get(kind, {}).get(value) or value.replace("_", " ")


def names_of(groups: Iterable[Mapping[str, str]]) -> dict[str, tuple[str, dict[str, str]]]:
    """For the page's script: kind -> its name, and the names of all its values in these groups."""
    names: dict[str, tuple[str, dict[str, str]]] = {}
    for sample_groups in groups:
        for kind, value in sample_groups.items():
            _, values = names.setdefault(kind, (kind_name(kind), {}))
            values[value] = value_name(kind, value)
    return names
