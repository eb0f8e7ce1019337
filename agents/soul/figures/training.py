"""The figures of training: curves by task, the gap between refined answers and drafts, and the ablation."""

import statistics
from collections.abc import Sequence

from soul import tasks
from soul.compare.trainings import metric_of
from soul.errors import UnknownTask
from soul.figures.figure import Curve, Figure, Key, Panel, curves, point, range_of
from soul.figures.training_run import DRAFT, GAP, REFINED, Runs, TrainingRun, file_name, tasks_of

WINDOW = 10  # steps at the end, whose mean the ablation compares
ALL = "all tasks"  # a title where the metrics name no task


def training_curves(runs: Runs) -> Figure:
    """The reward of drafts and of the validation, panels for each task (the paper's figures 6 to 8)."""
    panels: list[Panel] = []
    missing: list[str] = []
    for task in tasks_of(runs):
        draft = curves(runs, _of_task(task, DRAFT))
        panels += _panel(f"{task or ALL}: reward of drafts", draft)
        panels += _panel(f"{task}: validation", curves(runs, _named(f"val-core/{task}/reward/mean@1")))
        missing += _missing(runs, draft, f"training, {task or ALL}", "a reward of drafts")
    return Figure("training", "Reward over the training steps, by task.", panels, missing=missing)


def gap(runs: Runs) -> Figure:
    """Refined answers (teacher) and drafts (student), and the gap between them (the paper's figure 5)."""
    panels: list[Panel] = []
    missing: list[str] = []
    for task in tasks_of(runs):
        refined = curves(runs, _of_task(task, REFINED), dashed=True)
        drafts = curves({one.name: runs[one.name] for one in refined}, _of_task(task, DRAFT))
        panels += _panel(f"{task or ALL}: refined (dashed) and draft", [*drafts, *refined])
        panels += _panel(f"{task or ALL}: gap, in sessions with both", curves(runs, _of_task(task, GAP)), zero=True)
        missing += _missing(runs, refined, f"gap, {task or ALL}", "judged refined answers")
    caption = "Reward with feedback (teacher, dashed) and without (student), and the gap between them."
    return Figure("gap", caption, panels, 2, missing)


def ablations(runs: Runs) -> list[Figure]:
    """A figure for each task that several names train on: where each name ends, by metric (the paper's figure 4).

    All runs are compared at one step, the last that each of them has reached. A seed's number is its mean over the
    WINDOW steps up to there, or over the last half of fewer. Of a metric that all runs validate, it is the last
    validation.
    """
    figures = []
    for task in filter(None, tasks_of(runs)):
        trained = {name: seeds for name, seeds in runs.items() if all(task in run.tasks for run in seeds)}
        if len(trained) < 2:
            continue
        step = min(max(run.steps) for seeds in trained.values() for run in seeds)
        panels = _dots("reward", trained, step, _of_task(task, DRAFT), f"val-core/{task}/reward/mean@1")
        start, keys = f"ditto/secondary/{task}/", set().union(*(run.keys for of in trained.values() for run in of))
        for key in sorted(key for key in keys if key.startswith(start)):
            if (name := key.removeprefix(start)) in ("reward", metric_of(task).name):  # the reward, by another name
                continue
            panels += _dots(f"{name}{better(task, name)}", trained, step, _named(key), f"val/{task}/{name}")
        caption = f"{task}: the names at step {step}, by metric: dots with 95 % over seeds; small dots are seeds."
        figures.append(Figure(f"ablation-{file_name(task)}", caption, panels))
    return figures


def _dots(title: str, runs: Runs, step: int, drafts: Key, validated: str) -> list[Panel]:
    """The panel of a metric; empty if fewer than two names have it."""

    def until(run: TrainingRun, key: str) -> list[float]:
        return [value for at, value in run.values(key).items() if 0 < at <= step]  # step 0: before training

    everywhere = all(until(run, validated) for seeds in runs.values() for run in seeds)
    drawn = []
    for name, seeds in runs.items():
        key = _named(validated) if everywhere else drafts
        known = [(run, until(run, key(run))) for run in seeds]
        if all(values for _, values in known):
            ends = [(run, values[-1] if everywhere else _at_end(values)) for run, values in known]
            at = tuple((run, {step: value}) for run, value in ends)
            range_ = range_of(key(seeds[0]), seeds)
            drawn.append(Curve(name, key(seeds[0]), (point(step, "", ends, range_),), at, range=range_))
    where = "validation" if everywhere else "drafts"
    return [Panel(f"{title}, {where}", drawn, dots=True)] if len(drawn) > 1 else []


def _at_end(values: Sequence[float]) -> float:
    """The mean of the last WINDOW values, or of the last half of fewer than twice as many."""
    return statistics.fmean(values[-min(WINDOW, -(-len(values) // 2)) :])


def better(task: str, metric: str) -> str:
    """An arrow that shows whether more or less of a metric is better; "" where the task does not say."""
    try:
        direction = tasks.load(task).better.get(metric)
    except UnknownTask:  # a task that is not installed here
        return ""
    return {"higher": " ↑", "lower": " ↓", None: ""}[direction]


def _of_task(task: str, metric: str) -> Key:
    return lambda run: run.key(task, metric)


def _named(key: str) -> Key:
    return lambda run: key


def _panel(title: str, drawn: Sequence[Curve], *, zero: bool = False) -> list[Panel]:
    return [Panel(title, drawn, zero)] if drawn else []


def _missing(runs: Runs, drawn: Sequence[Curve], where: str, what: str) -> list[str]:
    """A sentence about the names without a curve; none if all have one."""
    lacking = [name for name in runs if name not in {curve.name for curve in drawn}]
    return [f"{where}: no step has {what} in all seeds of {', '.join(lacking)}."] if lacking else []
