"""Several runs in one table: sets as rows in the card's order, models as columns.

Averages are over the sets for which every model has a number, so that all columns have the same sets; their title says
how many. This table is for comparing models by eye; `soul compare` tells whether a difference is significant. For
finished runs, use `soul compare table`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from soul.evaluate.numbers.results import Results, natural
from soul.evaluate.tables.run_table import invalid_share, ordered, score
from soul.suites import soul_v1
from soul.table import NONE, Table

TITLES = ("set", "n")
Marks = Mapping[str, Mapping[str, str]]  # model -> set -> the mark behind its score, such as "(1)"


@dataclass(frozen=True)
class ComparisonLine:
    """One line of the table, as text.

    Attributes:
        dimension: the card's; "average" for the lines at the end, "" for a set that the card does not list.
        n: number of samples; one per model if they differ.
        scores: one per model: score, interval, and the share of samples without a verdict if there are any.
    """

    dimension: str
    name: str
    n: str
    scores: tuple[str, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        return (self.name, self.n, *self.scores)


def lines(models: Mapping[str, Results], *, intervals: bool = True, marks: Marks | None = None) -> list[ComparisonLine]:
    """The lines of the table: all sets, AlignX's mean after its sets, the averages.

    Args:
        models: name -> its results; sets that the card does not list come in the order of the first model.
        intervals: whether to show intervals beside scores.
        marks: marks of scores that a note explains; an average has the marks of its sets.
    """

    def line(dimension: str, title: str, names: Sequence[str]) -> ComparisonLine:
        cells: list[str] = []
        counts: list[int | None] = []
        for model, results in models.items():
            sets = {name: results.sets[name] for name in names if name in results.sets}
            samples, invalid = sum(s.samples for s in sets.values()), sum(s.invalid for s in sets.values())
            average = results.average(list(sets))
            shown = score(average.mean, average.interval) if sets else ""
            shown = shown if intervals else shown.partition(" [")[0]
            failed = f", {invalid_share(invalid, samples, None)} invalid" if invalid else ""
            by_set = (marks or {}).get(model, {})
            mark = " ".join(sorted({by_set[name] for name in names if name in by_set}, key=natural))
            cells.append(f"{shown}{failed} {mark}" if shown and mark else shown + failed)
            counts.append(samples if sets else None)
        return ComparisonLine(dimension, title, _counts(counts), tuple(cells))

    names = ordered(list(dict.fromkeys(name for results in models.values() for name in results.sets)))
    table: list[ComparisonLine] = []
    for name in names:
        table.append(line(soul_v1.DIMENSIONS.get(name, ""), name, [name]))
        if name == ordered(soul_v1.ALIGNX)[-1] and set(soul_v1.ALIGNX) <= set(shared(models)):
            table.append(line(soul_v1.DIMENSIONS[name], f"alignx, mean of {len(soul_v1.ALIGNX)}", soul_v1.ALIGNX))
    common = [name for name in names if name in shared(models)]
    if len(names) > 1 and common:
        which = "sets" if len(common) == len(names) else f"of {len(names)} sets, of all models"
        table.append(line("average", f"macro average, {len(common)} {which}", common))
    if set(soul_v1.PAPER) <= set(common) and len(common) > len(soul_v1.PAPER):
        table.append(line("average", "macro average, paper's 10", soul_v1.PAPER))
    return table


def shared(models: Mapping[str, Results]) -> list[str]:
    """The sets for which every model has a number."""
    first, *others = models.values()
    return [
        name
        for name in first.sets
        if all(name in results.sets and results.sets[name].mean is not None for results in (first, *others))
    ]


def models_table(
    models: Mapping[str, Results],
    *,
    width: int | None = None,
    marks: Marks | None = None,
    notes: Sequence[str] = (),
    score_title: str = "",
) -> Table:
    """The table.

    Args:
        width: of the terminal. A wider table is shown without intervals, and a note says so.
        marks: see `lines`.
        notes: lines below the table that explain the marks.
        score_title: text after each model's name in the head.
    """

    def table(found: Sequence[ComparisonLine], below: Sequence[str]) -> Table:
        head = (*TITLES, *(f"{name}{score_title}" for name in models))
        return Table(head, [line.cells for line in found], [line.dimension for line in found], below)

    whole = table(lines(models, marks=marks), notes)
    if width is None or whole.fits(width):
        return whole
    too_narrow = "Too narrow for the 95 % intervals; the Markdown table has them."
    return table(lines(models, intervals=False, marks=marks), [too_narrow, *notes])


def markdown(models: Mapping[str, Results], *, marks: Marks | None = None, notes: Sequence[str] = ()) -> str:
    """The table as Markdown, with the notes below it, in which HTML tags are escaped."""
    table = models_table(models, marks=marks, score_title=": score [95 %]")
    return table.markdown() + "".join(f"\n{note.replace('<', '&lt;')}\n" for note in notes)


def _counts(counts: Sequence[int | None]) -> str:
    """One number if the models agree, else one per model."""
    texts = [NONE if count is None else f"{count:,}" for count in counts]
    return texts[0] if len(set(texts)) == 1 else " / ".join(texts)
