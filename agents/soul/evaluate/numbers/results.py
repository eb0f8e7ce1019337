"""The numbers of a run from its finished samples: one result per set, macro averages over sets, and groups of rows.

Sets are averaged, never pooled: a set of 5,687 rows weighs no more than one of 100. Every average comes with its number
of sets. A group of rows, such as a question type or a source (`Task.groups`), is computed like a set: mean over rows,
failures counted and shown as bounds, an interval over rows.
"""

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from soul import tasks
from soul.evaluate.numbers.set_result import RowResult, SetResult, set_result, set_scores
from soul.evaluate.run.run_folder import EvaluationRun
from soul.metrics.intervals import Interval, pooled
from soul.record import SessionRecord
from soul.suites import soul_v1
from soul.task_types import Metric

# A group of rows: its value, and these numbers as in `SetResult`.
Group = Mapping[str, Any]
_OF_GROUP = ("rows", "samples", "mean", "interval", "invalid", "bounds")
Breakdowns = Mapping[str, Mapping[str, Sequence[Group]]]  # set -> kind -> its groups
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Average:
    """The plain mean of set means.

    Attributes:
        sets: number of sets in the mean, which have a valid sample; `of`: number of sets requested.
        interval: 95 %, from each set's own spread over its rows; None if one of the sets has no interval.
        bounds: over all sets with a sample, the mean if every invalid sample were the worst, and the best.
    """

    mean: float | None
    interval: Interval | None
    bounds: Interval | None
    sets: int
    of: int


@dataclass(frozen=True)
class Results:
    """The numbers of a run, by set, in the order of the request."""

    sets: Mapping[str, SetResult]

    def average(self, names: Sequence[str]) -> Average:
        """The macro average over these sets. Raises KeyError if the run lacks one."""
        chosen = [self.sets[name] for name in names]
        means = [s.mean for s in chosen if s.mean is not None]
        parts = [s.estimate for s in chosen if s.estimate is not None]
        known = bool(parts) and all(part.interval for part in parts)
        edges = [s.bounds for s in chosen if s.bounds is not None]
        return Average(
            mean=statistics.fmean(means) if means else None,
            interval=pooled(parts).interval if known else None,
            bounds=(statistics.fmean(e[0] for e in edges), statistics.fmean(e[1] for e in edges)) if edges else None,
            sets=len(means),
            of=len(chosen),
        )

    def whole(self, names: Sequence[str]) -> Average | None:
        """The average over these sets; None unless each of them has a number."""
        if all(name in self.sets and self.sets[name].mean is not None for name in names):
            return self.average(names)
        return None

    @property
    def per_row_samples(self) -> int:
        """The largest number of samples of a row, over all sets (N)."""
        return max((result.per_row_samples for result in self.sets.values()), default=0)

    @property
    def macro(self) -> Average:
        """Over all sets of the run."""
        return self.average(list(self.sets))

    @property
    def paper(self) -> Average | None:
        """Over the paper's ten tasks; None unless each has a number."""
        return self.whole(soul_v1.PAPER)

    @property
    def alignx(self) -> Average | None:
        """Over AlignX's five sets; None unless each has a number."""
        return self.whole(soul_v1.ALIGNX)

    @property
    def averages(self) -> dict[str, Average]:
        """The averages that the run has: "macro", "paper" and "alignx"."""
        averages = {"macro": self.macro, "paper": self.paper, "alignx": self.alignx}
        return {name: average for name, average in averages.items() if average is not None}

    def to_json(self) -> dict[str, Any]:
        """The content of results.json."""
        averages = {name: vars(average) for name, average in self.averages.items()}
        return {"sets": {name: result.to_json() for name, result in self.sets.items()}, "averages": averages}


def summarise_run(run: EvaluationRun) -> Results:
    """The numbers of a run. From here on, this process gives the tasks the options that they had in that run.

    Raises:
        BadSettings: a task has no such option any more.
    """
    options = run.settings.get("tasks", {})
    tasks.configure({name: of_task for name, of_task in options.items() if name in tasks.names()})
    return summarise(run.samples, run.sets, judge_problems=run.judge_problems, stand_ins=run.stand_ins)


def summarise(
    samples: Iterable[SessionRecord],
    sets: Iterable[str],
    *,
    judge_problems: Callable[[str], Mapping[str, Sequence[str]]] = lambda task: {},
    stand_ins: Mapping[str, str] = MappingProxyType({}),
) -> Results:
    """The numbers of a run.

    Args:
        samples: without duplicates, in any order.
        sets: the sets to report; one without samples gets an empty result.
        judge_problems: task -> the judges that failed their test (`EvaluationRun.judge_problems`).
        stand_ins: set -> why its rows are not the paper's (`EvaluationRun.stand_ins`).

    Raises:
        ValueError: a sample of another set, a duplicate sample, or a set whose samples name two tasks.
    """
    by_set: dict[str, dict[tuple[int, int], SessionRecord]] = {name: {} for name in sets}
    names: dict[str, str] = {}
    for sample in samples:
        name, key = sample.set, (sample.number, sample.sample)
        if name not in by_set:
            raise ValueError(f"a sample of the set {name!r}, which is not among the requested: {', '.join(by_set)}")
        if key in by_set[name]:
            raise ValueError(f"{name}: row number {key[0]}, sample {key[1]} occurs twice; pass only its last line")
        if names.setdefault(name, sample.task) != sample.task:
            raise ValueError(f"{name}: its samples name two tasks, {names[name]!r} and {sample.task!r}")
        by_set[name][key] = sample
    numbers = (_set_result(name, names.get(name), list(by_key.values())) for name, by_key in by_set.items())
    return Results(
        {
            one.name: replace(one, judge_problems=judge_problems(one.task), stands_in=stand_ins.get(one.name, ""))
            for one in numbers
        }
    )


def _set_result(name: str, task: str | None, samples: Sequence[SessionRecord]) -> SetResult:
    if task is None:  # no sample is finished
        task = soul_v1.SETS[name].task if name in soul_v1.SETS else name
        if task not in tasks.names():  # a file of your own: only its rows name the task
            return SetResult(name, "", Metric("unknown"))
    return set_result(name, task, samples)


def breakdown(samples: Iterable[SessionRecord], headline: Metric) -> dict[str, list[Group]]:
    """The groups of one set.

    Args:
        samples: of one set, in any order.
        headline: of the task.

    Returns:
        Kind -> its groups, sorted naturally by value; kinds in the task's order. Empty if the task has no groups.
    """
    ordered = sorted(samples, key=lambda sample: sample.key)
    rows: dict[str, dict[str, dict[int, list[SessionRecord]]]] = {}
    for sample in ordered:
        for kind, value in sample.groups.items():
            rows.setdefault(kind, {}).setdefault(value, {}).setdefault(sample.number, []).append(sample)
    return {
        kind: [
            _group(ordered[0], kind, value, list(by_value[value].values()), headline)
            for value in sorted(by_value, key=natural)
        ]
        for kind, by_value in rows.items()
    }


def breakdowns(run: EvaluationRun, results: Results) -> Breakdowns:
    """The groups of each set of a run, in the order of the results."""
    return {name: breakdown(run.by_set[name], result.headline) for name, result in results.sets.items()}


def natural(text: str) -> list[tuple[bool, float, str]]:
    """A key that sorts "2" before "10" and "order 2" before "order 10"; numbers come before words."""
    # The split alternates text and numbers; the text before a leading number is empty.
    return [
        (False, float(part), "") if _NUMBER.fullmatch(part) else (True, 0.0, part.casefold())
        for part in _NUMBER.split(text)
        if part
    ]


def _group(
    sample: SessionRecord, kind: str, value: str, rows: Sequence[Sequence[SessionRecord]], headline: Metric
) -> Group:
    # The name is the bootstrap's seed, so that groups are resampled independently.
    name, joint = f"{sample.set}: {kind} {value}", set_scores(tasks.load(sample.task), rows)
    result = SetResult(name, sample.task, headline, tuple(map(RowResult.from_samples, rows)), joint)
    return {"value": value, **{number: getattr(result, number) for number in _OF_GROUP}}
