"""The numbers of a comparison: one run against a baseline, set by set, and the macro average of the differences.

Rows are compared as pairs: a row's difficulty affects both scores and cancels out of their difference, so the interval
is narrower than two separate intervals suggest. The
macro average is over sets, never over pooled rows, and only over sets whose scores are comparable. If a task scores a
set as a whole (`Task.set_headline`), both runs' scores are computed from the same drawn rows; wins and losses still
count the rewards of single rows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from soul import tasks
from soul.compare.pairs import Pair, Paired, pair_up
from soul.compare.protocol import Deviation, deviations
from soul.errors import SoulError
from soul.evaluate.numbers.set_result import score_of
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.tables.run_table import ordered
from soul.metrics.intervals import Estimate, Interval, difference_of, pooled, score_of_rows
from soul.metrics.set_metrics import SetScore
from soul.task_types import Metric

_EQUAL = 1e-12  # two means of equal rewards may differ by rounding


class NothingToCompare(SoulError):
    """The runs share no set, or no row that has a score in both."""


@dataclass(frozen=True)
class SetComparison:
    """One set in both runs.

    Attributes:
        paired: the rows; all numbers are over its pairs.
        deviations: how the runs differ besides the model under test.
        joint: each run's score of the paired rows as a set; None if the score is the mean of the rewards.
    """

    name: str
    headline: Metric
    paired: Paired
    deviations: Sequence[Deviation] = ()
    joint: tuple[SetScore, SetScore] | None = None

    @property
    def rows(self) -> int:
        return len(self.paired.pairs)

    @property
    def comparable(self) -> bool:
        """Check whether the same judge scored both runs by the same prompts."""
        return not any(deviation.matters for deviation in self.deviations)

    @property
    def means(self) -> tuple[float, float] | None:
        """Scores of the baseline and of the other run, over the paired rows."""
        if not self.rows:
            return None
        if self.joint is not None:
            base_mean, other_mean = (score.mean for score in self.joint)
            return None if base_mean is None or other_mean is None else (base_mean, other_mean)
        base, other = zip(*(pair.scores for pair in self.paired.pairs), strict=True)
        return statistics.fmean(base), statistics.fmean(other)

    @cached_property
    def difference(self) -> float | None:
        """The other run's score minus the baseline's, over the paired rows."""
        if self.joint is not None:
            return None if self.means is None else self.means[1] - self.means[0]
        return statistics.fmean(pair.difference for pair in self.paired.pairs) if self.rows else None

    @cached_property
    def estimate(self) -> Estimate | None:
        """The difference with its spread over pairs; None without a difference."""
        if self.difference is None:
            return None
        range_ = self.headline.low, self.headline.high
        if self.joint is None:
            return difference_of([pair.scores for pair in self.paired.pairs], range_)
        base, other = self.joint
        width = range_[1] - range_[0]

        def difference(weights: Any) -> Any:
            return other.values(weights) - base.values(weights)

        return score_of_rows(difference, self.difference, self.rows, self.name, (-width, width))

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the difference, over pairs (`soul.metrics.intervals`)."""
        return self.estimate.interval if self.estimate else None

    def gain(self, pair: Pair) -> float:
        """How much better the other run is in a row; negative if it is worse."""
        gain = pair.difference if self.headline.higher_is_better else -pair.difference
        return 0.0 if math.isclose(gain, 0, abs_tol=_EQUAL) else gain

    @cached_property
    def tally(self) -> tuple[int, int, int]:
        """Number of rows that the other run wins, ties and loses."""
        gains = [self.gain(pair) for pair in self.paired.pairs]
        wins, losses = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
        return wins, len(gains) - wins - losses, losses

    @property
    def p_value(self) -> float | None:
        """p-value of the exact two-sided sign test: the chance of a split this uneven if both are equally likely.

        It compares the numbers of wins and losses, not their sizes. None if every row is a tie.
        """
        from scipy.stats import binomtest  # here: SciPy takes a second to import

        wins, _, losses = self.tally
        return float(binomtest(wins, wins + losses).pvalue) if wins + losses else None


@dataclass(frozen=True)
class Macro:
    """The mean of the sets' differences.

    Attributes:
        sets: number of averaged sets, which are comparable and have a pair; `of`: number of sets in both runs.
        interval: 95 %, from each set's own spread over its pairs; None if one of the sets has none.
    """

    difference: float | None
    interval: Interval | None
    sets: int
    of: int


@dataclass(frozen=True)
class Comparison:
    """One run against the baseline.

    Attributes:
        labels: names of the two runs: their models, or their folders if the models are the same.
        sets: in the order of the model card.
        only_base, only_other: sets that only one of the runs has.
    """

    base: EvaluationRun
    other: EvaluationRun
    labels: tuple[str, str]
    sets: Mapping[str, SetComparison] = field(default_factory=dict)
    only_base: tuple[str, ...] = ()
    only_other: tuple[str, ...] = ()

    @property
    def macro(self) -> Macro:
        """The average over all sets."""
        return self.average(list(self.sets))

    def average(self, names: Sequence[str]) -> Macro:
        """The average over those of these sets whose scores are comparable."""
        named = [self.sets[name] for name in names if name in self.sets]
        parts = [one.estimate for one in named if one.comparable and one.estimate is not None]
        known = bool(parts) and all(part.interval for part in parts)
        return Macro(
            difference=statistics.fmean(part.mean for part in parts) if parts else None,
            interval=pooled(parts).interval if known else None,
            sets=len(parts),
            of=len(names),
        )


def compare(base: EvaluationRun, other: EvaluationRun, labels: tuple[str, str]) -> Comparison:
    """Compare one run with the baseline.

    Raises:
        NothingToCompare: the runs share no set, or no row with a score in both.
    """
    common = [name for name in base.sets if name in other.sets]
    if not common:
        raise NothingToCompare(
            f"{base.folder} and {other.folder} have no set in common: {', '.join(base.sets)}; and "
            f"{', '.join(other.sets)}. Evaluate both on the same sets (TASKS=...)."
        )
    sets = {name: _compare_set(base, other, name) for name in ordered(common)}
    if not any(one.rows for one in sets.values()):
        raise NothingToCompare(
            f"{base.folder} and {other.folder} share no row that has a score in both. In {', '.join(common)}: "
            f"{_unpaired(list(sets.values()))}. Evaluate both with the same files, LIMIT and --seed."
        )
    return Comparison(
        base,
        other,
        labels,
        sets,
        tuple(name for name in base.sets if name not in common),
        tuple(name for name in other.sets if name not in common),
    )


def _compare_set(base: EvaluationRun, other: EvaluationRun, name: str) -> SetComparison:
    left, right = base.by_set[name], other.by_set[name]
    if not left or not right:  # requested, but no sample is finished yet
        return SetComparison(name, Metric("unknown"), pair_up(left, right))
    paired = pair_up(left, right)
    task = tasks.load(left[0].task)
    differences = deviations(base, other, left, right)
    if task.set_headline is None:
        return SetComparison(name, task.headline, paired, differences)
    joint = score_of(task, [pair.base for pair in paired.pairs]), score_of(task, [pair.other for pair in paired.pairs])
    both = joint[0].parts.keys() & joint[1].parts.keys()
    if alone := joint[0].parts.keys() ^ joint[1].parts.keys():
        differences.append(
            Deviation(f"{', '.join(sorted(alone))}: defined in only one of the runs, so left out of both scores", False)
        )
    return SetComparison(name, task.set_headline, paired, differences, (joint[0].only(both), joint[1].only(both)))


def _unpaired(sets: Sequence[SetComparison]) -> str:
    counts = {
        "rows only in the first": sum(one.paired.only_base for one in sets),
        "rows only in the second": sum(one.paired.only_other for one in sets),
        "rows whose records differ": sum(one.paired.changed for one in sets),
        "rows without a verdict in one of them": sum(one.paired.unscored for one in sets),
    }
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "no row is finished"


class SameRun(SoulError):
    """A run would be compared with itself."""


def distinct(folders: Sequence[Path]) -> Sequence[Path]:
    """Return the folders, after a check that no two are the same.

    Raises:
        SameRun: two of them are the same folder.
    """
    places = [folder.resolve() for folder in folders]
    for folder, place in zip(folders, places, strict=True):
        if places.count(place) > 1:
            raise SameRun(f"{folder} is given twice. Pass the folders of different runs.")
    return folders


def labels(runs: Sequence[EvaluationRun]) -> list[str]:
    """A label for each run: the model's name; if two are equal, the folder's name; if these are too, the path."""
    paths = [run.folder.resolve() for run in runs]
    for names in ([run.name for run in runs], [path.name for path in paths]):
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]
