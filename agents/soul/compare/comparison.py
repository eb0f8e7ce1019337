"""The numbers of a comparison: one run against a baseline, set by set, and the macro average of the differences.

Rows are resampled as pairs: both scores of a row together, which is the bootstrap of the rows' differences. What makes
a row hard is in both scores and falls out, so the interval is narrower than two intervals side by side suggest. Sets
are averaged as sets, never pooled, and only those whose scores are comparable. If a task scores a set as a whole
(`Task.set_headline`), both runs' scores are computed from the same drawn rows. Wins and losses still count the rewards
of single rows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import binomtest

from soul import tasks
from soul.compare.pairs import Pair, Paired, pair_up
from soul.compare.protocol import Deviation, deviations
from soul.errors import SoulError
from soul.evaluate.numbers.bootstrap import percentile_interval, resampled_means, resampled_scores
from soul.evaluate.numbers.row_result import ScoredSample
from soul.evaluate.numbers.set_result import Interval
from soul.evaluate.numbers.set_score import score_of
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.tables.table import ordered
from soul.metrics.set_metrics import SetScore
from soul.record import SessionRecord
from soul.task import Metric, Task

_EQUAL = 1e-12  # means of equal rewards may differ by less


class NothingToCompare(SoulError):
    """The runs share no set, or no row that both have a score for."""


@dataclass(frozen=True)
class SetComparison:
    """One set in both runs.

    Attributes:
        paired: the rows; all numbers are over its pairs.
        deviations: in what the runs differ besides the model under test.
        joint: each run's score of the paired rows as a set; None where the score is the mean of the rewards.
    """

    name: str
    headline: Metric
    paired: Paired
    deviations: Sequence[Deviation] = ()
    seed: int = 0
    joint: tuple[SetScore, SetScore] | None = None

    @property
    def rows(self) -> int:
        return len(self.paired.pairs)

    @property
    def comparable(self) -> bool:
        """Whether the same judge scored both runs by the same prompts."""
        return not any(deviation.matters for deviation in self.deviations)

    @property
    def means(self) -> tuple[float, float] | None:
        """Of the baseline and of the other run, over the paired rows."""
        if not self.rows:
            return None
        if self.joint is not None:
            base_mean, other_mean = (score.mean for score in self.joint)
            return None if base_mean is None or other_mean is None else (base_mean, other_mean)
        base, other = zip(*(pair.scores for pair in self.paired.pairs), strict=True)
        return statistics.fmean(base), statistics.fmean(other)

    @cached_property
    def difference(self) -> float | None:
        """The other run's score less the baseline's, over the paired rows."""
        if self.joint is not None:
            return None if self.means is None else self.means[1] - self.means[0]
        return statistics.fmean(pair.difference for pair in self.paired.pairs) if self.rows else None

    @cached_property
    def resampled(self) -> Any:
        """The bootstrap's differences; None with fewer than two pairs."""
        if self.rows < 2 or self.difference is None:
            return None
        if self.joint is not None:
            base, other = self.joint
            return resampled_scores(
                lambda weights: other.values(weights) - base.values(weights), self.rows, self.name, seed=self.seed
            )
        return resampled_means([pair.difference for pair in self.paired.pairs], self.name, seed=self.seed)

    @property
    def interval(self) -> Interval | None:
        """The 95% bootstrap interval of the difference."""
        return None if self.resampled is None else percentile_interval(self.resampled)

    def gain(self, pair: Pair) -> float:
        """How much better the other run is in a row: 0 where they are equal."""
        gain = pair.difference if self.headline.higher_is_better else -pair.difference
        return 0.0 if math.isclose(gain, 0, abs_tol=_EQUAL) else gain

    @cached_property
    def tally(self) -> tuple[int, int, int]:
        """In how many rows the other run wins, ties and loses."""
        gains = [self.gain(pair) for pair in self.paired.pairs]
        wins, losses = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
        return wins, len(gains) - wins - losses, losses

    @property
    def p_value(self) -> float | None:
        """Of the exact two-sided sign test: were wins and losses equally likely, how often they would be so uneven.

        It asks who wins more rows, not by how much. None where every row is a tie.
        """
        wins, _, losses = self.tally
        return float(binomtest(wins, wins + losses).pvalue) if wins + losses else None

    def changed_most(self, count: int) -> tuple[list[Pair], list[Pair]]:
        """The rows that the other run gained most in, and those that it lost most in; at most `count` each."""
        by_gain = sorted(self.paired.pairs, key=lambda pair: (-self.gain(pair), pair.number))
        by_loss = sorted(self.paired.pairs, key=lambda pair: (self.gain(pair), pair.number))
        return (
            [pair for pair in by_gain if self.gain(pair) > 0][:count],
            [pair for pair in by_loss if self.gain(pair) < 0][:count],
        )


@dataclass(frozen=True)
class Macro:
    """The mean of the sets' differences.

    Attributes:
        sets: how many sets are in it: comparable ones with a pair. `of`: how many both runs have.
        interval: 95%, each set's rows resampled on their own; None where a set in it has no interval.
    """

    difference: float | None
    interval: Interval | None
    sets: int
    of: int


@dataclass(frozen=True)
class Comparison:
    """One run against the baseline.

    Attributes:
        labels: what the two are called: their models, or their folders where that would be the same.
        sets: in the card's order.
        only_base, only_other: sets that one of the runs has alone.
    """

    base: EvaluationRun
    other: EvaluationRun
    labels: tuple[str, str]
    sets: Mapping[str, SetComparison] = field(default_factory=dict)
    only_base: tuple[str, ...] = ()
    only_other: tuple[str, ...] = ()

    @property
    def macro(self) -> Macro:
        """Over the sets whose scores are comparable."""
        chosen = [found for found in self.sets.values() if found.comparable and found.difference is not None]
        drawn = [found.resampled for found in chosen]
        known = bool(drawn) and all(draw is not None for draw in drawn)
        return Macro(
            difference=statistics.fmean(float(found.difference or 0.0) for found in chosen) if chosen else None,
            interval=percentile_interval(np.mean(drawn, axis=0)) if known else None,
            sets=len(chosen),
            of=len(self.sets),
        )


def compare(base: EvaluationRun, other: EvaluationRun, labels: tuple[str, str], seed: int = 0) -> Comparison:
    """Compare one run with the baseline.

    Raises:
        NothingToCompare: they share no set, or no row with a score in both.
    """
    common = [name for name in base.sets if name in other.sets]
    if not common:
        raise NothingToCompare(
            f"{base.folder} and {other.folder} have no set in common: {', '.join(base.sets)}; and "
            f"{', '.join(other.sets)}. Evaluate both on the same sets (TASKS=...)."
        )
    sets = {name: _of_set(base, other, name, seed) for name in ordered(common)}
    if not any(found.rows for found in sets.values()):
        raise NothingToCompare(
            f"{base.folder} and {other.folder} share no row that both have a score for. Of {', '.join(common)}: "
            f"{_why(list(sets.values()))}. Evaluate both with the same files, LIMIT and --seed."
        )
    return Comparison(
        base,
        other,
        labels,
        sets,
        tuple(name for name in base.sets if name not in common),
        tuple(name for name in other.sets if name not in common),
    )


def _of_set(base: EvaluationRun, other: EvaluationRun, name: str, seed: int) -> SetComparison:
    left, right = ([sample for sample in run.samples if sample.set == name] for run in (base, other))
    if not left or not right:  # asked for, and nothing has come yet
        return SetComparison(name, Metric("unknown"), pair_up(left, right), (), seed)
    paired = pair_up(left, right)
    task = tasks.load(left[0].task)
    differences = deviations(base, other, left, right)
    if task.set_headline is None:
        return SetComparison(name, task.headline, paired, differences, seed)
    joint = _joint(task, [pair.base for pair in paired.pairs]), _joint(task, [pair.other for pair in paired.pairs])
    both = joint[0].parts.keys() & joint[1].parts.keys()
    if alone := (joint[0].parts.keys() | joint[1].parts.keys()) - both:
        differences.append(
            Deviation(f"{', '.join(sorted(alone))}: defined in only one of the runs, so in neither score", False)
        )
    return SetComparison(name, task.set_headline, paired, differences, seed, (joint[0].only(both), joint[1].only(both)))


def _joint(task: Task[Any], rows: Sequence[Sequence[SessionRecord]]) -> SetScore:
    """The score of one run's rows as a set."""
    return score_of(task, [[ScoredSample.from_record(sample) for sample in samples] for samples in rows])


def _why(sets: Sequence[SetComparison]) -> str:
    counts = {
        "rows only in the first": sum(found.paired.only_base for found in sets),
        "rows only in the second": sum(found.paired.only_other for found in sets),
        "rows whose records differ": sum(found.paired.changed for found in sets),
        "rows without a verdict in one of them": sum(found.paired.unscored for found in sets),
    }
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "no row is finished"
