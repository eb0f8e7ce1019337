"""One sample of a run and one row with its samples: what the numbers of a set are made of.

A sample without a verdict stays in its row, as a count: it has no reward, and the row says how many it lacks.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, NamedTuple

from soul.judge import Usage
from soul.record import AttemptRecord, SessionRecord
from soul.task import Metric, Verdict


class ScoredSample(NamedTuple):
    """What the numbers need of one sample's record."""

    number: int
    sample: int
    row: int
    verdict: Verdict | None
    cause: str | None
    contentless: bool
    seconds: Mapping[str, float]
    usage: Mapping[str, Usage]
    draft: AttemptRecord
    record: Mapping[str, Any]
    vote: str | None = None

    @classmethod
    def from_record(cls, sample: SessionRecord, vote: str | None = None) -> ScoredSample:
        """Read a sample's record; `vote` is the answer in it (`soul.one_turn.Voting`)."""
        draft = sample.draft
        return cls(
            number=sample.number,
            sample=sample.sample,
            row=sample.row,
            verdict=draft.verdict,
            cause=draft.cause,
            contentless=draft.contentless,
            seconds=draft.seconds,
            usage=sample.usage,
            draft=draft,
            record=sample.record,
            vote=vote,
        )


@dataclass(frozen=True)
class RowResult:
    """The samples of one row.

    Attributes:
        number: the row's position in the set's file; `row` is the index that the record itself carries.
        rewards: of the valid samples.
        invalid: how many gave no verdict.
        votes: the answers of the valid samples, None for one without; None where the task's answers cannot be counted.
    """

    number: int
    row: int
    rewards: tuple[float, ...]
    invalid: int
    votes: tuple[str | None, ...] | None = None

    @classmethod
    def from_samples(cls, samples: Sequence[ScoredSample], voting: bool = False) -> RowResult:
        """The samples of one row, at least one; `voting` where their answers can be counted."""
        rewards = tuple(sample.verdict.reward for sample in samples if sample.verdict)
        votes = tuple(sample.vote for sample in samples if sample.verdict) if voting else None
        return cls(samples[0].number, samples[0].row, rewards, len(samples) - len(rewards), votes)

    @property
    def mean(self) -> float | None:
        """Of the valid samples; None where there are none."""
        return statistics.fmean(self.rewards) if self.rewards else None

    def filled(self, value: float) -> float:
        """The mean had every invalid sample scored `value`."""
        return statistics.fmean([*self.rewards, *[value] * self.invalid])

    def best_at(self, k: int, metric: Metric) -> float:
        """The expected best of k samples: the mean over all ways to choose k of the valid ones, without repeats.

        For rewards of 0 and 1 this is pass@k, in its unbiased form (Chen et al., 2021).
        """
        ranked = sorted(self.rewards, reverse=not metric.higher_is_better)  # the best comes last
        return sum(comb(i, k - 1) * reward for i, reward in enumerate(ranked)) / comb(len(ranked), k)

    def majority(self, metric: Metric) -> float:
        """What the answer that most of the valid samples gave earns (self-consistency, Wang et al., 2023).

        Of answers that tie, one is drawn in expectation: the mean of what each earns. A sample without an answer does
        not vote; where none votes nothing was answered, which is the headline's worst.

        Raises:
            ValueError: the task's answers cannot be counted.
        """
        if self.votes is None:
            raise ValueError(f"row number {self.number}: its task counts no votes")
        counts = Counter(vote for vote in self.votes if vote is not None)
        if not counts:
            return metric.worst
        most = max(counts.values())
        earned = {vote: self._earned(vote) for vote, count in counts.items() if count == most}
        return statistics.fmean(earned.values())

    def _earned(self, vote: str) -> float:
        """Equal answers earn the same; a task that rates wording too has their mean."""
        assert self.votes is not None
        return statistics.fmean(r for r, v in zip(self.rewards, self.votes, strict=True) if v == vote)
