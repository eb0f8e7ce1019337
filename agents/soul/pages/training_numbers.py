"""All numbers of a run: its settings, metrics, events, calls, and curves over the steps from the index.

Curves are means of rewards with 95 % bands (`soul.metrics.intervals`). Sessions of one prompt are not independent: as
in `ditto/reward_draft` and its error, the mean is over sessions and the band over the means of prompts. The band of all
tasks together is that of a stratified sample, because tasks have rewards of different scales. Sessions of groups that
were replaced count, as in the metrics; those of the running step do not: the fast ones would come first.
"""

from __future__ import annotations

import json
import math
import os
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from soul import tasks
from soul.errors import SoulError, UnknownTask, one_line
from soul.files.json_object import read_object
from soul.files.metrics_file import NAME, read_metrics
from soul.metrics.intervals import ANY, Estimate, Interval, mean_of, pooled
from soul.pages.judge_numbers import judge_part
from soul.pages.session_row import CallsRow
from soul.pages.verdict import verdict

RUN_FILE = "run.json"
_CALLS = f"""
SELECT f.step, f.split, c.role, c.task, {", ".join(f"sum({name}) AS {name}" for name in CallsRow._fields[2:])}
FROM calls c JOIN files f ON f.id = c.file_id WHERE NOT f.live
GROUP BY f.step, f.split, c.role, c.task ORDER BY f.step
"""
_PROBLEMS = "SELECT problem FROM files WHERE problem IS NOT NULL ORDER BY id"
OUTAGE = 0.05  # share of a step's sessions that lost a judge, from which on it is an event
FAILURE = "failure.json"
_CHECKPOINT = re.compile(r"global_step_(\d+)")
_LOST = "judge/failure_share"
_ALARM = "alarm/"
ALL = "all"  # the curves over all tasks
_BOTH = "draft IS NOT NULL AND refined IS NOT NULL"
_GROUPS = f"""
SELECT f.split, f.step, s.task,
    count(draft), sum(draft), count(refined), sum(refined),
    sum({_BOTH}), sum(refined - draft), sum(refined > draft), sum(refined = draft), sum(refined < draft)
FROM sessions s JOIN files f ON f.id = s.file_id WHERE NOT f.live
GROUP BY f.split, f.step, s.task, s.prompt
"""


class BadRunFile(SoulError):
    """run.json or failure.json cannot be read."""


def sessions_part(connection: sqlite3.Connection) -> dict[str, Any]:
    """The part of the overview that comes from the index: {"curves", "calls", "problems"}, and `judge_part`."""
    calls = connection.execute(_CALLS)
    names = [column[0] for column in calls.description]
    return {
        **judge_part(connection),
        "curves": curves(connection),
        "calls": [dict(zip(names, row, strict=True)) for row in calls],
        "problems": [problem for (problem,) in connection.execute(_PROBLEMS)],
    }


def files_part(folder: Path) -> dict[str, Any]:
    """The part that comes from the other files: {"run", "metrics", "about", "events", "problems"}."""
    problems: list[str] = []
    run: dict[str, Any] = {}
    metrics: Mapping[int, Mapping[str, float]] = {}
    try:
        run = read_object(folder / RUN_FILE, BadRunFile, "The next start of the training writes it again.")
    except FileNotFoundError:
        pass
    except (SoulError, OSError) as error:
        problems.append(one_line(error))
    try:
        metrics = read_metrics(folder / NAME)
    except SoulError as error:
        problems.append(one_line(error))
    steps = sorted(metrics)
    names = sorted({name for numbers in metrics.values() for name in numbers} - {"step"})
    series = {name: [_number(metrics[step].get(name)) for step in steps] for name in names}
    happened = events(folder, run, metrics)
    numbers = {"metrics": {"steps": steps, "series": series}, "about": described(names)}
    return {"run": run, **numbers, "events": happened, "problems": problems}


def described(names: Iterable[str]) -> dict[str, str]:
    """Metric -> its meaning in docs/metrics.md, from which metric_texts.json is made; of known metrics."""
    texts = json.loads((Path(__file__).parent / "metric_texts.json").read_text(encoding="utf-8"))
    known = [(re.compile(re.sub("<[a-z]+>", ".+", name)), text) for name, text in reversed(texts.items())]
    return {name: text for name in names for pattern, text in known if pattern.fullmatch(name)}


def in_words(curves: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> str:
    """The sentence about a run's curves and alarms; "" without a step."""
    if not (curve := curves.get(ALL)):
        return ""
    means = {name: dict(zip(curve["steps"], curve[name]["mean"], strict=True)) for name in ("draft", "gap")}
    drafts, gaps = ({step: one for step, one in means[name].items() if one is not None} for name in ("draft", "gap"))
    alarms: dict[str, int] = {}
    for event in events:
        if event["kind"] == "alarm":
            alarms.setdefault(event["text"], event["step"])
    return verdict(list(drafts.values()), gaps, alarms)


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def checkpoints(folder: Path) -> list[int]:
    """The steps of the checkpoints in a run's folder."""
    matches = map(_CHECKPOINT.fullmatch, os.listdir(folder) if folder.is_dir() else ())
    return sorted(int(match.group(1)) for match in matches if match)


def events(folder: Path, run: Mapping[str, Any], metrics: Mapping[int, Mapping[str, float]]) -> list[dict[str, Any]]:
    """The events in the order of their steps: {"step", "kind", "text"}, some with a "time".

    Args:
        run: run.json, or {}.
        metrics: step -> its numbers.
    """
    known = [
        one for one in run.get("resumed") or () if isinstance(one, Mapping) and _number(one.get("step")) is not None
    ]
    happened = [
        {"step": one["step"], "kind": "resume", "text": f"resumed after step {one['step']}", **_time(one)}
        for one in known
    ]
    for step in checkpoints(folder):
        happened.append({"step": step, "kind": "checkpoint", "text": f"checkpoint global_step_{step}"})
    before: Mapping[str, float] = {}
    for step, numbers in sorted(metrics.items()):
        if (lost := numbers.get(_LOST, 0.0)) >= OUTAGE:
            happened.append({"step": step, "kind": "outage", "text": f"a judge failed in {lost:.0%} of the sessions"})
        for name, raised in numbers.items():
            if name.startswith(_ALARM) and raised and not before.get(name):
                happened.append({"step": step, "kind": "alarm", "text": name.removeprefix(_ALARM)})
        before = numbers
    try:  # the watchdog's reason for ending the run, after its last step; if it was resumed since, at that step
        failure = read_object(folder / FAILURE, BadRunFile, "It can be removed.")
        since = [one["step"] for one in known if _time(one).get("time", 0.0) > _time(failure).get("time", 0.0)]
        text = f"the run ended: {failure.get('cause')}"
        step = since[0] if since else max(metrics, default=0)
        happened.append({"step": step, "kind": "outage", "text": text, **_time(failure)})
    except (OSError, BadRunFile):  # nearly all runs have none
        pass
    return sorted(happened, key=lambda event: event["step"])


def _time(one: Mapping[str, Any]) -> dict[str, float]:
    return {"time": one["time"]} if isinstance(one.get("time"), int | float) else {}


class _Group(NamedTuple):
    """Counts and sums over the sessions of one prompt; the gap is over those with both rewards."""

    draft_n: int
    draft: float | None
    refined_n: int
    refined: float | None
    gap_n: int
    gap: float | None
    better: int | None
    same: int | None
    worse: int | None


_Groups = Mapping[tuple[str, int], Sequence[_Group]]  # split and step -> its prompts
_Mean = tuple[Estimate, int]  # over so many sessions


def curves(connection: sqlite3.Connection) -> dict[str, Any]:
    """The curves of each task and of all tasks together.

    Returns:
        Task or "all" -> {"steps", "draft", "refined", "gap", "validation": {"mean", "low", "high", "n"}, "better",
        "same", "worse", "range": of the tasks' rewards, None without limits, "shares": "better" or "worse" -> their
        share over all steps, and its interval over the prompts of steps}; lists have one value a step, None where
        there is none.
    """
    groups: defaultdict[str, defaultdict[tuple[str, int], list[_Group]]] = defaultdict(lambda: defaultdict(list))
    for split, step, task, *numbers in connection.execute(_GROUPS):
        groups[task][split, step].append(_Group(*numbers))
    if not groups:
        return {}
    return {ALL: _curves(groups), **{task: _curves({task: of_task}) for task, of_task in groups.items()}}


def _curves(by_task: Mapping[str, _Groups]) -> dict[str, Any]:
    steps = sorted({step for groups in by_task.values() for _, step in groups})
    ranges = {task: range_of(task) for task in by_task}

    def curve(split: str, name: str) -> dict[str, list[float | None]]:
        points = []
        for step in steps:
            of_tasks = [(by_task[task].get((split, step), ()), ranges[task]) for task in by_task]
            means = [mean for groups, range_ in of_tasks if (mean := _mean(groups, name, range_))]
            points.append(_point(means))
        return {key: [point[place] for point in points] for place, key in enumerate(("mean", "low", "high", "n"))}

    bounds = min(low for low, _ in ranges.values()), max(high for _, high in ranges.values())
    trained = [[one for groups in by_task.values() for one in groups.get(("step", step), ())] for step in steps]
    return {
        "steps": steps,
        **{name: curve("step", name) for name in ("draft", "refined", "gap")},
        "validation": curve("val", "draft"),
        **{name: [_share(groups, name) for groups in trained] for name in ("better", "same", "worse")},
        "range": bounds if all(map(math.isfinite, bounds)) else None,
        "shares": {name: _share_of_run([*chain(*trained)], name) for name in ("better", "worse")},
    }


def range_of(task: str) -> Interval:
    """The range of a task's rewards; any for a task that is not installed here."""
    try:
        headline = tasks.load(task).headline
    except UnknownTask:
        return ANY
    return headline.low, headline.high


def _mean(groups: Sequence[_Group], name: str, range_: Interval) -> _Mean | None:
    """The mean over the sessions of one task, with its spread over prompts."""
    known = [
        (n, total) for one in groups if (n := getattr(one, f"{name}_n")) and (total := getattr(one, name)) is not None
    ]
    if not known:
        return None
    count = sum(n for n, _ in known)
    if name == "gap":
        range_ = range_[0] - range_[1], range_[1] - range_[0]
    center = math.fsum(total for _, total in known) / count
    return mean_of([total / n for n, total in known], range_, center=center), count


def _point(means: Sequence[_Mean]) -> tuple[float | None, float | None, float | None, int]:
    """Mean, band and number of sessions over all tasks."""
    if not means:
        return None, None, None, 0
    found = pooled([estimate for estimate, _ in means], [count for _, count in means])
    low, high = found.interval or (None, None)
    return found.mean, low, high, sum(count for _, count in means)


def _share(groups: Sequence[_Group], name: str) -> float | None:
    both = sum(group.gap_n or 0 for group in groups)
    return sum(getattr(group, name) or 0 for group in groups) / both if both else None


def _share_of_run(groups: Sequence[_Group], name: str) -> dict[str, Any] | None:
    of_prompts = [getattr(group, name) / group.gap_n for group in groups if group.gap_n]
    if not of_prompts:
        return None
    share = _share(groups, name)
    return {"share": share, "interval": mean_of(of_prompts, (0.0, 1.0), center=share).interval}
