"""Curves over the training steps: the mean of a name's seeds, with a 95 % band.

The band of several seeds is a percentile bootstrap over the seeds (`soul.evaluate.numbers.bootstrap`); with two seeds,
it is their range. The band of a single run is known only where a metric has a standard error of its own. A mean is
drawn for the steps that every seed has, so that all its points average over the same seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from soul.evaluate.numbers.bootstrap import percentile_interval, resampled_means
from soul.figures.training_run import Runs, TrainingRun

# Metric -> its standard error over prompts.
ERRORS = {"ditto/reward_draft": "ditto/reward_draft_error"}
_NORMAL_95 = 1.96
Key = Callable[[TrainingRun], str]  # the full name of a metric, which may differ between runs


@dataclass(frozen=True)
class Point:
    """A step of a curve; without a band, `low` and `high` are None."""

    step: int
    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Curve:
    """One metric of one name.

    Attributes:
        points: mean and band, for the steps that every seed has.
        seeds: run -> step -> value.
        dashed: how to draw it where a panel has two curves of one name.
    """

    name: str
    metric: str
    points: tuple[Point, ...]
    seeds: tuple[tuple[TrainingRun, Mapping[int, float]], ...]
    dashed: bool = False


def curve(name: str, runs: Sequence[TrainingRun], key: Key, *, dashed: bool = False) -> Curve | None:
    """The curve of a metric over these seeds; None if one of them has no value."""
    seeds = tuple((run, run.values(key(run))) for run in runs)
    common = sorted(set.intersection(*(set(values) for _, values in seeds)))
    if not common:
        return None
    metric = key(runs[0])
    points = tuple(_point(step, metric, [(run, values[step]) for run, values in seeds]) for step in common)
    return Curve(name, metric, points, seeds, dashed)


def curves(runs: Runs, key: Key, *, dashed: bool = False) -> list[Curve]:
    """The curves of all names that have the metric."""
    drawn = (curve(name, seeds, key, dashed=dashed) for name, seeds in runs.items())
    return [one for one in drawn if one is not None]


def mean_with_band(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """The mean over seeds with its 95 % interval; a single seed has none."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, None, None
    # One name for all curves: every step draws the same seeds, so that the band is one of whole curves.
    return mean, *percentile_interval(resampled_means(values, "seeds"))


def _point(step: int, metric: str, at: Sequence[tuple[TrainingRun, float]]) -> Point:
    (run, value), *others = at
    if not others and (error := run.steps[step].get(ERRORS.get(metric, ""))) is not None:
        return Point(step, value, value - _NORMAL_95 * error, value + _NORMAL_95 * error)
    return Point(step, *mean_with_band([value for _, value in at]))
