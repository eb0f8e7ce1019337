"""Several runs in one table: sets as rows in the card's order, models as columns.

Averages are over the sets for which every model has a number, so that all columns have the same sets; their title says
how many. This table is for comparing models by eye; `soul compare` tells whether a difference is significant. For
finished runs, use `soul compare table`; `soul figures` writes the same lines with marks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from soul.evaluate.numbers.results import Results, natural
from soul.evaluate.tables.run_table import invalid_share, ordered, score
from soul.suites import soul_v1
from soul.table import NONE, Table

TITLES = ("set", "n")
Models = Mapping[str, Results]
Marks = Mapping[str, Mapping[str, str]]  # model -> set -> the mark behind its score, such as "(1)"


@dataclass(frozen=True)
class Line:
    """One line of the table.

    Attributes:
        dimension: the card's; "average" for the lines at the end, "" for a set that the card does not list.
        sets: the set of the line, or those that it averages.
    """

    dimension: str
    title: str
    sets: Sequence[str]


def lines(models: Models) -> list[Line]:
    """The lines of the table: all sets, AlignX's mean after its sets, the averages.

    Sets that the card does not list come in the order of the first model.
    """
    names = ordered(list(dict.fromkeys(name for results in models.values() for name in results.sets)))
    common = [name for name in names if all(_mean(results, name) is not None for results in models.values())]
    table: list[Line] = []
    for name in names:
        table.append(Line(soul_v1.DIMENSIONS.get(name, ""), name, [name]))
        if name == ordered(soul_v1.ALIGNX)[-1] and set(soul_v1.ALIGNX) <= set(common):
            title = f"alignx, mean of {len(soul_v1.ALIGNX)}"
            table.append(Line(soul_v1.DIMENSIONS[name], title, soul_v1.ALIGNX))
    if len(names) > 1 and common:
        which = "sets" if len(common) == len(names) else f"of {len(names)} sets, of all models"
        table.append(Line("average", f"macro average, {len(common)} {which}", common))
    if set(soul_v1.PAPER) < set(common):
        table.append(Line("average", "macro average, paper's 10", soul_v1.PAPER))
    return table


def models_table(
    models: Models, *, width: int | None = None, marks: Marks | None = None, notes: Sequence[str] = ()
) -> Table:
    """The table.

    Args:
        width: of the terminal. A wider table is shown without intervals, and without the columns for which there is no
            room then (`Table.fitting`); a note says so.
        marks: marks of scores that a note explains; an average has the marks of its sets.
        notes: lines below the table that explain the marks.
    """
    found = lines(models)

    def table(intervals: bool, below: Sequence[str]) -> Table:
        body = []
        for line in found:
            cells = [_cell(results, line, intervals, (marks or {}).get(name, {})) for name, results in models.items()]
            body.append((line.title, _counts(models, line), *cells))
        later = range(len(TITLES) + len(models) - 1, len(TITLES), -1)  # all models but the first
        return Table((*TITLES, *models), body, [line.dimension for line in found], below, optional=(1, *later))

    whole = table(True, notes)
    if width is None or whole.fits(width):
        return whole
    return table(False, notes).fitting(width, "the Markdown table has them", ["the 95 % intervals"])


def markdown(models: Models, *, marks: Marks | None = None, notes: Sequence[str] = ()) -> str:
    """The table as Markdown, with the notes below it, in which HTML tags are escaped."""
    titled = {f"{name}: score [95 %]": results for name, results in models.items()}
    table = models_table(titled, marks={f"{name}: score [95 %]": of_sets for name, of_sets in (marks or {}).items()})
    return table.markdown() + "".join(f"\n{note.replace('<', '&lt;')}\n" for note in notes)


def _mean(results: Results, name: str) -> float | None:
    return results.sets[name].mean if name in results.sets else None


def _cell(results: Results, line: Line, intervals: bool, marks: Mapping[str, str]) -> str:
    """Score, interval, the share of samples without a verdict if there are any, and the marks."""
    sets = [results.sets[name] for name in line.sets if name in results.sets]
    if not sets:
        return ""
    average = results.average([one.name for one in sets])
    shown = score(average.mean, average.interval)
    shown = shown if intervals else shown.partition(" [")[0]
    if invalid := sum(one.invalid for one in sets):
        shown += f", {invalid_share(invalid, sum(one.samples for one in sets), None)} invalid"
    return " ".join([shown, *sorted({marks[name] for name in line.sets if name in marks}, key=natural)])


def _counts(models: Models, line: Line) -> str:
    """Number of samples: one number if the models agree, else one per model."""
    counts = []
    for results in models.values():
        sets = [results.sets[name] for name in line.sets if name in results.sets]
        counts.append(f"{sum(one.samples for one in sets):,}" if sets else NONE)
    return counts[0] if len(set(counts)) == 1 else " / ".join(counts)
