"""The rows that two evaluations of one set share.

Two rows are a pair if set, place in the file and record agree. Their judge prompts may differ; `protocol.py` reports
that. A row's score is the mean reward of its valid samples, so runs with different numbers of samples per row can be
paired. Rows that cannot be paired are counted by reason and never filled in.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from soul.record import SessionRecord

Samples = Sequence[SessionRecord]


class Pair(NamedTuple):
    """One row in both runs, with the valid samples of each, at least one."""

    number: int
    base: Samples
    other: Samples


class Paired(NamedTuple):
    """The pairs of one set, in the order of its file.

    Attributes:
        not_paired: reason -> number of other rows; a row without a verdict in both runs counts twice.
        shortened: pairs whose record was shortened in a run to fit the model's context.
        failed: samples without a verdict in paired rows.
    """

    pairs: Sequence[Pair]
    not_paired: Mapping[str, int]
    shortened: int
    failed: int


def pair_up(base: Samples, other: Samples) -> Paired:
    """Pair the rows of one set, given each run's samples of it in any order."""
    left, right = by_row(base), by_row(other)
    both = sorted(left.keys() & right.keys())
    same = [number for number in both if same_record(left[number][0], right[number][0])]
    valid = [Pair(number, _valid(left[number]), _valid(right[number])) for number in same]
    pairs = [pair for pair in valid if pair.base and pair.other]
    counts = {
        "only in baseline": len(left) - len(both),
        "only in other": len(right) - len(both),
        "other record": len(both) - len(same),
        "invalid in baseline": sum(not pair.base for pair in valid),
        "invalid in other": sum(not pair.other for pair in valid),
    }
    samples = [[*left[pair.number], *right[pair.number]] for pair in pairs]
    return Paired(
        pairs,
        {reason: count for reason, count in counts.items() if count},
        sum(any(sample.shortened for sample in of_row) for of_row in samples),
        sum(not sample.draft.valid for of_row in samples for sample in of_row),
    )


def same_record(one: SessionRecord, other: SessionRecord) -> bool:
    """Check whether two samples are of the same row.

    Fields that were shortened in one of them, or that only one version of the task has, are not compared.
    """
    cut = {*one.shortened, *other.shortened}
    left, right = one.record, other.record
    return one.task == other.task and all(left[key] == right[key] for key in left.keys() & right.keys() - cut)


def by_row(samples: Samples) -> dict[int, list[SessionRecord]]:
    """The samples of each row, in order."""
    rows: dict[int, list[SessionRecord]] = {}
    for sample in sorted(samples, key=lambda sample: sample.key):
        rows.setdefault(sample.number, []).append(sample)
    return rows


def mean_reward(samples: Samples) -> float:
    """The mean reward of valid samples."""
    return statistics.fmean(sample.draft.reward for sample in samples if sample.draft.reward is not None)


def _valid(samples: Samples) -> Samples:
    return [sample for sample in samples if sample.draft.valid]
