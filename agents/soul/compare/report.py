"""A comparison as a table with its warnings and notes, for the terminal, in Markdown and on the page.

Scores are headlines times 100, as on the model card. The page (`--html`) shows the rows behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from soul.compare.comparison import Comparison, SetComparison
from soul.metrics.intervals import Interval
from soul.table import NONE, Table, markdown_text

MARK = " (!)"  # follows the name of a set whose scores are not comparable
# Count of rows that are not paired -> its words.
_NOT_PAIRED = {
    "only_base": "only in baseline",
    "only_other": "only in other",
    "changed": "other record",
    "invalid_base": "invalid in baseline",
    "invalid_other": "invalid in other",
}


def titles(comparison: Comparison) -> tuple[str, ...]:
    """The column titles."""
    return ("set", "rows", *comparison.labels, "difference [95 %]", "won / tied / lost", "p (sign test)", "not paired")


def lines(comparison: Comparison) -> list[tuple[str, ...]]:
    """The table's lines: the sets in the order of the model card, then the macro average."""
    body = [_line(one) for one in comparison.sets.values()]
    if len(comparison.sets) > 1:
        macro = comparison.macro
        title = f"macro average, {macro.sets}{'' if macro.sets == macro.of else f' of {macro.of}'} sets"
        body.append((title, "", "", "", _difference(macro.difference, macro.interval), "", "", ""))
    return body


def warnings(comparison: Comparison) -> list[str]:
    """The reasons why scores are not comparable, each with its sets."""
    return [
        f"NOT COMPARABLE in {', '.join(names)}: {text}. These differences are not due to the models alone, and no "
        "average includes them."
        for text, names in _deviations(comparison, matters=True)
    ]


def notes(comparison: Comparison) -> list[str]:
    """Further remarks about the runs and their rows."""
    texts = [f"In {', '.join(names)}: {text}." for text, names in _deviations(comparison, matters=False)]
    for label, only in zip(comparison.labels, (comparison.only_base, comparison.only_other), strict=True):
        if only:
            texts.append(f"Only {label} has {', '.join(only)}.")
    n = [run.n for run in (comparison.base, comparison.other)]
    if n[0] != n[1]:
        texts.append(f"Samples per row: {n[0]} and {n[1]}; a row's score is their mean.")
    for one in comparison.sets.values():
        if one.paired.shortened:
            texts.append(f"{one.name}: {one.paired.shortened:,} paired rows were shortened to fit a model's context.")
        if one.paired.failed:
            texts.append(f"{one.name}: {one.paired.failed:,} samples of paired rows have no verdict and are left out.")
    return texts


def table(comparison: Comparison) -> Table:
    """The table of sets."""
    body = lines(comparison)
    sections = ["set"] * len(comparison.sets) + ["average"] * (len(body) - len(comparison.sets))
    place = len(titles(comparison)) - 1
    return Table(
        titles(comparison),
        body,
        sections,
        notes(comparison),
        words=frozenset({place}),
        whole=frozenset({4}),
        optional=(place, 5, 6, 1, 2, 3),
    )


def rich_view(comparison: Comparison, width: int) -> Group:
    """The comparison for a terminal of this width."""
    base, other = comparison.labels
    parts: list[Any] = [Text(text, style="bold red") for text in warnings(comparison)]
    view = table(comparison).fitting(width, "--out F.md writes them")
    return Group(*parts, view.rich(f"{other} against {base}"))


def markdown(comparison: Comparison) -> str:
    """The comparison as Markdown."""
    base, other = comparison.labels
    parts = [
        f"## {other} against {base}",
        f"Baseline: `{comparison.base.folder}`; compared: `{comparison.other.folder}`.",
        *(f"> **{markdown_text(text)}**" for text in warnings(comparison)),
        table(comparison).markdown().rstrip(),
        *map(markdown_text, notes(comparison)),
    ]
    return "\n\n".join(parts) + "\n"


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison for `--json`; every number is in its metric's own range."""
    return {
        "baseline": {"folder": str(comparison.base.folder), "label": comparison.labels[0]},
        "compared": {"folder": str(comparison.other.folder), "label": comparison.labels[1]},
        "sets": {name: _set_as_json(one) for name, one in comparison.sets.items()},
        "macro": vars(comparison.macro),
        "warnings": warnings(comparison),
        "notes": notes(comparison),
    }


def _set_as_json(one: SetComparison) -> dict[str, Any]:
    counts = {name: value for name, value in vars(one.paired).items() if name != "pairs"}
    return {
        "metric": one.headline.name,
        "higher_is_better": one.headline.higher_is_better,
        **{name: getattr(one, name) for name in ("comparable", "rows", "means", "difference", "interval", "p_value")},
        **dict(zip(("wins", "ties", "losses"), one.tally, strict=True)),
        **counts,
    }


def _line(one: SetComparison) -> tuple[str, ...]:
    base, other = (NONE, NONE) if one.means is None else (f"{100 * mean:.1f}" for mean in one.means)
    tally = " / ".join(f"{count:,}" for count in one.tally) if one.rows else NONE
    name = one.name if one.comparable else one.name + MARK
    p = NONE if one.p_value is None else f"{one.p_value:.3f}" if one.p_value >= 0.001 else "< 0.001"
    counts = [(getattr(one.paired, key), what) for key, what in _NOT_PAIRED.items()]
    not_paired = ", ".join(f"{count:,} {what}" for count, what in counts if count)
    return (name, f"{one.rows:,}", base, other, _difference(one.difference, one.interval), tally, p, not_paired)


def _difference(difference: float | None, interval: Interval | None) -> str:
    if difference is None:
        return NONE
    return f"{100 * difference:+.1f} [{f'{100 * interval[0]:+.1f}, {100 * interval[1]:+.1f}' if interval else NONE}]"


def _deviations(comparison: Comparison, *, matters: bool) -> Sequence[tuple[str, list[str]]]:
    by_text: dict[str, list[str]] = {}
    for name, one in comparison.sets.items():
        for deviation in one.deviations:
            if deviation.matters is matters:
                by_text.setdefault(deviation.text, []).append(name)
    return list(by_text.items())
