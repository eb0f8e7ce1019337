"""The content of a figure, before it is drawn: panels of curves or of dots, and which names lack the data.

A curve is the mean of a name's seeds, with a 95 % band (`soul.metrics.intervals`). Three seeds or more have a band over
seeds. A single run has one only where its metric has a standard error over prompts. A mean is drawn for the steps that
every seed has, so that all its points average over the same seeds. `rows` is the figure's CSV, from the same objects
that are drawn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from soul import tasks
from soul.errors import UnknownTask
from soul.figures.training_run import Runs, TrainingRun
from soul.metrics.intervals import ANY, Interval, mean_of, t_quantile

HEAD = ("panel", "metric", "name", "run", "sha256", "step", "value", "low", "high")
# Metric -> its standard error over prompts.
ERRORS = {"ditto/reward_draft": "ditto/reward_draft_error"}
PROMPTS = "ditto/groups"  # of a step
FEWEST_SEEDS = 3
_REWARD = re.compile(r"ditto/(?:task/[^/]+/)?reward_|val-core/[^/]+/reward/")
Key = Callable[[TrainingRun], str]  # the full name of a metric, which may differ between runs


@dataclass(frozen=True)
class Alarm:
    """The steps in which a run raised an alarm (`alarm/<alarm>` in its metrics)."""

    alarm: str
    run: TrainingRun
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Panel:
    """Axes over the training steps.

    Attributes:
        zero: draw a line at 0.
        alarms: marked on the axis.
    """

    title: str
    curves: Sequence[Curve]
    zero: bool = False
    alarms: Sequence[Alarm] = ()


@dataclass(frozen=True)
class Dot:
    """A number of one name with its interval over seeds, and each seed's own number."""

    name: str
    mean: float
    low: float | None
    high: float | None
    seeds: tuple[tuple[TrainingRun, float], ...]


@dataclass(frozen=True)
class DotPanel:
    """Axes with a dot for each name."""

    title: str
    metric: str
    dots: Sequence[Dot]


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
    panels: Sequence[Panel | DotPanel]
    columns: int = 3
    missing: list[str] = field(default_factory=list)

    @property
    def runs(self) -> list[TrainingRun]:
        """The runs that it shows."""
        shown = [one for panel in self.panels for one in _shown(panel)]
        return list({run.folder: run for run in shown}.values())


def _shown(panel: Panel | DotPanel) -> list[TrainingRun]:
    parts: Sequence[Curve | Dot] = panel.curves if isinstance(panel, Panel) else panel.dots
    return [run for part in parts for run, _ in part.seeds]


def rows(figure: Figure) -> Iterator[tuple[Any, ...]]:
    """The lines of its CSV: every seed's values, then means with their bands, then alarms (value 1)."""
    for panel in figure.panels:
        yield from _dot_rows(panel) if isinstance(panel, DotPanel) else _curve_rows(panel)


def _dot_rows(panel: DotPanel) -> Iterator[tuple[Any, ...]]:
    for dot in panel.dots:
        start = (panel.title, panel.metric, dot.name)
        for run, value in dot.seeds:
            yield (*start, run.folder, run.sha256, "", value, "", "")
        yield (*start, f"mean of {len(dot.seeds)}", "", "", dot.mean, _cell(dot.low), _cell(dot.high))


def _curve_rows(panel: Panel) -> Iterator[tuple[Any, ...]]:
    for curve in panel.curves:
        start = (panel.title, curve.metric, curve.name)
        for run, values in curve.seeds:
            yield from ((*start, run.folder, run.sha256, step, value, "", "") for step, value in values.items())
        for at in curve.points:
            yield (*start, f"mean of {len(curve.seeds)}", "", at.step, at.mean, _cell(at.low), _cell(at.high))
    for alarm in panel.alarms:
        for step in alarm.steps:
            run = alarm.run
            yield (panel.title, f"alarm/{alarm.alarm}", run.name, run.folder, run.sha256, step, 1, "", "")


def _cell(value: float | None) -> float | str:
    return "" if value is None else value


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
    range_ = range_of(metric, runs)
    points = tuple(_point(step, metric, [(run, values[step]) for run, values in seeds], range_) for step in common)
    return Curve(name, metric, points, seeds, dashed)


def curves(runs: Runs, key: Key, *, dashed: bool = False) -> list[Curve]:
    """The curves of all names that have the metric."""
    drawn = (curve(name, seeds, key, dashed=dashed) for name, seeds in runs.items())
    return [one for one in drawn if one is not None]


def mean_with_band(values: Sequence[float], range_: Interval = ANY) -> tuple[float, float | None, float | None]:
    """The mean over seeds with its 95 % interval; None for each end with fewer than FEWEST_SEEDS."""
    found = mean_of(values, range_, fewest=FEWEST_SEEDS)
    return found.mean, *(found.interval or (None, None))


def range_of(metric: str, runs: Iterable[TrainingRun]) -> Interval:
    """The range of a reward, over the tasks of these runs; ANY for other metrics and unknown tasks."""
    if not _REWARD.match(metric):
        return ANY
    try:
        headlines = [tasks.load(task).headline for run in runs for task in run.tasks]
    except UnknownTask:
        return ANY
    return (min(one.low for one in headlines), max(one.high for one in headlines)) if headlines else ANY


def _point(step: int, metric: str, at: Sequence[tuple[TrainingRun, float]], range_: Interval) -> Point:
    (run, value), *others = at
    numbers = run.steps[step]
    if not others and (error := numbers.get(ERRORS.get(metric, ""))) and (prompts := int(numbers.get(PROMPTS, 0))) > 1:
        half = t_quantile(prompts - 1) * error
        return Point(step, value, max(range_[0], value - half), min(range_[1], value + half))
    return Point(step, *mean_with_band([value for _, value in at], range_))
