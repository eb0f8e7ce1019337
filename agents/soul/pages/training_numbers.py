"""Numbers of a run from its index: curves over the steps, and calls.

Curves are means of rewards with 95 % bands (`soul.metrics.intervals`). Sessions of one prompt are not independent: as
in `ditto/reward_draft` and its error, the mean is over sessions and the band over the means of prompts. The band of all
tasks together is that of a stratified sample, because tasks have rewards of different scales. Sessions of groups that
were replaced count, as in the metrics; those of the running step do not: the fast ones would come first.
"""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from soul import tasks
from soul.errors import UnknownTask
from soul.metrics.intervals import ANY, Interval, mean_of, pooled
from soul.pages.session_row import CALL_SUMS

_CALLS = f"""
SELECT f.step, f.split, c.role, c.task, {", ".join(f"sum({name}) AS {name}" for name in ("failed", *CALL_SUMS))}
FROM calls c JOIN files f ON f.id = c.file_id WHERE NOT f.live
GROUP BY f.step, f.split, c.role, c.task ORDER BY f.step
"""
_PROBLEMS = "SELECT problem FROM files WHERE problem IS NOT NULL ORDER BY id"
ALL = "all"  # the curves over all tasks
_BOTH = "draft IS NOT NULL AND refined IS NOT NULL"
_GROUPS = f"""
SELECT f.split, f.step, s.task,
    count(draft), sum(draft), count(refined), sum(refined),
    sum({_BOTH}), sum(refined - draft), sum(refined > draft), sum(refined = draft), sum(refined < draft)
FROM sessions s JOIN files f ON f.id = s.file_id WHERE NOT f.live
GROUP BY f.split, f.step, s.task, s.prompt
"""


def sessions_part(connection: sqlite3.Connection) -> dict[str, Any]:
    """The part of the overview that comes from the index: {"curves", "calls", "problems"}."""
    calls = connection.execute(_CALLS)
    names = [column[0] for column in calls.description]
    return {
        "curves": curves(connection),
        "calls": [dict(zip(names, row, strict=True)) for row in calls],
        "problems": [problem for (problem,) in connection.execute(_PROBLEMS)],
    }


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
_Point = tuple[float | None, float | None, float | None, int]  # mean, band, sessions


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
    return {**({ALL: _curves(groups)} if groups else {}), **{task: _curves({task: of}) for task, of in groups.items()}}


def _curves(by_task: Mapping[str, _Groups]) -> dict[str, Any]:
    steps = sorted({step for groups in by_task.values() for _, step in groups})
    ranges = {task: range_of(task) for task in by_task}

    def curve(split: str, name: str) -> dict[str, list[float | None]]:
        points = [
            _point([(groups.get((split, step), ()), ranges[task]) for task, groups in by_task.items()], name)
            for step in steps
        ]
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


def _point(of_tasks: Sequence[tuple[Sequence[_Group], Interval]], name: str) -> _Point:
    """The mean over the sessions of all tasks; its band comes from the spread over the prompts of each task."""
    estimates, counts = [], []
    for groups, (low, high) in of_tasks:
        sums = ((getattr(one, f"{name}_n"), getattr(one, name)) for one in groups)
        known = [(n, total) for n, total in sums if n and total is not None]
        if known:
            counts.append(sum(n for n, _ in known))
            center, range_ = math.fsum(total for _, total in known) / counts[-1], (low, high)
            if name == "gap":
                range_ = low - high, high - low
            estimates.append(mean_of([total / n for n, total in known], range_, center=center))
    if not estimates:
        return None, None, None, 0
    found = pooled(estimates, counts)
    return found.mean, *(found.interval or (None, None)), sum(counts)


def _share(groups: Sequence[_Group], name: str) -> float | None:
    both = sum(group.gap_n or 0 for group in groups)
    return sum(getattr(group, name) or 0 for group in groups) / both if both else None


def _share_of_run(groups: Sequence[_Group], name: str) -> dict[str, Any] | None:
    of_prompts = [getattr(group, name) / group.gap_n for group in groups if group.gap_n]
    share = _share(groups, name)
    return {"share": share, "interval": mean_of(of_prompts, (0.0, 1.0), center=share).interval} if of_prompts else None
