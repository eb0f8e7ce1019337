"""The rows that two runs of one set share.

Two rows are a pair if set, place in the file and record agree. Their judge prompts may differ; `protocol.py` reports
that. A row's score is the mean reward of its valid samples, so runs with different numbers of samples per row can be
paired. Rows that cannot be paired are counted by reason and never filled in.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from soul.record import SessionRecord


@dataclass(frozen=True)
class Pair:
    """One row in both runs.

    Attributes:
        number: the row's place in the set's file; `row`: the index in the record itself.
        base, other: the valid samples of each run, at least one.
    """

    number: int
    row: int
    base: tuple[SessionRecord, ...]
    other: tuple[SessionRecord, ...]

    @property
    def scores(self) -> tuple[float, float]:
        """The row's score in each run."""
        return _mean(self.base), _mean(self.other)

    @property
    def difference(self) -> float:
        """The other run's score minus the baseline's."""
        base, other = self.scores
        return other - base

    def shown(self) -> tuple[SessionRecord, SessionRecord]:
        """The sample of each run that explains most of the difference: lowest and highest reward if the score rose."""
        of_base, of_other = (min, max) if self.difference > 0 else (max, min)
        return of_base(self.base, key=_reward), of_other(self.other, key=_reward)


@dataclass(frozen=True)
class Paired:
    """The pairs of one set, in the order of its file, and counts of the other rows.

    Attributes:
        only_base, only_other: rows that the other run does not have (yet).
        changed: rows whose records differ, so they are not the same row.
        invalid_base, invalid_other: rows without any verdict in that run; a row can be in both counts.
        unscored: rows in at least one of these two counts.
        shortened: pairs whose record was shortened in a run to fit the model's context.
        failed: samples without a verdict in paired rows.
    """

    pairs: tuple[Pair, ...]
    only_base: int
    only_other: int
    changed: int
    invalid_base: int
    invalid_other: int
    unscored: int
    shortened: int
    failed: int


def pair_up(base: Sequence[SessionRecord], other: Sequence[SessionRecord]) -> Paired:
    """Pair the rows of one set, given each run's samples of it in any order."""
    left, right = _by_row(base), _by_row(other)
    both = sorted(left.keys() & right.keys())
    same = [number for number in both if same_record(left[number][0], right[number][0])]
    valid = {number: (_valid(left[number]), _valid(right[number])) for number in same}
    pairs = tuple(Pair(number, left[number][0].row, *valid[number]) for number in same if all(valid[number]))
    paired = [sample for pair in pairs for sample in (*left[pair.number], *right[pair.number])]
    return Paired(
        pairs=pairs,
        only_base=len(left) - len(both),
        only_other=len(right) - len(both),
        changed=len(both) - len(same),
        invalid_base=sum(not samples for samples, _ in valid.values()),
        invalid_other=sum(not samples for _, samples in valid.values()),
        unscored=len(same) - len(pairs),
        shortened=sum(any(sample.shortened for sample in (*pair.base, *pair.other)) for pair in pairs),
        failed=sum(not sample.draft.valid for sample in paired),
    )


def same_record(one: SessionRecord, other: SessionRecord) -> bool:
    """Check whether two samples are of the same row.

    Fields that were shortened in one of them, or that only one version of the task has, are not compared.
    """
    cut = {*one.shortened, *other.shortened}
    left, right = one.record, other.record
    return one.task == other.task and all(left[key] == right[key] for key in left.keys() & right.keys() - cut)


def _by_row(samples: Sequence[SessionRecord]) -> dict[int, list[SessionRecord]]:
    rows: dict[int, list[SessionRecord]] = {}
    for sample in sorted(samples, key=lambda sample: sample.key):
        rows.setdefault(sample.number, []).append(sample)
    return rows


def _valid(samples: Sequence[SessionRecord]) -> tuple[SessionRecord, ...]:
    return tuple(sample for sample in samples if sample.draft.valid)


def _reward(sample: SessionRecord) -> float:
    assert sample.draft.reward is not None  # only valid samples are in a pair
    return sample.draft.reward


def _mean(samples: Sequence[SessionRecord]) -> float:
    return statistics.fmean(map(_reward, samples))
