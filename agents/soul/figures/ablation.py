"""The ablation of objectives by sub-metric (the paper's figure 4): where each name ends, with an interval over seeds.

A seed's number is its mean over the last WINDOW steps, or over the last half of a shorter run. Of a metric that all runs
validate, it is the last validation instead.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from soul.figures.curves import mean_with_band
from soul.figures.figure import Dot, DotPanel, Figure
from soul.figures.training import better, file_name
from soul.figures.training_run import DRAFT, Runs, TrainingRun, tasks_of

WINDOW = 10
_FEWEST = 2  # names that are worth a comparison


def ablations(runs: Runs) -> list[Figure]:
    """A figure for each task."""
    return [figure for task in tasks_of(runs) if task and (figure := _ablation(runs, task)).panels]


def at_end(values: Sequence[float]) -> float:
    """The mean of the last WINDOW values, or of the last half of fewer than twice as many."""
    return statistics.fmean(values[-min(WINDOW, -(-len(values) // 2)) :])


def _ablation(runs: Runs, task: str) -> Figure:
    prefix = f"ditto/secondary/{task}/"
    everything = [run for seeds in runs.values() for run in seeds]
    metrics = sorted({key.removeprefix(prefix) for run in everything for key in run.keys if key.startswith(prefix)})
    panels = [_reward(runs, task), *(_metric(runs, task, metric) for metric in metrics)]
    shown = [panel for panel in panels if len(panel.dots) >= _FEWEST]
    caption = f"{task}: where each name ends, by metric: dots with 95 % over seeds; small dots are seeds."
    return Figure(f"ablation-{file_name(task)}", caption, shown)


def _reward(runs: Runs, task: str) -> DotPanel:
    validated = f"val-core/{task}/reward/mean@1"
    if _all_have(runs, validated):
        return _last(runs, "reward ↑, validation", validated)
    dots = [_dot(name, [(run, run.key(task, DRAFT)) for run in seeds]) for name, seeds in runs.items()]
    return DotPanel("reward, drafts", f"ditto/{DRAFT}", [dot for dot in dots if dot])


def _metric(runs: Runs, task: str, metric: str) -> DotPanel:
    title, validated = f"{metric}{better(task, metric)}", f"val/{task}/{metric}"
    if _all_have(runs, validated):
        return _last(runs, f"{title}, validation", validated)
    key = f"ditto/secondary/{task}/{metric}"
    dots = [_dot(name, [(run, key) for run in seeds]) for name, seeds in runs.items()]
    return DotPanel(f"{title}, drafts", key, [dot for dot in dots if dot])


def _last(runs: Runs, title: str, key: str) -> DotPanel:
    dots = [
        _mean(name, [(run, list(run.values(key).values())[-1]) for run in seeds]) for name, seeds in runs.items()
    ]
    return DotPanel(title, key, dots)


def _all_have(runs: Runs, key: str) -> bool:
    return all(key in run.keys for seeds in runs.values() for run in seeds)


def _dot(name: str, seeds: Sequence[tuple[TrainingRun, str]]) -> Dot | None:
    """The dot of a name; None if a seed lacks the metric."""
    values = [(run, list(run.values(key).values())) for run, key in seeds]
    return _mean(name, [(run, at_end(of_run)) for run, of_run in values]) if all(v for _, v in values) else None


def _mean(name: str, seeds: Sequence[tuple[TrainingRun, float]]) -> Dot:
    mean, low, high = mean_with_band([value for _, value in seeds])
    return Dot(name, mean, low, high, tuple(seeds))
