"""The table of a run, for the terminal and as Markdown: in the model card's order and scale, with published numbers.

Both are made from the same lines, so they cannot differ. A score is the headline times 100, which is the card's scale
for every task (Sotopia: a tenth of the mean of the seven scores, 45.8 on the card). The title of an average says how
many sets it covers. A line of averages has a published number only if that covers the same sets. A set whose rows stand
in for the paper's is marked and has none, nor has an average over it. A set that an option scores by another metric has
none either.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from soul.evaluate.numbers.results import Average, Results
from soul.evaluate.numbers.set_result import Interval, SetResult
from soul.evaluate.numbers.set_warnings import warning_lines
from soul.judge.call.usage import total
from soul.judge.ledger import money
from soul.suites import soul_v1, suite
from soul.suites.published import Column
from soul.table import NONE, Table

SHOWN = soul_v1.COLUMNS
OWN = ("set", "score [95 %]", "n", "invalid (bounds)", "cost")


@dataclass(frozen=True)
class TableLine:
    """One line of the table, as text.

    Attributes:
        dimension: the card's; "average" for the lines at the end, "" for a set that the card does not list.
        cells: one per title of `titles`.
        published: one per published column; "" if the source has no number.
        result: the set, or the average, that the line shows.
    """

    dimension: str
    cells: tuple[str, ...]
    published: tuple[str, ...]
    result: SetResult | Average


def columns_of(name: str | None) -> tuple[Column, ...]:
    """The published columns beside a run: those of its suite; `SHOWN` if it has none."""
    return suite(name).columns if name else SHOWN


def ordered(names: Sequence[str]) -> list[str]:
    """The sets in the card's order; those that it does not list come last, in the given order."""
    places = {name: place for place, name in enumerate(soul_v1.DIMENSIONS)}
    return sorted(names, key=lambda name: places.get(name, len(places)))


def titles(results: Results) -> tuple[str, ...]:
    """The titles of the run's own columns.

    If rows have several samples, they include the best of N (pass@N for a headline of 0 or 1), and the reward of the
    majority's answer if any set has answers that can be counted.
    """
    n = results.per_row_samples
    majority = (f"maj@{n}",) if any(n in result.self_consistency for result in results.sets.values()) else ()
    return (*OWN[:2], f"best@{n}", *majority, *OWN[2:]) if n > 1 else OWN


def lines(results: Results, columns: Sequence[Column] = SHOWN) -> list[TableLine]:
    """The lines of the table: the sets, AlignX's mean after its sets, the averages."""
    table: list[TableLine] = []
    names, alignx = ordered(list(results.sets)), results.alignx

    def add(
        dimension: str, title: str, members: Sequence[str], result: SetResult | Average, theirs: Sequence[float | None]
    ) -> None:
        counts = _counts([results.sets[name] for name in members], result.bounds)
        doubt = " ?" if any(results.sets[name].judge_problems for name in members) else ""
        mark = " *" if any(results.sets[name].stands_in for name in members) else ""
        if not all(results.sets[name].as_published for name in members):
            theirs = [None for _ in theirs]
        own = (title, score(result.mean, result.interval) + doubt + mark, *_several_cells(results, members), *counts)
        table.append(TableLine(dimension, own, tuple(map(_number, theirs)), result))

    for name in names:
        dimension = soul_v1.DIMENSIONS.get(name, "")
        add(dimension, name, [name], results.sets[name], [c.score(name) for c in columns])
        if alignx is not None and name == ordered(soul_v1.ALIGNX)[-1]:
            published = [c.score("alignx") for c in columns]
            add(dimension, f"alignx, mean of {alignx.sets}", soul_v1.ALIGNX, alignx, published)
    if len(names) > 1:
        macro = results.macro
        # Published averages cover all these sets; beside an average over fewer they would mislead.
        comparable = macro.sets == macro.of
        title = f"macro average, {macro.sets} {'sets' if comparable else f'of {macro.of} sets'}"
        add("average", title, names, macro, [c.macro(names) if comparable else None for c in columns])
    if results.paper is not None and len(names) > len(soul_v1.PAPER):
        published = [c.macro(soul_v1.PAPER) for c in columns]
        add("average", "macro average, paper's 10", soul_v1.PAPER, results.paper, published)
    return table


def run_table(results: Results, columns: Sequence[Column] = SHOWN, *, width: int | None = None) -> Table:
    """The table with its notes.

    Args:
        width: of the terminal. Published columns that do not fit are dropped, the last first; a note says so.
    """
    notes = [*explanations(results), *warning_lines(results.sets)]
    for kept in range(len(columns), -1, -1):
        left_out = [f"Too narrow for: {', '.join(c.title for c in columns[kept:])}"] if kept < len(columns) else []
        table = _table(results, columns[:kept], [*notes, *left_out])
        if width is None or table.fits(width):
            break
    return table


def _table(results: Results, columns: Sequence[Column], notes: Sequence[str]) -> Table:
    found = lines(results, columns)
    return Table(
        head=[*titles(results), *(f"{c.model}\n({c.source})" for c in columns)],
        lines=[[*line.cells, *line.published] for line in found],
        sections=[line.dimension for line in found],
        notes=notes,
        whole=frozenset({0, 1}),  # names and intervals; other columns wrap if the terminal is narrow
    )


def markdown(results: Results, columns: Sequence[Column] = SHOWN) -> str:
    """The table and its notes as Markdown."""
    notes = [*explanations(results), *(f"> {text}" for text in warning_lines(results.sets))]
    return run_table(results, columns).markdown() + "".join(f"\n{note}\n" for note in notes)


def explanations(results: Results) -> list[str]:
    """A line for each set with metrics of the whole set: those of which its score is the mean, or those beside it."""
    lines = []
    for name, result in results.sets.items():
        if result.joint is not None and result.mean is not None:
            lines.append(
                f"{name}: the score is {result.headline.name}, the mean of {', '.join(result.joint.valid.parts)}."
            )
        if result.whole:
            shown = ", ".join(f"{metric} {value:.3g}" for metric, value in result.whole.items())
            lines.append(f"{name}, beside the score: {shown}.")
    return lines


def score(mean: float | None, interval: Interval | None) -> str:
    """A score on the card's scale, with its interval."""
    if mean is None:
        return NONE
    return _number(100 * mean) + (f" [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]" if interval else "")


def invalid_share(invalid: int, samples: int, bounds: Interval | None) -> str:
    """The share of samples without a verdict, and the scores if all of them were the worst, and the best."""
    if not samples:
        return NONE
    if not invalid:
        return "0 %"
    share = f"{100 * invalid / samples:.1f} %" if invalid / samples >= 0.001 else "< 0.1 %"
    return share + (f" ({100 * bounds[0]:.1f} to {100 * bounds[1]:.1f})" if bounds else "")


def _counts(results: Sequence[SetResult], bounds: Interval | None) -> tuple[str, str, str]:
    samples, rows = sum(r.samples for r in results), sum(r.rows for r in results)
    n = f"{samples:,}" if samples == rows else f"{samples:,} ({rows:,} rows)"
    cost = money(total(count for r in results for count in r.usage.values()))
    return n, invalid_share(sum(r.invalid for r in results), samples, bounds), cost


def _several_cells(results: Results, names: Sequence[str]) -> tuple[str, ...]:
    """The cells of best@N and maj@N, if the table has them; an average needs a number of each of its sets."""
    n = results.per_row_samples
    chosen = [results.sets[name] for name in names]
    cells = []
    for title in titles(results)[2 : 2 - len(OWN)]:
        pairs = [(s.best if title.startswith("best") else s.self_consistency).get(n) for s in chosen]
        values = [pair[0] for pair in pairs if pair is not None]
        cells.append(_number(100 * statistics.fmean(values)) if len(values) == len(pairs) else NONE)
    return tuple(cells)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
