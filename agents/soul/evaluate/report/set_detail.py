"""The details of a set, shown when its line is opened: groups, other metrics, failures, calls, cost and time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from soul.evaluate.numbers.breakdown import Group
from soul.evaluate.numbers.set_result import SetResult
from soul.evaluate.numbers.set_warnings import warnings_of
from soul.evaluate.report.markup import Markup, element, interval_bar, join, scale
from soul.evaluate.tables.run_table import invalid_share, score
from soul.judge.call.usage import Usage
from soul.judge.ledger import money, numbers


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


# Readable names for kinds and values of groups: records hold codes such as "ood" or "first_order_no_tom".
_NAMES = json.loads(Path(__file__).with_name("group_names.json").read_text(encoding="utf-8"))
KINDS: Mapping[str, str] = _NAMES["kinds"]
VALUES: Mapping[str, Mapping[str, str]] = _NAMES["values"]


def priced(usages: Iterable[Usage]) -> bool:
    """Whether at least one of these costs is known, so that a column is worth showing."""
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
