"""The ablation of objectives by sub-metric (the paper's figure 4): where each name ends, with an interval over seeds.

All runs are compared at one step, the last that each of them has reached. A seed's number is its mean over the WINDOW
steps up to there, or over the last half of fewer. Of a metric that all runs validate, it is the last validation.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from soul.figures.figure import Dot, DotPanel, Figure, Key, mean_with_band
from soul.figures.training import better, is_reward
from soul.figures.training_run import DRAFT, Runs, TrainingRun, file_name, tasks_of

WINDOW = 10


def ablations(runs: Runs) -> list[Figure]:
    """A figure for each task that at least two names train on."""
    return [figure for task in tasks_of(runs) if task and (figure := _ablation(runs, task))]


@dataclass(frozen=True)
class _Ends:
    """The runs that train on a task, and the step at which they are compared."""

    runs: Runs
    task: str
    step: int

    def panel(self, title: str, drafts: Key, validated: str) -> DotPanel | None:
        """The dots of a metric; None if fewer than two names have it."""
        everywhere = all(self._up_to(run, validated) for seeds in self.runs.values() for run in seeds)
        dots = []
        for name, seeds in self.runs.items():
            values = [(run, self._up_to(run, validated if everywhere else drafts(run))) for run in seeds]
            if all(of_run for _, of_run in values):
                dots.append(
                    _dot(name, [(run, of_run[-1] if everywhere else _at_end(of_run)) for run, of_run in values])
                )
        metric = validated if everywhere else drafts(next(iter(self.runs.values()))[0])
        where = "validation" if everywhere else "drafts"
        return DotPanel(f"{title}, {where}", metric, dots) if len(dots) > 1 else None

    def _up_to(self, run: TrainingRun, key: str) -> list[float]:
        """The values of the training steps up to the end; step 0 is the model before training."""
        return [value for step, value in run.values(key).items() if 0 < step <= self.step]


def _ablation(runs: Runs, task: str) -> Figure | None:
    trained = {name: seeds for name, seeds in runs.items() if all(task in run.tasks for run in seeds)}
    if len(trained) < 2:
        return None
    prefix = f"ditto/secondary/{task}/"
    everything = [run for seeds in trained.values() for run in seeds]
    ends = _Ends(trained, task, min(max(run.steps) for run in everything))
    named = {key.removeprefix(prefix) for run in everything for key in run.keys if key.startswith(prefix)}
    metrics = sorted(metric for metric in named if not is_reward(task, metric))
    panels = [ends.panel("reward", lambda run: run.key(task, DRAFT), f"val-core/{task}/reward/mean@1")]
    for metric in metrics:
        secondary, validated = f"{prefix}{metric}", f"val/{task}/{metric}"
        panels.append(ends.panel(f"{metric}{better(task, metric)}", lambda run, key=secondary: key, validated))  # type: ignore[misc]
    caption = f"{task}: the names at step {ends.step}, by metric: dots with 95 % over seeds; small dots are seeds."
    return Figure(f"ablation-{file_name(task)}", caption, [panel for panel in panels if panel])


def _at_end(values: Sequence[float]) -> float:
    """The mean of the last WINDOW values, or of the last half of fewer than twice as many."""
    return statistics.fmean(values[-min(WINDOW, -(-len(values) // 2)) :])


def _dot(name: str, seeds: Sequence[tuple[TrainingRun, float]]) -> Dot:
    mean, low, high = mean_with_band([value for _, value in seeds])
    return Dot(name, mean, low, high, tuple(seeds))
