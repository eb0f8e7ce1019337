"""The numbers of one evaluation set, from its finished samples.

A failed sample is never a number and never forgotten: it is counted by cause, and the bounds say what the mean would be
had all failed samples been the worst or the best possible. Rows are averaged as rows: first a row's samples, then the
rows, so that the mean and its interval, which resamples rows, speak of the same thing. With one sample a row this is
the mean of the valid rewards. The order in which samples were finished changes nothing.

A task may score a set as a whole (`Task.set_headline`). Then mean, interval and bounds are those of that score, and the
rewards are still the scores of single episodes.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from soul import tasks
from soul.evaluate.numbers.bootstrap import percentile_interval, resampled_means, resampled_scores
from soul.evaluate.numbers.row_result import RowResult, ScoredSample
from soul.evaluate.numbers.set_score import SetScores, set_scores
from soul.judge.call.usage import Usage
from soul.judge.ledger import numbers
from soul.one_turn import Voting
from soul.task import Metric, Task

Interval = tuple[float, float]


@dataclass(frozen=True)
class SetResult:
    """The numbers of one set.

    Attributes:
        headline: the metric that `mean` is: the mean of the rewards, or the task's score of a set (`joint`).
        samples: all that are finished, valid or not.
        joint: the score of the set as a whole; None where it is the mean of the rewards.
        causes: invalid samples by cause.
        contentless: valid samples in which the policy said nothing; they score the headline's worst.
        metrics: the task's other set-level metrics, over all valid samples.
        best: k -> (mean best@k, rows with at least k valid samples: it rests on them); for several samples a row. Where
            rewards are 0 or 1 this is pass@k. Empty where the set is scored as a whole, because no sample of a row
            is the best one then.
        self_consistency: N -> (mean score of the majority's answer, rows with N valid samples), for several samples a
            row of a task whose answers can be counted.
        usage: by role.
        seconds: by stage, summed over samples that ran at the same time.
    """

    name: str
    task: str
    headline: Metric
    per_row: tuple[RowResult, ...] = ()
    joint: SetScores | None = None
    causes: Mapping[str, int] = field(default_factory=dict)
    contentless: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    usage: Mapping[str, Usage] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0

    @property
    def reward(self) -> Metric:
        """The metric of one sample's reward: the headline, unless the set is scored as a whole."""
        return self.headline if self.joint is None else tasks.load(self.task).headline

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
        """The most samples that a row has (N)."""
        return max((len(row.rewards) + row.invalid for row in self.per_row), default=0)

    @cached_property
    def mean(self) -> float | None:
        """The mean over rows of their valid samples' mean reward, or the set's score; None where nothing is valid."""
        if self.joint is not None:
            return self.joint.valid.mean
        means = [row.mean for row in self.per_row if row.mean is not None]
        return statistics.fmean(means) if means else None

    @cached_property
    def resampled(self) -> Any:
        """The bootstrap's means; None with fewer than two rows that have a valid sample."""
        if self.joint is not None:
            score = self.joint.valid
            known = score.rows > 1 and score.metrics
            return resampled_scores(score.values, score.rows, self.name, seed=self.seed) if known else None
        means = [row.mean for row in self.per_row if row.mean is not None]
        return resampled_means(means, self.name, seed=self.seed) if len(means) > 1 else None

    @property
    def interval(self) -> Interval | None:
        """The 95% bootstrap interval of the mean, over rows."""
        return None if self.resampled is None else percentile_interval(self.resampled)

    @cached_property
    def bounds(self) -> Interval | None:
        """The mean if every invalid sample were the worst, and the best, of the headline's range."""
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
        found = {}
        for k in sorted({*(2**i for i in range(most.bit_length())), most}) if most > 1 and self.joint is None else ():
            able = [row.best_at(k, self.headline) for row in self.per_row if len(row.rewards) >= k]
            if able:
                found[k] = (statistics.fmean(able), len(able))
        return found

    @property
    def self_consistency(self) -> dict[int, tuple[float, int]]:
        n = self.per_row_samples
        able = [row for row in self.per_row if row.votes is not None and len(row.rewards) == n]
        return {n: (statistics.fmean(row.majority(self.headline) for row in able), len(able))} if n > 1 and able else {}

    @property
    def policy(self) -> Usage:
        """What the model under test took."""
        return total(count for role, count in self.usage.items() if role == "policy")

    @property
    def judges(self) -> Usage:
        """What all others took: judge, partner, environment."""
        return total(count for role, count in self.usage.items() if role != "policy")

    def to_json(self) -> dict[str, Any]:
        """What results.json says of the set, in the metric's own range."""
        metric = self.headline
        value: dict[str, Any] = {
            "task": self.task,
            "metric": {"name": metric.name, "low": metric.low, "high": metric.high, "source": metric.source},
            **({} if self.joint is None else {"mean_of": dict(self.joint.valid.parts)}),
            "mean": self.mean,
            "interval": self.interval,
            "bounds": self.bounds,
            "samples": self.samples,
            "rows": self.rows,
            "invalid": self.invalid,
            "causes": dict(self.causes),
            "contentless": self.contentless,
            "metrics": dict(self.metrics),
            "usage": {"policy": numbers(self.policy), "judges": numbers(self.judges)},
            "seconds": dict(self.seconds),
        }
        if self.per_row_samples > 1:
            several = {"best": self.best, "self_consistency": self.self_consistency}
            for name, found in several.items():
                value[name] = {str(k): {"mean": mean, "rows": rows} for k, (mean, rows) in found.items()}
            value["per_row"] = [
                {**vars(row), "mean": row.mean, "best": row.best_at(len(row.rewards), metric) if row.rewards else None}
                for row in self.per_row
            ]
        return value


def total(counts: Iterable[Usage]) -> Usage:
    """The sum of several counts."""
    found = Usage()
    for count in counts:
        found.merge(count)
    return found


def set_result(name: str, task_name: str, task: Task[Any], samples: Sequence[ScoredSample], seed: int = 0) -> SetResult:
    """The numbers of one set from its samples, in any order."""
    by_row: dict[int, list[ScoredSample]] = {}
    usage: dict[str, Usage] = {}
    seconds: dict[str, float] = {}
    ordered = sorted(samples, key=lambda sample: (sample.number, sample.sample))
    for sample in ordered:
        by_row.setdefault(sample.number, []).append(sample)
        for role, count in sample.usage.items():
            usage.setdefault(role, Usage()).merge(count)
        for stage, spent in sample.seconds.items():
            seconds[stage] = seconds.get(stage, 0.0) + spent
    metrics = task.summarize([task.saved(sample.draft) for sample in ordered if sample.verdict])
    joint = set_scores(task, list(by_row.values()))
    if joint is not None:  # the score counts rows, `summarize` counts samples
        metrics |= joint.valid.parts
    return SetResult(
        name=name,
        task=task_name,
        headline=task.set_headline or task.headline,
        joint=joint,
        per_row=tuple(RowResult.from_samples(of_row, isinstance(task, Voting)) for of_row in by_row.values()),
        causes=dict(sorted(Counter(sample.cause for sample in ordered if sample.cause).items())),
        contentless=sum(sample.contentless for sample in ordered),
        # The headline is the mean; a second value of it, over samples and not over rows, would only confuse.
        metrics={key: value for key, value in metrics.items() if key not in ("reward", task.headline.name)},
        usage=usage,
        seconds=seconds,
        seed=seed,
    )
