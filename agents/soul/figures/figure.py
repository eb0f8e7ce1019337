"""The content of a figure, before it is drawn: panels of curves or of dots, and which names lack the data.

A curve is the mean of a name's seeds, with a 95 % band (`soul.metrics.intervals`). Three seeds or more have a band over
seeds. A single run has one only where its metric has a standard error over prompts. A mean is drawn for the steps that
every seed has, so that all its points average over the same seeds. `rows` is the figure's CSV, from the same objects
that are drawn.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from soul.compare.trainings import metric_of
from soul.figures.training_run import Runs, TrainingRun
from soul.metrics.intervals import ANY, Interval, mean_of, t_quantile

HEAD = ("panel", "metric", "name", "run", "sha256", "step", "value", "low", "high")
ERRORS = {"ditto/reward_draft": "ditto/reward_draft_error"}  # metric -> its standard error over prompts
PROMPTS = "ditto/groups"  # the number of prompts in a step
FEWEST_SEEDS = 3
_REWARD = re.compile(r"ditto/(?:task/[^/]+/)?reward_|val-core/[^/]+/reward/")
Key = Callable[[TrainingRun], str]  # the full name of a metric, which may differ between runs


class Point(NamedTuple):
    """A mean at a step; without a band, `low` and `high` are None."""

    step: int
    mean: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Curve:
    """One metric of one name.

    Attributes:
        points: mean and band, for the steps that every seed has; dots have one point, at the last step.
        seeds: run -> step -> value.
        dashed: how to draw it where a panel has two curves of one name.
        range: of a reward; ANY for other metrics.
    """

    name: str
    metric: str
    points: tuple[Point, ...]
    seeds: tuple[tuple[TrainingRun, Mapping[int, float]], ...]
    dashed: bool = False
    range: Interval = ANY


@dataclass(frozen=True)
class Panel:
    """Axes over the training steps, or with a dot for each name.

    Attributes:
        zero: draw a line at 0.
        dots: draw each curve's only point.
    """

    title: str
    curves: Sequence[Curve]
    zero: bool = False
    dots: bool = False

    @property
    def range(self) -> Interval:
        """The range of all its metrics, which its axis shows whole."""
        return min(curve.range[0] for curve in self.curves), max(curve.range[1] for curve in self.curves)


@dataclass(frozen=True)
class Figure:
    """One figure.

    Attributes:
        file: name of its files, without their ending.
        caption: a sentence for the index.
        missing: a sentence for each thing that could not be drawn.
    """

    file: str
    caption: str
    panels: Sequence[Panel]
    columns: int = 3
    missing: list[str] = field(default_factory=list)

    @property
    def runs(self) -> list[TrainingRun]:
        """The runs that it shows."""
        shown = [run for panel in self.panels for curve in panel.curves for run, _ in curve.seeds]
        return list({run.folder: run for run in shown}.values())


def rows(figure: Figure) -> Iterator[tuple[Any, ...]]:
    """The lines of its CSV: every seed's values, then means with their bands."""
    for panel in figure.panels:
        for curve in panel.curves:
            start = (panel.title, curve.metric, curve.name)
            for run, values in curve.seeds:
                yield from ((*start, run.folder, run.sha256, step, value, "", "") for step, value in values.items())
            for at in curve.points:
                ends = ("", "") if at.low is None else (at.low, at.high)
                yield (*start, f"mean of {len(curve.seeds)}", "", at.step, at.mean, *ends)


def curves(runs: Runs, key: Key, *, dashed: bool = False) -> list[Curve]:
    """The curves of a metric, for all names of which every seed has it."""
    drawn = []
    for name, runs_of_name in runs.items():
        seeds = tuple((run, run.values(key(run))) for run in runs_of_name)
        common = sorted(set.intersection(*(set(values) for _, values in seeds)))
        if common:
            metric = key(runs_of_name[0])
            range_ = range_of(metric, runs_of_name)
            points = (point(step, metric, [(run, values[step]) for run, values in seeds], range_) for step in common)
            drawn.append(Curve(name, metric, tuple(points), seeds, dashed, range_))
    return drawn


def point(step: int, metric: str, at: Sequence[tuple[TrainingRun, float]], range_: Interval = ANY) -> Point:
    """The mean over seeds with its band."""
    run, value = at[0]
    numbers = run.steps.get(step, {})
    error, prompts = numbers.get(ERRORS.get(metric, "")), int(numbers.get(PROMPTS, 0))
    if len(at) == 1 and error is not None and prompts > 1:
        half = t_quantile(prompts - 1) * error
        return Point(step, value, max(range_[0], value - half), min(range_[1], value + half))
    found = mean_of([value for _, value in at], range_, fewest=FEWEST_SEEDS)
    return Point(step, found.mean, *(found.interval or ()))


def range_of(metric: str, runs: Iterable[TrainingRun]) -> Interval:
    """The range of a reward, over the tasks of these runs; ANY for other metrics and unknown tasks."""
    found = [metric_of(task) for run in runs for task in run.tasks] if _REWARD.match(metric) else []
    return (min(one.low for one in found), max(one.high for one in found)) if found else ANY
