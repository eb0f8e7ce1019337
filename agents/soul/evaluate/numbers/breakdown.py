"""The numbers of a set by groups of rows, such as question type, order or source (`Task.groups`).

A group is computed like a set: mean over rows, failures counted and shown as bounds, rows resampled for the interval. A
row without a value of a kind is in none of that kind's groups.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from soul import tasks
from soul.evaluate.numbers.results import Results
from soul.evaluate.numbers.row_result import RowResult
from soul.evaluate.numbers.set_result import Interval, SetResult, set_scores
from soul.evaluate.run.run_folder import EvaluationRun
from soul.record import SessionRecord
from soul.task_types import Metric

Breakdowns = Mapping[str, Mapping[str, Sequence["Group"]]]  # set -> kind -> its groups
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Group:
    """The numbers of the rows that share one value of a kind.

    Attributes:
        samples: all finished samples; `invalid` of them have no verdict.
        mean, interval, bounds: as in `SetResult`.
    """

    value: str
    rows: int
    samples: int
    mean: float | None
    interval: Interval | None
    invalid: int
    bounds: Interval | None


def breakdown(samples: Iterable[SessionRecord], headline: Metric, seed: int = 0) -> dict[str, list[Group]]:
    """The groups of one set.

    Args:
        samples: of one set, in any order.
        headline: of the task.
        seed: of the bootstrap.

    Returns:
        Kind -> its groups, sorted naturally by value; kinds in the task's order. Empty if the task has no groups.
    """
    ordered = sorted(samples, key=lambda sample: sample.key)
    rows: dict[str, dict[str, dict[int, list[SessionRecord]]]] = {}
    for sample in ordered:
        for kind, value in sample.groups.items():
            rows.setdefault(kind, {}).setdefault(value, {}).setdefault(sample.number, []).append(sample)
    return {
        kind: [
            _group(ordered[0], kind, value, list(by_value[value].values()), headline, seed)
            for value in sorted(by_value, key=natural)
        ]
        for kind, by_value in rows.items()
    }


def breakdowns(run: EvaluationRun, results: Results) -> Breakdowns:
    """The groups of each set of a run, in the order of the results."""
    return {name: breakdown(run.by_set[name], result.headline) for name, result in results.sets.items()}


def natural(text: str) -> list[tuple[bool, float, str]]:
    """A key that sorts "2" before "10" and "order 2" before "order 10"; numbers come before words."""
    # The split alternates text and numbers; the text before a leading number is empty.
    return [
        (False, float(part), "") if _NUMBER.fullmatch(part) else (True, 0.0, part.casefold())
        for part in _NUMBER.split(text)
        if part
    ]


def _group(
    sample: SessionRecord, kind: str, value: str, rows: Sequence[Sequence[SessionRecord]], headline: Metric, seed: int
) -> Group:
    # The name is part of the bootstrap's seed, so that groups are resampled independently.
    name, joint = f"{sample.set}: {kind} {value}", set_scores(tasks.load(sample.task), rows)
    result = SetResult(name, sample.task, headline, tuple(map(RowResult.from_samples, rows)), joint, seed=seed)
    return Group(value, result.rows, result.samples, result.mean, result.interval, result.invalid, result.bounds)
