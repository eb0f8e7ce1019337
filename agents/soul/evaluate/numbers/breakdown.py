"""The numbers of a set by what its rows belong to: question type, order, source (`Task.groups`).

A group is averaged as a set is: rows as rows, failures counted in their group and shown as bounds, rows resampled for
the interval. A row that has no value of a kind is in none of the kind's groups; nothing is filled in for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from soul import tasks
from soul.evaluate.numbers.results import Results
from soul.evaluate.numbers.row_result import RowResult, ScoredSample
from soul.evaluate.numbers.set_result import Interval, SetResult
from soul.evaluate.numbers.set_score import set_scores
from soul.evaluate.run.run_folder import EvaluationRun
from soul.record import SessionRecord
from soul.task import Metric

Breakdowns = Mapping[str, Mapping[str, Sequence["Group"]]]  # set -> kind -> its groups
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Group:
    """The numbers of the rows that share one value of a kind.

    Attributes:
        value: what they share.
        samples: all that are finished, valid or not; `invalid` of them gave no verdict.
        mean: over rows of their valid samples' mean reward, or the task's score of a set; None where nothing is valid.
        interval: the 95% bootstrap interval of the mean, over rows; None with fewer than two valid rows.
        bounds: the mean if every invalid sample were the worst, and the best, of the headline's range.
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
        headline: the task's.
        seed: of the bootstrap.

    Returns:
        Kind -> its groups, values in natural order. Kinds stand as the task gives them. Empty where the task's records
        tell nothing.
    """
    ordered = sorted(samples, key=lambda sample: sample.key)
    rows: dict[str, dict[str, dict[int, list[ScoredSample]]]] = {}
    for sample in ordered:
        scored = ScoredSample.from_record(sample)
        for kind, value in sample.groups.items():
            rows.setdefault(kind, {}).setdefault(value, {}).setdefault(sample.number, []).append(scored)
    return {
        kind: [
            _group(ordered[0], kind, value, list(by_value[value].values()), headline, seed)
            for value in sorted(by_value, key=natural)
        ]
        for kind, by_value in rows.items()
    }


def breakdowns(run: EvaluationRun, results: Results) -> Breakdowns:
    """The groups of each set of a run, in the results' order."""
    by_set: dict[str, list[SessionRecord]] = {name: [] for name in results.sets}
    for sample in run.samples:
        by_set[sample.set].append(sample)
    return {name: breakdown(of_set, results.sets[name].headline) for name, of_set in by_set.items()}


def natural(text: str) -> list[tuple[bool, float, str]]:
    """A key that sorts "2" before "10" and "order 2" before "order 10"; numbers come before words."""
    # What is split at numbers is text and number in turns; an empty text before a number at the start is nothing.
    return [
        (False, float(part), "") if _NUMBER.fullmatch(part) else (True, 0.0, part.casefold())
        for part in _NUMBER.split(text)
        if part
    ]


def _group(
    sample: SessionRecord, kind: str, value: str, rows: Sequence[Sequence[ScoredSample]], headline: Metric, seed: int
) -> Group:
    # A group is a small set; its name enters the bootstrap's seed, so that groups are drawn independently.
    name, joint = f"{sample.set}: {kind} {value}", set_scores(tasks.load(sample.task), rows)
    of = SetResult(name, sample.task, headline, tuple(map(RowResult.from_samples, rows)), joint, seed=seed)
    return Group(value, of.rows, of.samples, of.mean, of.interval, of.invalid, of.bounds)
