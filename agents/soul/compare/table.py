"""The scores of several models in one table, a column each: `soul compare --table`, and the results of `soul figures`.

Averages are over the sets for which every model has a number, and their title says how many. A score is the headline
times 100, with its 95 % interval over rows. Bold is the best of a line, italics the second.
A dagger marks a score that differs from the baseline's: its adjusted p-value (for an average: its p-value) is below
0.05. A line has no best, no second and no dagger where a judge, its prompt or an option differs from the baseline's:
such scores cannot be ranked, and a note has the reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from soul.compare.comparison import Comparison, is_star
from soul.compare.evaluations import EvaluationSide
from soul.evaluate.numbers.results import Results
from soul.evaluate.tables.run_table import invalid_share, ordered, score
from soul.suites import soul_v1
from soul.table import NONE, Cell, Mark, Table
from soul.task_types import Metric

BETTER, WORSE = "†", "‡"
_DATA = tuple(
    "set metric name mean low high samples invalid seeds lowest_seed highest_seed mark differs sha256".split()
)


Models = Mapping[str, Results]


@dataclass(frozen=True)
class _Line:
    """One line of the table.

    Attributes:
        dimension: the card's; "average" for the lines at the end, "" for a set that the card does not list.
        sets: the set of the line, or those that it averages.
    """

    dimension: str
    title: str
    sets: Sequence[str]


def _lines(models: Models) -> list[_Line]:
    """The lines of the table: all sets, AlignX's mean after its sets, the averages.

    Sets that the card does not list come in the order of the first model.
    """
    names = ordered(list(dict.fromkeys(name for results in models.values() for name in results.sets)))
    common = [name for name in names if all(results.whole([name]) for results in models.values())]
    table: list[_Line] = []
    for name in names:
        table.append(_Line(soul_v1.DIMENSIONS.get(name, ""), name, [name]))
        if name == ordered(soul_v1.ALIGNX)[-1] and set(soul_v1.ALIGNX) <= set(common):
            title = f"alignx, mean of {len(soul_v1.ALIGNX)}"
            table.append(_Line(soul_v1.DIMENSIONS[name], title, soul_v1.ALIGNX))
    if len(names) > 1 and common:
        which = "sets" if len(common) == len(names) else f"of {len(names)} sets, of all models"
        table.append(_Line("average", f"macro average, {len(common)} {which}", common))
    if set(soul_v1.PAPER) < set(common):
        table.append(_Line("average", "macro average, paper's 10", soul_v1.PAPER))
    return table


def results_table(sides: Sequence[EvaluationSide], compared: Sequence[Comparison]) -> Table:
    """Scores by set and their averages.

    Args:
        sides: the columns, in this order; the baseline is one of them.
        compared: of the sides that share rows with the baseline.
    """
    body: list[list[Cell]] = []
    data: list[tuple[Any, ...]] = [_DATA]
    results = {side.label: side.results for side in sides}
    by_label = {one.labels[1]: one for one in compared}
    numbers, notes = _notes(sides, by_label)
    found = _lines(results)
    for line in found:
        known = [side for side in sides if set(line.sets) <= set(side.results.sets)]
        metric = known[0].results.sets[line.sets[0]].headline if len(line.sets) == 1 else Metric("mean")
        means = {side.label: side.results.average(line.sets).mean for side in known}
        ranked = all(one.sets[name].comparable for one in compared for name in line.sets if name in one.sets)
        marks = _marks(means, metric.higher_is_better) if ranked else {}
        cells = dict.fromkeys(results, Cell(NONE))
        for side in known:
            if means[side.label] is not None:
                mark, sign = marks.get(side.label, ""), _sign(by_label.get(side.label), line, metric)
                noted = sorted({number for name in line.sets for number in numbers.get((side.label, name), ())})
                cells[side.label], values = _cell(side, line, mark, [sign, *noted])
                data.append((line.title, metric.name, side.label, *values, mark, sign, side.hashes))
        body.append([Cell(line.title), Cell(_counts(results, line)), *cells.values()])
    base = compared[0].labels[0] if compared else sides[0].label
    return Table(
        ["set", "n", *results],
        body,
        [line.dimension for line in found],
        notes,
        file="results",
        caption=f"Scores (x 100) with 95 % intervals over rows; {BETTER} better and {WORSE} worse than {base}.",
        data=data,
        sources=[source for side in sides for source in side.sources],
    )


def _counts(models: Models, line: _Line) -> str:
    """The number of samples: one number if the models agree, else one per model."""
    numbers = []
    for results in models.values():
        sets = [results.sets[name] for name in line.sets if name in results.sets]
        numbers.append(f"{sum(one.samples for one in sets):,}" if sets else NONE)
    return numbers[0] if len(set(numbers)) == 1 else " / ".join(numbers)


def _marks(means: Mapping[str, float | None], higher_is_better: bool) -> dict[str, Mark]:
    """The best and the second, by the numbers as they are shown; equal ones share their mark."""
    shown = {label: round(100 * mean, 1) for label, mean in means.items() if mean is not None}
    ranks = sorted(set(shown.values()), reverse=higher_is_better) if len(shown) > 1 else []
    kinds: dict[float, Mark] = dict(zip(ranks, ("best", "second"), strict=False))
    return {label: kinds[value] for label, value in shown.items() if value in kinds}


def _cell(side: EvaluationSide, line: _Line, mark: Mark, signs: Sequence[str]) -> tuple[Cell, Sequence[Any]]:
    """Score, signs, interval, range of the seeds, share of samples without a verdict; and the same in full."""
    average, sets = side.results.average(line.sets), [side.results.sets[name] for name in line.sets]
    text, _, interval = score(average.mean, average.interval).partition(" ")
    of_seeds = [seed.average(line.sets).mean for seed in side.seed_results if set(line.sets) <= set(seed.sets)]
    seeds = [mean for mean in of_seeds if mean is not None]
    spread = f"seeds {100 * min(seeds):.1f} to {100 * max(seeds):.1f}" if len(seeds) > 1 else ""
    samples, invalid = sum(one.samples for one in sets), sum(one.invalid for one in sets)
    lost = f"{invalid_share(invalid, samples, None)} invalid" if invalid else ""
    ends = average.interval or ("", "")
    values = (average.mean, *ends, samples, invalid, len(seeds), min(seeds, default=""), max(seeds, default=""))
    return Cell(text, mark, " ".join(filter(None, (*signs, interval, spread, lost)))), values


def _sign(one: Comparison | None, line: _Line, metric: Metric) -> str:
    average = one.average(line.sets) if one else None
    if one is None or average is None or average.difference is None or average.sets < average.of:
        return ""
    if not is_star(one.adjusted[line.sets[0]] if len(line.sets) == 1 else average.p_value):
        return ""
    return BETTER if (average.difference > 0) is metric.higher_is_better else WORSE


Numbers = Mapping[tuple[str, str], Sequence[str]]  # side and set -> the numbers of its notes, such as "(1)"


def _notes(sides: Sequence[EvaluationSide], compared: Mapping[str, Comparison]) -> tuple[Numbers, list[str]]:
    """Notes on scores that are not comparable or not finished, and their numbers behind the scores."""
    by_text: dict[tuple[str, str], list[str]] = {}
    for side in sides:
        for name in side.run.sets:
            for text in _remarks(side, compared.get(side.label), name):
                by_text.setdefault((side.label, text), []).append(name)
    numbers: dict[tuple[str, str], list[str]] = {}
    notes: list[str] = []
    for (label, text), names in by_text.items():
        notes.append(f"({len(notes) + 1}) {label}: {text}, in {', '.join(names)}.")
        for name in names:
            numbers.setdefault((label, name), []).append(f"({len(notes)})")
    notes.append(
        "Daggers: p < 0.05 after Holm's adjustment for the number of sets; of an average, p < 0.05. Seeds are further "
        "samples of the same rows: intervals do not cover how far seeds differ."
    )
    return numbers, notes


def _remarks(side: EvaluationSide, one: Comparison | None, name: str) -> Iterator[str]:
    """The remarks on a set of a side, and on its comparison with the baseline."""
    count, wanted = len(side.run.by_set[name]), side.run.wanted[name]
    if count < wanted:
        yield f"not finished, {count:,} of {wanted:,} samples"
    if one and name in one.sets:
        yield from (f"not comparable with {one.labels[0]}: {reason}" for reason in one.sets[name].reasons)
        counts = [f"{n:,} {why}" for why, n in one.sets[name].not_paired.items() if not why.startswith("invalid")]
        if counts:
            yield f"other rows than {one.labels[0]}: {', '.join(counts)}"
