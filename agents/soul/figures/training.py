"""The panels of the figures of training: curves by task and by metric, the gap, and the signs of known failures."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from soul import tasks
from soul.errors import UnknownTask
from soul.figures.figure import Alarm, Curve, Figure, Key, Panel, curves
from soul.figures.training_run import DRAFT, GAP, REFINED, Runs, TrainingRun, file_name, tasks_of

NOT_METRICS = ("n", "invalid_share")  # of a validation: its sessions
UP, DOWN = " ↑", " ↓"
WINDOW = 10  # steps; that of the alarm `secondary`
ALL = "all tasks"  # a title; and where the metrics name no task
LENGTH = "ditto/response_tokens_draft"
# Title, metric and the alarm that watches it ("": none).
DIAGNOSTICS: tuple[tuple[str, str, str], ...] = (
    ("reward of drafts", "ditto/reward_draft", "fall"),
    ("length of drafts, tokens", LENGTH, "length"),
    ("distinct-2 of a prompt's drafts", "ditto/distinct_2", "diversity"),
    ("self-BLEU of a prompt's drafts", "ditto/self_bleu", "diversity"),
    ("entropy, nats", "actor/entropy", "entropy"),
    ("KL to the start, nats per token", "ditto/kl_start", ""),
    ("gap: refined - draft", "ditto/gap", ""),
    ("log-prob of refined, with - without feedback", "ditto/context_logprob_gap", "context_gap"),
    ("share copied from the feedback", "ditto/share_copied", "copying"),
    ("canary: its reward of drafts", "ditto/canary/reward_draft", "canary"),
    ("canary: judge's reward - its own", "ditto/canary/difference", "canary"),
    ("norm of the gradient", "actor/grad_norm", ""),
)
# Start of a metric -> how a run comes to have it.
HINTS = {
    "ditto/gap": " An objective without feedback refines nothing.",
    "ditto/context_logprob_gap": " An objective that does not train refined answers has none.",
    "ditto/share_copied": " An objective without feedback refines nothing.",
    "ditto/kl_start": " actor_rollout_ref.actor.use_kl_loss=true measures it; with kl_loss_coef=0, only that.",
    "ditto/canary": " It takes a second judge (judge.canary).",
}
DRIFT = "length of drafts / in their first step"


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


def metric_curves(runs: Runs) -> list[Figure]:
    """A figure for each task: the metrics of its verdicts, of the drafts and of the validation."""
    return [figure for task in tasks_of(runs) if task and (figure := _metrics_of(runs, task)).panels]


def _metrics_of(runs: Runs, task: str) -> Figure:
    panels: list[Panel] = []
    keys = {key for seeds in runs.values() for run in seeds for key in run.keys}
    for prefix, where in ((f"ditto/secondary/{task}/", "drafts"), (f"val/{task}/", "validation")):
        for key in sorted(key for key in keys if key.startswith(prefix)):
            name = key.removeprefix(prefix)
            if name in NOT_METRICS or is_reward(task, name):
                continue
            drawn = curves(runs, _named(key))
            alarms = _got_worse(drawn, key, better(task, name)) if where == "drafts" else []
            panels += [Panel(f"{name}{better(task, name)}, {where}", drawn, alarms=alarms)] if drawn else []
    caption = f"{task}: every metric of its verdicts over the training steps."
    return Figure(f"metrics-{file_name(task)}", caption, panels)


def gap(runs: Runs) -> Figure:
    """Refined answers (teacher) and drafts (student), and what lies between (the paper's figure 5)."""
    panels: list[Panel] = []
    missing: list[str] = []
    for task in tasks_of(runs):
        refined = curves(runs, _of_task(task, REFINED), dashed=True)
        both = {one.name: runs[one.name] for one in refined}
        title = task or ALL
        drafts = curves(both, _of_task(task, DRAFT))
        panels += _panel(f"{title}: refined (dashed) and draft", [*drafts, *refined])
        panels += _panel(f"{title}: gap, in sessions with both", curves(runs, _of_task(task, GAP)), zero=True)
        missing += _missing(runs, refined, f"gap, {title}", "judged refined answers")
    caption = "Reward with feedback (teacher, dashed) and without (student), and the gap between them."
    return Figure("gap", caption, panels, 2, missing)


def gaps_by_metric(runs: Runs) -> list[Figure]:
    """A figure for each task: the gap of every metric of its verdicts."""
    figures = []
    for task in tasks_of(runs):
        prefix = f"ditto/secondary_gap/{task}/"
        keys = sorted({key for seeds in runs.values() for run in seeds for key in run.keys if key.startswith(prefix)})
        names = {key: key.removeprefix(prefix) for key in keys if not is_reward(task, key.removeprefix(prefix))}
        panels = [
            panel
            for key, name in names.items()
            for panel in _panel(f"{name}{better(task, name)}: refined - draft", curves(runs, _named(key)), zero=True)
        ]
        figures.append(Figure(f"gap-{file_name(task)}", f"{task}: the gap of every metric of its verdicts.", panels))
    return [figure for figure in figures if figure.panels]


def diagnostics(runs: Runs) -> Figure:
    """The signs of known failures, each with its alarm on the axis (docs/training.md explains them)."""
    panels: list[Panel] = []
    missing: list[str] = []
    for title, key, alarm in DIAGNOSTICS:
        drawn = curves(runs, _named(key))
        panels += _panel(title, drawn, zero=key == "ditto/gap", alarm=alarm)
        if key == LENGTH:
            panels += _panel(DRIFT, curves(_relative(runs, key), _named(key)), alarm=alarm)
        hint = next((text for start, text in HINTS.items() if key.startswith(start)), "")
        missing += _missing(runs, drawn, f"diagnostics, {title}", key, hint)
    caption = "Signs of known failures; a triangle on the axis is a step with an alarm."
    return Figure("diagnostics", caption, panels, missing=missing)


def is_reward(task: str, metric: str) -> bool:
    """Check whether a metric is the reward itself, under the name of the task's headline."""
    try:
        return metric in ("reward", tasks.load(task).headline.name)
    except UnknownTask:
        return metric == "reward"


def better(task: str, metric: str) -> str:
    """An arrow that shows whether more or less of a metric is better; "" where the task does not say."""
    try:
        direction = tasks.load(task).better.get(metric)
    except UnknownTask:  # a task that is not installed here
        return ""
    return {"higher": UP, "lower": DOWN, None: ""}[direction]


def _of_task(task: str, metric: str) -> Key:
    return lambda run: run.key(task, metric)


def _named(key: str) -> Key:
    return lambda run: key


def _panel(title: str, drawn: Sequence[Curve], *, zero: bool = False, alarm: str = "") -> list[Panel]:
    """The panel, if it has a curve."""
    runs = [run for curve in drawn for run, _ in curve.seeds]
    alarms = [raised for run in runs if alarm and (raised := _raised(run, alarm)).steps]
    return [Panel(title, drawn, zero, alarms)] if drawn else []


def _raised(run: TrainingRun, alarm: str) -> Alarm:
    return Alarm(alarm, run, tuple(step for step, value in run.values(f"alarm/{alarm}").items() if value))


def _got_worse(drawn: Sequence[Curve], key: str, arrow: str) -> list[Alarm]:
    """The steps with the alarm `secondary` in which this metric is among those that got worse.

    The alarm's own windows: the last steps against as many before them.
    """
    alarms = []
    for run, values in (seed for curve in drawn if arrow for seed in curve.seeds):
        raised = _raised(run, "secondary")
        worse = [step for step in raised.steps if (rise := _rise(values, step)) and (rise < 0) is (arrow == UP)]
        alarms += [Alarm("secondary", run, tuple(worse))] if worse else []
    return alarms


def _rise(values: Mapping[int, float], step: int) -> float:
    """By how much the mean of the last WINDOW steps lies above that of the WINDOW steps before; 0 if one has none."""
    later = [value for at, value in values.items() if step - WINDOW < at <= step]
    sooner = [value for at, value in values.items() if step - 2 * WINDOW < at <= step - WINDOW]
    return statistics.fmean(later) - statistics.fmean(sooner) if later and sooner else 0.0


def _relative(runs: Runs, key: str) -> Runs:
    """The runs with one metric alone, divided by its first value."""
    return {name: [_over_first(run, key) for run in seeds] for name, seeds in runs.items()}


def _over_first(run: TrainingRun, key: str) -> TrainingRun:
    values = run.values(key)
    first = next(iter(values.values()), 0.0)
    steps = {step: {**run.steps[step], key: value / first} for step, value in values.items()} if first else {}
    return TrainingRun(run.name, run.folder, steps, run.sha256)


def _missing(runs: Runs, drawn: Sequence[Curve], where: str, what: str, hint: str = "") -> list[str]:
    """A sentence about the names without a curve; none if all have one."""
    lacking = [name for name in runs if name not in {curve.name for curve in drawn}]
    return [f"{where}: no step has {what} in all seeds of {', '.join(lacking)}.{hint}"] if lacking else []
