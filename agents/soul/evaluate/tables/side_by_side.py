"""Several runs in one table: sets as rows in the card's order, models as columns.

Averages are over the sets for which every model has a number, so that all columns have the same sets; their title says
how many. This table is for comparing models by eye; `soul compare` tells whether a difference is significant. For
finished runs, use `soul compare --table`; `soul figures` writes the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from soul.evaluate.numbers.results import Results
from soul.evaluate.tables.run_table import invalid_share, ordered, score
from soul.suites import soul_v1
from soul.table import NONE, Table

TITLES = ("set", "n")
Models = Mapping[str, Results]


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


def models_table(models: Models, *, width: int | None = None) -> Table:
    """The table.

    Args:
        width: of the terminal. A wider table is shown without intervals, and without the columns for which there is no
            room then (`Table.fitting`); a note says so.
    """
    found = lines(models)

    def table(intervals: bool) -> Table:
        body = [
            (line.title, counts(models, line), *(_cell(results, line, intervals) for results in models.values()))
            for line in found
        ]
        later = range(len(TITLES) + len(models) - 1, len(TITLES), -1)  # all models but the first
        return Table((*TITLES, *models), body, [line.dimension for line in found], optional=(1, *later))

    whole = table(True)
    if width is None or whole.fits(width):
        return whole
    return table(False).fitting(width, "the Markdown table has them", ["the 95 % intervals"])


def markdown(models: Models) -> str:
    """The table as Markdown."""
    return models_table({f"{name}: score [95 %]": results for name, results in models.items()}).markdown()


def _mean(results: Results, name: str) -> float | None:
    return results.sets[name].mean if name in results.sets else None


def _cell(results: Results, line: Line, intervals: bool) -> str:
    """Score, interval, and the share of samples without a verdict if there are any."""
    sets = [results.sets[name] for name in line.sets if name in results.sets]
    if not sets:
        return ""
    average = results.average([one.name for one in sets])
    shown = score(average.mean, average.interval)
    shown = shown if intervals else shown.partition(" [")[0]
    if invalid := sum(one.invalid for one in sets):
        shown += f", {invalid_share(invalid, sum(one.samples for one in sets), None)} invalid"
    return shown


def counts(models: Models, line: Line) -> str:
    """The number of samples: one number if the models agree, else one per model."""
    numbers = []
    for results in models.values():
        sets = [results.sets[name] for name in line.sets if name in results.sets]
        numbers.append(f"{sum(one.samples for one in sets):,}" if sets else NONE)
    return numbers[0] if len(set(numbers)) == 1 else " / ".join(numbers)
