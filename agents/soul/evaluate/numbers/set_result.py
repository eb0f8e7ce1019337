"""The numbers of one evaluation set, from its finished samples.

A failed sample has no score. It is counted by cause, and the bounds give the mean if all failed samples were the worst
or the best possible. The mean is over rows: first over a row's samples, then over the rows, as the interval is over
rows too. With one sample per row this is the mean of the valid rewards. The order of the samples has no effect.

A task may score a set as a whole (`Task.set_headline`). Then mean, interval and bounds are those of that score, and
rewards are still the scores of single episodes. For the bounds, the worst and the best possible sample replace those
without a verdict. Other metrics of a whole set (`Task.set_metrics`) are shown beside the score.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import comb
from typing import Any

from pydantic import ValidationError

from soul import tasks
from soul.judge.call.usage import Usage, merged, total
from soul.judge.ledger import numbers
from soul.metrics.intervals import Estimate, Interval, mean_of, score_of_rows
from soul.metrics.set_metrics import Edge, Outcome, SetScore
from soul.record import BadRecord, SessionRecord
from soul.task import Task
from soul.task_types import Metric

# Attributes of a set that results.json has under the same name.
_AS_THEY_ARE = ("mean", "interval", "bounds", "samples", "rows", "invalid", "causes", "contentless", "metrics")


@dataclass(frozen=True)
class SetResult:
    """The numbers of one set.

    Attributes:
        headline: the metric of `mean`: the mean of the rewards, or the task's score of a set (`joint`).
        samples: all finished samples, valid or not.
        joint: the score of the set as a whole; None if the score is the mean of the rewards.
        causes: cause -> invalid samples.
        contentless: valid samples in which the policy said nothing; they score the headline's worst.
        metrics: the task's other metrics, over all valid samples.
        whole: those of the metrics that exist only for a whole set and are not in its score.
        best: with several samples per row, k -> (mean best@k, number of rows with at least k valid samples, over which
            it is the mean). For rewards of 0 or 1 this is pass@k. Empty if the set is scored as a whole, because a
            row then has no best sample.
        usage: by role.
        seconds: by stage, summed over concurrent samples.
        judge_problems: judges of this set that failed their test -> what is wrong (`EvaluationRun.judge_problems`).
        stands_in: why the rows are not the paper's; "" if they are. Otherwise no published number is shown beside it.
    """

    name: str
    task: str
    headline: Metric
    per_row: tuple[RowResult, ...] = ()
    joint: SetScores | None = None
    causes: Mapping[str, int] = field(default_factory=dict)
    contentless: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    whole: Mapping[str, float] = field(default_factory=dict)
    usage: Mapping[str, Usage] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    judge_problems: Mapping[str, Sequence[str]] = field(default_factory=dict)
    stands_in: str = ""

    @property
    def reward(self) -> Metric:
        """The metric of one sample's reward: the headline, unless the set is scored as a whole."""
        return self.headline if self.joint is None else tasks.load(self.task).headline

    @property
    def as_published(self) -> bool:
        """True if published numbers are comparable: the rows are the paper's, and no option changes the score."""
        if self.stands_in or self.task not in tasks.names():
            return not self.stands_in
        kind = type(tasks.load(self.task))
        return self.headline.name == (kind.set_headline or kind.headline).name

    @property
    def samples(self) -> int:
        return sum(len(row.rewards) + row.invalid for row in self.per_row)

    @property
    def rows(self) -> int:
        return len(self.per_row)

    @property
    def invalid(self) -> int:
        return sum(row.invalid for row in self.per_row)

    @property
    def per_row_samples(self) -> int:
        """The largest number of samples of a row (N)."""
        return max((len(row.rewards) + row.invalid for row in self.per_row), default=0)

    @cached_property
    def mean(self) -> float | None:
        """The mean over rows of their valid samples' mean reward, or the set's score; None if no sample is valid."""
        if self.joint is not None:
            return self.joint.valid.mean
        means = [row.mean for row in self.per_row if row.mean is not None]
        return statistics.fmean(means) if means else None

    @cached_property
    def estimate(self) -> Estimate | None:
        """The mean with its spread over rows; None if no sample is valid."""
        if self.mean is None:
            return None
        range_ = self.headline.low, self.headline.high
        if self.joint is not None:
            score = self.joint.valid
            return score_of_rows(score.values, self.mean, score.rows, self.name, range_)
        return mean_of([row.mean for row in self.per_row if row.mean is not None], range_)

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the mean, over rows (`soul.metrics.intervals`)."""
        return self.estimate.interval if self.estimate else None

    @cached_property
    def bounds(self) -> Interval | None:
        """The mean if every invalid sample had the headline's worst value, and its best."""
        if not self.per_row or not self.invalid:
            return None if self.mean is None else (self.mean, self.mean)
        if self.joint is not None:
            edges = self.joint.worst.mean, self.joint.best.mean
            return None if edges[0] is None or edges[1] is None else (edges[0], edges[1])
        metric = self.headline
        best = metric.high if metric.higher_is_better else metric.low
        worst_case, best_case = (
            statistics.fmean(row.filled(value) for row in self.per_row) for value in (metric.worst, best)
        )
        return worst_case, best_case

    @property
    def best(self) -> dict[int, tuple[float, int]]:
        most = self.per_row_samples
        best = {}
        for k in sorted({*(2**i for i in range(most.bit_length())), most}) if most > 1 and self.joint is None else ():
            bests = [row.best_at(k, self.headline) for row in self.per_row if len(row.rewards) >= k]
            if bests:
                best[k] = (statistics.fmean(bests), len(bests))
        return best

    @property
    def policy(self) -> Usage:
        """The usage of the model under test."""
        return total(count for role, count in self.usage.items() if role == "policy")

    @property
    def judges(self) -> Usage:
        """The usage of all others: judge, partner, environment."""
        return total(count for role, count in self.usage.items() if role != "policy")

    def to_json(self) -> dict[str, Any]:
        """The set's part of results.json, in the metric's own range."""
        metric = self.headline
        value: dict[str, Any] = {
            "task": self.task,
            "metric": {"name": metric.name, "low": metric.low, "high": metric.high, "source": metric.source},
            **({} if self.joint is None else {"mean_of": dict(self.joint.valid.parts)}),
            **{name: getattr(self, name) for name in _AS_THEY_ARE},
            **({"judge_problems": self.judge_problems} if self.judge_problems else {}),
            **({"stands_in": self.stands_in} if self.stands_in else {}),
            "usage": {"policy": numbers(self.policy), "judges": numbers(self.judges)},
            "seconds": self.seconds,
        }
        if self.per_row_samples > 1:
            value["best"] = {str(k): {"mean": mean, "rows": rows} for k, (mean, rows) in self.best.items()}
            value["per_row"] = [
                {**vars(row), "mean": row.mean, "best": row.best_at(len(row.rewards), metric) if row.rewards else None}
                for row in self.per_row
            ]
        return value


def set_result(name: str, task_name: str, samples: Iterable[SessionRecord]) -> SetResult:
    """The numbers of one set from its samples, in any order."""
    task = tasks.load(task_name)
    by_row: dict[int, list[SessionRecord]] = {}
    seconds: dict[str, float] = {}
    ordered = sorted(samples, key=lambda sample: (sample.number, sample.sample))
    for sample in ordered:
        for reward in (attempt.reward for attempt in sample.attempts if attempt.reward is not None):
            if problem := task.headline.problem(reward):
                place = f"samples.jsonl: {name}, row {sample.number}, sample {sample.sample}"
                raise BadRecord(f"{place}: {problem}. Remove the line; an evaluation runs the sample again.")
        by_row.setdefault(sample.number, []).append(sample)
        for stage, spent in sample.draft.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + spent
    metrics = task.summarize([task.saved(sample.draft) for sample in ordered if sample.draft.valid])
    joint, whole = set_scores(task, list(by_row.values())), metrics_beside(task, list(by_row.values()))
    metrics |= whole if joint is None else joint.valid.parts  # these count rows, `summarize` counts samples
    return SetResult(
        name=name,
        task=task_name,
        headline=task.set_headline or task.headline,
        joint=joint,
        per_row=tuple(map(RowResult.from_samples, by_row.values())),
        causes=dict(sorted(Counter(sample.draft.cause for sample in ordered if sample.draft.cause).items())),
        contentless=sum(sample.draft.contentless for sample in ordered),
        # Without the headline: it is `mean`, and a second value, over samples rather than rows, would confuse.
        metrics={key: value for key, value in metrics.items() if key not in ("reward", task.headline.name)},
        whole=whole,
        usage=merged(count for sample in ordered for count in sample.usage.items()),
        seconds=seconds,
    )


@dataclass(frozen=True)
class SetScores:
    """The score over the valid samples, and its bounds: with all other samples at worst and at best."""

    valid: SetScore
    worst: SetScore
    best: SetScore


def set_scores(task: Task[Any], by_row: Sequence[Sequence[SessionRecord]]) -> SetScores | None:
    """The scores of a set from its samples, row by row; None if the task's score is the mean of its rewards."""
    if task.set_headline is None:
        return None
    valid = score_of(task, by_row)
    if all(sample.draft.valid for samples in by_row for sample in samples):
        return SetScores(valid, valid, valid)
    return SetScores(valid, score_of(task, by_row, "worst"), score_of(task, by_row, "best"))


def metrics_beside(task: Task[Any], by_row: Sequence[Sequence[SessionRecord]]) -> Mapping[str, float]:
    """The metrics of a set that are not its score; empty if the task no longer accepts one of the records.

    The score needs no rows, so the report of an old run shows it without these metrics.
    """
    if type(task).set_metrics is Task.set_metrics or task.set_headline is not None:
        return {}  # without a look at the rows, because to validate them takes time
    try:
        return score_of(task, by_row).parts
    except ValidationError:
        return {}


def score_of(task: Task[Any], by_row: Sequence[Sequence[SessionRecord]], missing: Edge | None = None) -> SetScore:
    """The score over the rows with a valid sample; with `missing`, over all rows, with invalid samples as that."""
    kept = [[sample for sample in samples if sample.draft.valid or missing] for samples in by_row]
    rows = [samples for samples in kept if samples]
    outcomes = [
        Outcome(
            place,
            1 / len(samples),
            task.row_type.model_validate(sample.record),
            task.saved(sample.draft) if sample.draft.valid else missing or "worst",
        )
        for place, samples in enumerate(rows)
        for sample in samples
    ]
    return SetScore.from_metrics(len(rows), task.set_metrics(len(rows), outcomes) if rows else ())


@dataclass(frozen=True)
class RowResult:
    """The samples of one row.

    Attributes:
        number: the row's position in the set's file; `row` is the record's own index.
        rewards: of the valid samples.
        invalid: number of samples without a verdict.
    """

    number: int
    row: int
    rewards: tuple[float, ...]
    invalid: int

    @classmethod
    def from_samples(cls, samples: Sequence[SessionRecord]) -> RowResult:
        """From the samples of one row, at least one."""
        rewards = tuple(sample.draft.reward for sample in samples if sample.draft.reward is not None)
        return cls(samples[0].number, samples[0].row, rewards, len(samples) - len(rewards))

    @property
    def mean(self) -> float | None:
        """The mean reward of the valid samples; None if there are none."""
        return statistics.fmean(self.rewards) if self.rewards else None

    def filled(self, value: float) -> float:
        """The mean if every invalid sample had scored `value`."""
        return statistics.fmean([*self.rewards, *[value] * self.invalid])

    def best_at(self, k: int, metric: Metric) -> float:
        """The expected best of k samples: the mean over all ways to choose k of the valid ones, without repeats.

        For rewards of 0 and 1 this is pass@k, in its unbiased form (Chen et al., 2021).
        """
        ranked = sorted(self.rewards, reverse=not metric.higher_is_better)  # best last
        return sum(comb(i, k - 1) * reward for i, reward in enumerate(ranked)) / comb(len(ranked), k)
