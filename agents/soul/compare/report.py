"""Render a comparison for the terminal, as Markdown and as JSON, all with the same content.

The tables show headline scores times 100, as the model card does; JSON keeps the metrics' own ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from soul.compare.comparison import Comparison, SetComparison
from soul.compare.pairs import Pair, Paired, last_turn
from soul.metrics.intervals import Interval
from soul.table import NONE, Table, markdown_text

MARK = " (!)"  # follows the name of a set whose scores are not comparable


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
    return Table(titles(comparison), body, sections, notes(comparison), frozenset({place}), frozenset({4}))


def rich_view(comparison: Comparison, rows: int) -> Group:
    """The comparison for the terminal, with the `rows` of each set that gained most, and as many that lost most."""
    base, other = comparison.labels
    parts: list[Any] = [Text(text, style="bold red") for text in warnings(comparison)]
    parts.append(table(comparison).rich(f"{other} against {base}"))
    changed = list(_changed(comparison, rows))
    for title, pairs in changed:
        parts.append(Text(f"\n{title}", style="bold"))
        for pair in pairs:
            parts.append(Text(_where(pair)))
            parts += [Text(f"  {name}: {turn}") for name, turn in _answers(pair, comparison.labels)]
    if changed:
        parts.append(Text(f"\n{_find_them(comparison)}"))
    return Group(*parts)


def markdown(comparison: Comparison, rows: int) -> str:
    """The comparison as Markdown."""
    base, other = comparison.labels
    parts = [
        f"## {other} against {base}",
        f"Baseline: `{comparison.base.folder}`; compared: `{comparison.other.folder}`.",
        *(f"> **{markdown_text(text)}**" for text in warnings(comparison)),
        table(comparison).markdown().rstrip(),
        *map(markdown_text, notes(comparison)),
    ]
    changed = list(_changed(comparison, rows))
    for title, pairs in changed:
        parts.append(f"### {title}")
        for pair in pairs:
            answers = (f"  - {markdown_text(name)}: {_code(turn)}" for name, turn in _answers(pair, comparison.labels))
            parts.append("\n".join([f"- {_where(pair)}", *answers]))
    if changed:
        parts.append(_find_them(comparison))
    return "\n\n".join(parts) + "\n"


def to_json(comparison: Comparison, rows: int) -> dict[str, Any]:
    """The comparison for `--json`, in the metrics' own ranges."""
    return {
        "baseline": {"folder": str(comparison.base.folder), "label": comparison.labels[0]},
        "compared": {"folder": str(comparison.other.folder), "label": comparison.labels[1]},
        "sets": {name: _set_json(one, rows) for name, one in comparison.sets.items()},
        "macro": vars(comparison.macro),
        "only_baseline": list(comparison.only_base),
        "only_compared": list(comparison.only_other),
        "warnings": warnings(comparison),
        "notes": notes(comparison),
    }


def _set_json(one: SetComparison, rows: int) -> dict[str, Any]:
    wins, ties, losses = one.tally
    gained, lost = one.changed_most(rows)
    counts = {name: value for name, value in vars(one.paired).items() if name != "pairs"}
    return {
        "metric": one.headline.name,
        "higher_is_better": one.headline.higher_is_better,
        "comparable": one.comparable,
        "rows": one.rows,
        "means": one.means,
        "difference": one.difference,
        "interval": one.interval,
        "wins": wins,
        "ties": ties,
        "losses": losses,
        "p_value": one.p_value,
        **counts,
        "changed_most": [_pair_json(pair) for pair in (*gained, *lost)],
    }


def _pair_json(pair: Pair) -> dict[str, Any]:
    shown = pair.shown()
    return {
        "number": pair.number,
        "row": pair.row,
        "scores": pair.scores,
        "difference": pair.difference,
        "samples": [sample.sample for sample in shown],
        "answers": [last_turn(sample) for sample in shown],
    }


def _line(one: SetComparison) -> tuple[str, ...]:
    base, other = (NONE, NONE) if one.means is None else (f"{100 * mean:.1f}" for mean in one.means)
    tally = " / ".join(f"{count:,}" for count in one.tally) if one.rows else NONE
    name = one.name if one.comparable else one.name + MARK
    p = NONE if one.p_value is None else f"{one.p_value:.3f}" if one.p_value >= 0.001 else "< 0.001"
    difference = _difference(one.difference, one.interval)
    return (name, f"{one.rows:,}", base, other, difference, tally, p, _not_paired(one.paired))


def _difference(difference: float | None, interval: Interval | None) -> str:
    if difference is None:
        return NONE
    return f"{100 * difference:+.1f}" + (f" [{100 * interval[0]:+.1f}, {100 * interval[1]:+.1f}]" if interval else "")


def _not_paired(paired: Paired) -> str:
    counts = {
        "only in baseline": paired.only_base,
        "only in other": paired.only_other,
        "other record": paired.changed,
        "invalid in baseline": paired.invalid_base,
        "invalid in other": paired.invalid_other,
    }
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)


def _deviations(comparison: Comparison, *, matters: bool) -> list[tuple[str, list[str]]]:
    by_text: dict[str, list[str]] = {}
    for name, one in comparison.sets.items():
        for deviation in one.deviations:
            if deviation.matters is matters:
                by_text.setdefault(deviation.text, []).append(name)
    return list(by_text.items())


def _changed(comparison: Comparison, rows: int) -> Iterator[tuple[str, Sequence[Pair]]]:
    for name, one in comparison.sets.items():
        gained, lost = one.changed_most(rows)
        for what, pairs in (("gained", gained), ("lost", lost)):
            if pairs:
                yield f"{name}: where {comparison.labels[1]} {what} most", pairs


def _where(pair: Pair) -> str:
    base, other = pair.scores
    return f"row number {pair.number} (index {pair.row}): {100 * base:.1f} -> {100 * other:.1f}"


def _answers(pair: Pair, labels: tuple[str, str]) -> list[tuple[str, str]]:
    """The last turn in the baseline and in the other run, each with its label and sample."""
    shown = zip(labels, pair.shown(), strict=True)
    return [(f"{label}, sample {sample.sample}", last_turn(sample)) for label, sample in shown]


def _find_them(comparison: Comparison) -> str:
    return (
        "To see a row in full, read its lines in samples.jsonl of both folders: "
        f"jq 'select(.set == \"SET\" and .number == NUMBER)' {comparison.base.folder / 'samples.jsonl'}"
    )


def _code(text: str) -> str:
    """A model's text as inline code, so that its Markdown has no effect."""
    return f"`{text.replace('`', chr(39))}`"
