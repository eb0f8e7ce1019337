"""The tables of results (the paper's tables 1 and 3), of paired differences, and of every metric beside the score.

A score is the headline times 100, with its 95 % interval over rows. A dagger marks a score whose paired
difference from the baseline's has an interval that excludes 0. A line has no best and no second where a judge, its
prompt or an option differs from the baseline's: such scores cannot be ranked. The other metrics are over all valid
samples of a set, in their own ranges, without intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from soul.compare import report
from soul.compare.comparison import Comparison, NothingToCompare, compare
from soul.compare.table import remarks
from soul.errors import BadSettings
from soul.evaluate.tables.run_table import ordered, score
from soul.evaluate.tables.side_by_side import Line, lines
from soul.figures.evaluations import Evaluations
from soul.figures.training import DOWN, UP, better
from soul.metrics.intervals import Interval
from soul.table import NONE, Cell, Mark, Table
from soul.task_types import Metric

BETTER, WORSE = "†", "‡"
BASELINE = "grpo"  # unless --baseline names another
_NUMBERS = (
    "mean",
    "low",
    "high",
    "samples",
    "invalid",
    "seeds",
    "lowest_seed",
    "highest_seed",
    "mark",
    "differs",
    "sha256",
)
_DIFFERENCE = ("baseline_mean", "mean", "difference", "low", "high", "won", "tied", "lost", "p_sign_test", "comparable")


def choose_baseline(evals: Sequence[Evaluations], name: str | None) -> Evaluations:
    """The evaluations to compare with: those of that name, of "grpo", or the first.

    Raises:
        BadSettings: there is no such name.
    """
    by_name = {each.name: each for each in evals}
    if name is not None and name not in by_name:
        raise BadSettings(f"--baseline {name}: --evals has no such name. It has {', '.join(by_name)}.")
    return by_name.get(name or BASELINE, evals[0])


def comparisons(evals: Sequence[Evaluations], baseline: Evaluations, missing: list[str]) -> dict[str, Comparison]:
    """Name -> its comparison with the baseline; a sentence joins `missing` where no row can be paired."""
    compared: dict[str, Comparison] = {}
    for each in evals:
        if each is not baseline:
            try:
                compared[each.name] = compare(baseline.run, each.run, (baseline.name, each.name))
            except NothingToCompare as error:
                missing.append(f"significance of {each.name}: {error}")
    return compared


def results_table(evals: Sequence[Evaluations], baseline: Evaluations, compared: Mapping[str, Comparison]) -> Table:
    """Scores by set and their averages, a column for each name."""
    body: list[list[Cell]] = []
    data: list[tuple[Any, ...]] = [("set", "metric", "name", *_NUMBERS)]
    found = lines({each.name: each.results for each in evals})
    for line in found:
        scores = {
            each.name: each.results.average(line.sets) for each in evals if set(line.sets) <= set(each.results.sets)
        }
        means = {name: one.mean for name, one in scores.items() if one.mean is not None}
        metric = _metric(evals, line)
        marks = _marks(means, metric.higher_is_better) if _comparable(compared.values(), line) else {}
        cells = [Cell(line.title)]
        for each in evals:
            shown, mark = scores.get(each.name), marks.get(each.name, "")
            if shown is None or shown.mean is None:
                cells.append(Cell(NONE))
                continue
            differs = _differs(compared.get(each.name), line, metric.higher_is_better)
            seeds = _seed_means(each, line)
            spread = f"seeds {100 * min(seeds):.1f} to {100 * max(seeds):.1f}" if len(seeds) > 1 else ""
            interval = score(shown.mean, shown.interval).partition(" ")[2]
            cells.append(Cell(f"{100 * shown.mean:.1f}", mark, " ".join(filter(None, (differs, interval, spread)))))
            sets = [each.results.sets[name] for name in line.sets]
            counts = sum(one.samples for one in sets), sum(one.invalid for one in sets)
            numbers = (shown.mean, *(shown.interval or ("", "")), *counts, len(seeds), min(seeds), max(seeds))
            data.append((line.title, metric.name, each.name, *numbers, mark, differs, _hashes(each)))
        body.append(cells)
    caption = f"Scores (x 100) with 95 % intervals over rows; {BETTER} better and {WORSE} worse than {baseline.name}."
    head = ["set", *(each.name for each in evals)]
    notes, sources = _notes(evals, baseline), _sources(evals)
    sections = [line.dimension for line in found]
    return Table(head, body, sections, notes, file="results", caption=caption, data=data, sources=sources)


def _metric(evals: Sequence[Evaluations], line: Line) -> Metric:
    """The metric of a set; averages are means of scores."""
    if len(line.sets) > 1:
        return Metric("mean")
    return next(each.results.sets[line.sets[0]].headline for each in evals if line.sets[0] in each.results.sets)


def _hashes(each: Evaluations) -> str:
    return " ".join(sha256 for _, _, sha256 in each.sources)


def significance_table(
    evals: Sequence[Evaluations], baseline: Evaluations, compared: Mapping[str, Comparison]
) -> Table:
    """The paired differences of every name from the baseline, set by set."""
    head = ("name", "set", "rows", baseline.name, "score", *report.titles(next(iter(compared.values())))[4:])
    body = [[name, *line] for name, one in compared.items() for line in report.lines(one)]
    data: list[tuple[Any, ...]] = [("name", "set", "metric", "rows", *_DIFFERENCE)]
    data += [line for name, one in compared.items() for line in _differences(name, one)]
    notes = [text for one in compared.values() for text in (*report.warnings(one), *report.notes(one))]
    caption = f"Paired differences from {baseline.name}: 95 % intervals over rows, exact sign test."
    notes = list(dict.fromkeys(notes))
    return Table(head, body, notes=notes, file="significance", caption=caption, data=data, sources=_sources(evals))


def _seed_means(each: Evaluations, line: Line) -> list[float]:
    averages = [
        seed.average(line.sets).mean for seed in each.seed_results if all(name in seed.sets for name in line.sets)
    ]
    return [mean for mean in averages if mean is not None]


def _marks(means: Mapping[str, float], higher_is_better: bool) -> dict[str, Mark]:
    """The best and the second, by the numbers as they are shown; equal ones share their mark."""
    shown = {name: round(100 * mean, 1) for name, mean in means.items()}
    if len(shown) < 2:
        return {}
    ranks = sorted(set(shown.values()), reverse=higher_is_better)
    kinds: dict[float, Mark] = dict(zip(ranks, ("best", "second"), strict=False))
    return {name: kinds[value] for name, value in shown.items() if value in kinds}


def _comparable(compared: Iterable[Comparison], line: Line) -> bool:
    return all(one.sets[name].comparable for one in compared for name in line.sets if name in one.sets)


def _differs(one: Comparison | None, line: Line, higher_is_better: bool) -> str:
    """The sign after a score whose paired difference is unlikely to be chance."""
    if one is None:
        return ""
    average = one.average(line.sets)
    return _sign(average.interval, higher_is_better) if average.sets == average.of else ""


def _sign(interval: Interval | None, higher_is_better: bool) -> str:
    if interval is None or interval[0] <= 0 <= interval[1]:
        return ""
    return BETTER if (interval[0] > 0) is higher_is_better else WORSE


def _differences(name: str, compared: Comparison) -> Iterator[tuple[Any, ...]]:
    for one in compared.sets.values():
        means, interval, p = one.means or ("", ""), one.interval or ("", ""), one.p_value
        numbers = (*means, one.difference, *interval, *one.tally, p, one.comparable)
        yield (name, one.name, one.headline.name, one.rows, *("" if value is None else value for value in numbers))


def _notes(evals: Sequence[Evaluations], baseline: Evaluations) -> list[str]:
    """Reasons why scores may not be comparable, the kind of intervals, and the hashes."""
    ordered_runs = [baseline, *(each for each in evals if each is not baseline)]
    labels = {
        f"{each.name} ({run.folder.name})" if len(each.seeds) > 1 else each.name: run
        for each in ordered_runs
        for run in each.seeds
    }
    notes = [
        f"{label}: {text}, in {', '.join(names)}."
        for label, texts in remarks(labels).items()
        for text, names in texts.items()
    ]
    if any(len(each.seeds) > 1 for each in evals):
        notes.insert(0, "Seeds are further samples of the same rows: intervals do not cover how far seeds differ.")
    several = "Each set is a test of its own: with 20 sets, one sign is to be expected by chance."
    return [several, *notes]


def _sources(evals: Sequence[Evaluations]) -> list[tuple[str, Path, str]]:
    return [source for each in evals for source in each.sources]


def metrics_table(evals: Sequence[Evaluations]) -> Table | None:
    """A line for each metric of each set, a column for each name; None if no set has metrics beside its score."""
    body: list[list[Cell]] = []
    data: list[tuple[Any, ...]] = [("set", "metric", "name", "mean", "sha256")]
    for name in ordered(list(dict.fromkeys(name for each in evals for name in each.results.sets))):
        sets = {each.name: each.results.sets[name] for each in evals if name in each.results.sets}
        for metric in dict.fromkeys(metric for one in sets.values() for metric in one.metrics):
            arrow = better(next(iter(sets.values())).task, metric)
            means = {label: one.metrics[metric] for label, one in sets.items() if metric in one.metrics}
            marks = _best(means, arrow)
            cells = [
                Cell(f"{means[each.name]:.3f}", marks.get(each.name, "")) if each.name in means else Cell(NONE)
                for each in evals
            ]
            body.append([Cell(f"{name}: {metric}{arrow}"), *cells])
            data += [(name, metric, each.name, means[each.name], _hashes(each)) for each in evals if each.name in means]
    if not body:
        return None
    caption = "Every metric beside the score, over all valid samples; an arrow says what is better."
    head = ("metric", *(each.name for each in evals))
    return Table(head, body, file="metrics", caption=caption, data=data, sources=_sources(evals))


def _best(means: Mapping[str, float], arrow: str) -> dict[str, Mark]:
    """The best of each line, where the task says what is better."""
    if arrow not in (UP, DOWN) or len(means) < 2:
        return {}
    best = max(means.values()) if arrow == UP else min(means.values())
    return {label: "best" for label, mean in means.items() if mean == best}
