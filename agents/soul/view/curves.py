"""Curves over the steps, from the index: means of rewards with 95 % bands over prompts.

Sessions of one prompt are not independent. As in `ditto/reward_draft` and its error, the mean is over sessions and the
standard error over the means of prompts; the band is 1.96 of them. A step with one prompt has no band. Sessions of
groups that were replaced count, as in the metrics; those of the running step do not: the fast ones would come first.
"""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

ALL = "all"  # the curves over all tasks
NORMAL_95 = 1.96
_BOTH = "draft IS NOT NULL AND refined IS NOT NULL"
_GROUPS = f"""
SELECT f.split, f.step, s.task,
    count(draft), sum(draft), count(refined), sum(refined),
    sum({_BOTH}), sum(refined - draft), sum(refined > draft), sum(refined = draft), sum(refined < draft)
FROM sessions s JOIN files f ON f.id = s.file_id WHERE NOT f.live
GROUP BY f.split, f.step, s.task, s.prompt
"""


class _Group(NamedTuple):
    """Counts and sums over the sessions of one prompt."""

    draft_n: int
    draft: float | None
    refined_n: int
    refined: float | None
    gap_n: int
    gap: float | None
    better: int | None
    same: int | None
    worse: int | None


class Point(NamedTuple):
    """A mean over `n` sessions and its band; None where it is not known."""

    mean: float | None
    low: float | None
    high: float | None
    n: int


def curves(connection: sqlite3.Connection) -> dict[str, Any]:
    """The curves of each task and of all tasks together.

    Returns:
        Task or "all" -> {"steps", "draft", "refined", "gap", "validation": {"mean", "low", "high", "n"}, "better",
        "same", "worse"}; lists have one value a step, None where there is none.
    """
    groups: defaultdict[str, defaultdict[tuple[str, int], list[_Group]]] = defaultdict(lambda: defaultdict(list))
    for split, step, task, *numbers in connection.execute(_GROUPS):
        for name in (ALL, task):
            groups[name][split, step].append(_Group(*numbers))
    return {name: _curves(of_task) for name, of_task in groups.items()}


def _curves(groups: Mapping[tuple[str, int], Sequence[_Group]]) -> dict[str, Any]:
    steps = sorted({step for _, step in groups})
    trained = [groups.get(("step", step), []) for step in steps]
    validated = [groups.get(("val", step), []) for step in steps]
    return {
        "steps": steps,
        "draft": _columns([_point([(g.draft_n, g.draft) for g in of_step]) for of_step in trained]),
        "refined": _columns([_point([(g.refined_n, g.refined) for g in of_step]) for of_step in trained]),
        "gap": _columns([_point([(g.gap_n, g.gap) for g in of_step]) for of_step in trained]),
        "validation": _columns([_point([(g.draft_n, g.draft) for g in of_step]) for of_step in validated]),
        "better": [_share(of_step, [g.better for g in of_step]) for of_step in trained],
        "same": [_share(of_step, [g.same for g in of_step]) for of_step in trained],
        "worse": [_share(of_step, [g.worse for g in of_step]) for of_step in trained],
    }


def _point(prompts: Sequence[tuple[int, float | None]]) -> Point:
    """The mean and band of some prompts.

    Args:
        prompts: of each, how many sessions have a value, and the sum of the values.
    """
    known = [(n, total) for n, total in prompts if n and total is not None]
    if not known:
        return Point(None, None, None, 0)
    count = sum(n for n, _ in known)
    mean = sum(total for _, total in known) / count
    if len(known) < 2:
        return Point(mean, None, None, count)
    means = [total / n for n, total in known]
    center = math.fsum(means) / len(means)
    # Not `statistics.stdev`, which takes 20 times as long: there are thousands of points.
    error = math.sqrt(math.fsum((each - center) ** 2 for each in means) / (len(means) - 1) / len(means))
    return Point(mean, mean - NORMAL_95 * error, mean + NORMAL_95 * error, count)


def _columns(points: Sequence[Point]) -> dict[str, list[float | None]]:
    return {name: [getattr(point, name) for point in points] for name in Point._fields}


def _share(groups: Sequence[_Group], counts: Sequence[int | None]) -> float | None:
    both = sum(group.gap_n or 0 for group in groups)
    return sum(count or 0 for count in counts) / both if both else None
