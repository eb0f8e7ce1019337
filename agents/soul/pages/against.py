"""Two runs against each other: the prompts that both played in the same step, by the mean reward of their groups.

Drafts of two runs are independent samples, so no draft belongs to a draft of the other run; a prompt does.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from soul.metrics.intervals import difference_of
from soul.pages.training_numbers import range_of

LARGEST = 30  # differences that are listed
_MEANS = """
SELECT s.task, s.file, s.number, f.split, f.step, avg(s.draft), avg(s.refined), min(s.id)
FROM sessions s JOIN files f ON f.id = s.file_id WHERE NOT f.live GROUP BY 1, 2, 3, 4, 5
"""
_KINDS = ("draft", "refined")
Prompt = tuple[str, str, int, str, int]  # task, file, row's number, split, step
Means = Mapping[Prompt, tuple[float | None, float | None, int]]  # of drafts and refined answers; the first session's id


def group_means(connection: sqlite3.Connection) -> Means:
    """The mean rewards of each group of a run."""
    return {tuple(row[:5]): tuple(row[5:]) for row in connection.execute(_MEANS)}


def paired(first: Means, second: Means) -> dict[str, Any]:
    """The prompts of both runs.

    Returns:
        {"prompts": how many, "tasks": a line for each task and kind of answer with prompts, both means, difference and
        its 95 % interval, "largest": the prompts whose drafts differ most, with the id of each run's first session}.
    """
    both = sorted(first.keys() & second.keys())
    by_task: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    largest: list[dict[str, Any]] = []
    for prompt in both:
        for place, kind in enumerate(_KINDS):
            one, other = first[prompt][place], second[prompt][place]
            if one is None or other is None:
                continue
            by_task[prompt[0], kind].append((one, other))
            if kind == "draft" and one != other:
                names = dict(zip(("task", "file", "number", "split", "step"), prompt, strict=True))
                largest.append({**names, "means": (one, other), "ids": (first[prompt][2], second[prompt][2])})
    largest.sort(key=lambda line: -abs(line["means"][1] - line["means"][0]))
    lines = []
    for (task, kind), pairs in sorted(by_task.items()):
        found = difference_of(pairs, range_of(task))
        means = [sum(values) / len(pairs) for values in zip(*pairs, strict=True)]
        lines.append({"task": task, "kind": kind, "prompts": found.n, "means": means})
        lines[-1] |= {"difference": found.mean, "interval": found.interval}
    return {"prompts": len(both), "tasks": lines, "largest": largest[:LARGEST], "differing": len(largest)}
