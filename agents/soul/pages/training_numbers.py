"""Numbers of a run from its index: curves over the steps, calls, and what its judge did.

Curves are means of rewards with 95 % bands (`soul.metrics.intervals`). Sessions of one prompt are not independent: as
in `ditto/reward_draft` and its error, the mean is over sessions and the band over the means of prompts. The band of all
tasks together is that of a stratified sample, because tasks have rewards of different scales. Sessions of the running
step do not count: the fast ones would come first.
"""

from __future__ import annotations

import math
import sqlite3
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from soul import tasks
from soul.errors import UnknownTask
from soul.metrics.intervals import ANY, FEWEST, Interval, Z, mean_of, pooled
from soul.pages.session_row import CALL_SUMS

_SUMS = ", ".join(f"sum({name}) AS {name}" for name in ("failed", *CALL_SUMS))
_CALLS = f"""SELECT f.step, f.split, c.role, c.task, {_SUMS} FROM calls c JOIN files f ON f.id = c.file_id
    WHERE NOT f.live GROUP BY f.step, f.split, c.role, c.task ORDER BY f.step"""
BINS = 10  # of equally many sessions
_FROM = "FROM sessions s JOIN files f ON f.id = s.file_id WHERE NOT f.live"
_DRAFTS = f"{_FROM} AND f.split = 'step' AND draft IS NOT NULL"
_JUDGES = f"SELECT f.step, s.prompts, count(*) AS n, avg(draft) AS mean {_DRAFTS} GROUP BY 1, 2 ORDER BY 1, 2"
_LENGTHS = f"SELECT s.task, f.step || ' ' || s.prompt, s.said, s.draft, s.told, s.refined {_DRAFTS} ORDER BY s.id"
# Counts and sums over the sessions of one prompt; the gap is over those with both rewards.
_GROUPS = f"""SELECT f.split, f.step, s.task, count(draft) AS draft_n, total(draft) AS draft,
    count(refined) AS refined_n, total(refined) AS refined, count(draft + refined) AS gap_n,
    total(refined - draft) AS gap, total(refined > draft) AS better, total(refined = draft) AS same,
    total(refined < draft) AS worse {_FROM} GROUP BY f.split, f.step, s.task, s.prompt"""

_Text = tuple[str, int, float]  # group (a prompt in a step), length, reward
_Group = Mapping[str, Any]
_Groups = Mapping[tuple[str, int], Sequence[_Group]]  # split and step -> its prompts
_Point = tuple[float | None, float | None, float | None, int]  # mean, band, sessions


def sessions_part(connection: sqlite3.Connection) -> dict[str, Any]:
    """The part of the overview that comes from the index: {"curves", "calls", "problems"}."""
    found = connection.execute("SELECT problem FROM files WHERE problem IS NOT NULL ORDER BY id")
    problems = [problem for (problem,) in found]
    return {"curves": curves(connection), "calls": _rows(connection, _CALLS), "problems": problems}


def _rows(connection: sqlite3.Connection, query: str) -> list[dict[str, Any]]:
    cursor = connection.execute(query)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor]


def curves(connection: sqlite3.Connection) -> dict[str, Any]:
    """The curves of each task and of all tasks together.

    Returns:
        Task or "all" -> {"steps", "draft", "refined", "gap", "validation": {"mean", "low", "high", "n"}, "better",
        "same", "worse", "range": of the tasks' rewards, None without limits, "shares": "better" or "worse" -> their
        share over all steps, and its interval over the prompts of steps}; lists have one value a step, None where
        there is none.
    """
    groups: defaultdict[str, defaultdict[tuple[str, int], list[_Group]]] = defaultdict(lambda: defaultdict(list))
    for row in _rows(connection, _GROUPS):
        groups[row["task"]][row["split"], row["step"]].append(row)
    found = {task: _curves({task: of}) for task, of in groups.items()}
    return {"all": _curves(groups), **found} if found else {}


def _curves(by_task: Mapping[str, _Groups]) -> dict[str, Any]:
    steps = sorted({step for groups in by_task.values() for _, step in groups})
    ranges = {task: range_of(task) for task in by_task}

    def curve(split: str, name: str) -> dict[str, list[float | None]]:
        found = [[(of.get((split, step), ()), ranges[task]) for task, of in by_task.items()] for step in steps]
        points = zip(*(_point(of_tasks, name) for of_tasks in found), strict=True)
        return dict(zip(("mean", "low", "high", "n"), map(list, points), strict=True))

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
        known = [(one[f"{name}_n"], one[name]) for one in groups if one[f"{name}_n"]]
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
    both = sum(group["gap_n"] for group in groups)
    return sum(group[name] for group in groups) / both if both else None


def _share_of_run(groups: Sequence[_Group], name: str) -> dict[str, Any] | None:
    of_prompts = [group[name] / group["gap_n"] for group in groups if group["gap_n"]]
    share = _share(groups, name)
    return {"share": share, "interval": mean_of(of_prompts, (0.0, 1.0), center=share).interval} if of_prompts else None


def judge_part(connection: sqlite3.Connection) -> dict[str, Any]:
    """{"judges": mean draft reward of each step by prompt ids, "lengths": task -> kind of text -> `relation`}."""
    points: defaultdict[str, dict[str, list[_Text]]] = defaultdict(lambda: {"answer": [], "critique": []})
    for task, group, said, draft, told, refined in connection.execute(_LENGTHS):
        points[task]["answer"].append((group, said, draft))
        if told is not None and refined is not None:
            points[task]["critique"].append((group, told, refined))
    lengths = {task: {kind: relation(of) for kind, of in kinds.items() if of} for task, kinds in points.items()}
    return {"judges": _rows(connection, _JUDGES), "lengths": lengths}


def relation(points: Sequence[_Text]) -> dict[str, Any]:
    """Rewards against lengths.

    Returns:
        {"correlation": of both within groups, so that hard prompts with long answers do not count, "interval": 95 %, by
        Fisher's z for a partial correlation, "n", "groups", "length", "mean", "count": median length, mean reward and
        sessions of each bin}; None for a correlation or an interval that is not known.
    """
    groups: defaultdict[str, list[_Text]] = defaultdict(list)
    for point in points:
        groups[point[0]].append(point)
    pairs = []
    for own in groups.values():
        length, reward = (statistics.fmean(values) for values in list(zip(*own, strict=True))[1:])
        pairs += [(one[1] - length, one[2] - reward) for one in own]
    norm = math.prod(math.sqrt(math.fsum(pair[k] ** 2 for pair in pairs)) for k in (0, 1))
    found = math.fsum(a * b for a, b in pairs) / norm if norm > 1e-9 else None
    degrees, interval = len(points) - len(groups) - 2, None
    if found is not None and abs(found) < 1 and degrees >= FEWEST:
        interval = [math.tanh(math.atanh(found) + sign * Z / math.sqrt(degrees)) for sign in (-1, 1)]
    ranked, count = sorted(points, key=lambda point: point[1]), min(BINS, len(points))
    bins = [ranked[len(ranked) * k // count : len(ranked) * (k + 1) // count] for k in range(count)]
    shown = {
        "length": [statistics.median(one[1] for one in own) for own in bins],
        "mean": [statistics.fmean(one[2] for one in own) for own in bins],
        "count": [len(own) for own in bins],
    }
    return {"correlation": found, "interval": interval, "n": len(points), "groups": len(groups), **shown}
