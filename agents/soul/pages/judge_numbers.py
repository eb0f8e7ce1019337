"""Numbers about a run's judge: mean rewards by the judge's prompts, and rewards against the lengths of texts."""

from __future__ import annotations

import math
import sqlite3
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from soul.metrics.intervals import FEWEST, Z

BINS = 10  # of equally many sessions
_FROM = "FROM sessions s JOIN files f ON f.id = s.file_id WHERE NOT f.live AND f.split = 'step' AND draft IS NOT NULL"
_JUDGES = f"SELECT f.step, s.prompts, count(*), avg(draft) {_FROM} GROUP BY 1, 2 ORDER BY 1, 2"
_LENGTHS = f"SELECT s.task, f.step || ' ' || s.prompt, s.said, s.draft, s.told, s.refined {_FROM} ORDER BY s.id"
Point = tuple[str, int, float]  # group (a prompt in a step), length, reward


def judge_part(connection: sqlite3.Connection) -> dict[str, Any]:
    """{"judges": mean draft reward of each step by prompt ids, "lengths": task -> kind of text -> `relation`}."""
    judges = [dict(zip(("step", "prompts", "n", "mean"), row, strict=True)) for row in connection.execute(_JUDGES)]
    points: defaultdict[str, dict[str, list[Point]]] = defaultdict(lambda: {"answer": [], "critique": []})
    for task, group, said, draft, told, refined in connection.execute(_LENGTHS):
        points[task]["answer"].append((group, said, draft))
        if told is not None and refined is not None:
            points[task]["critique"].append((group, told, refined))
    lengths = {
        task: {kind: relation(known) for kind, known in kinds.items() if known} for task, kinds in points.items()
    }
    return {"judges": judges, "lengths": lengths}


def relation(points: Sequence[Point]) -> dict[str, Any]:
    """Rewards against lengths.

    Returns:
        {"correlation": of both within groups, so that hard prompts with long answers do not count, "interval": 95 %, by
        Fisher's z for a partial correlation, "n", "groups", "length", "mean", "count": median length, mean reward and
        sessions of each bin}; None for a correlation or an interval that is not known.
    """
    groups: defaultdict[str, list[Point]] = defaultdict(list)
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
