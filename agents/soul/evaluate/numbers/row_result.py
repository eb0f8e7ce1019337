"""One row with its samples: a part of a set's numbers.

A sample without a verdict has no reward; its row counts it as invalid.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

from soul.one_turn import Voting
from soul.record import SessionRecord
from soul.task import Task
from soul.task_types import Metric


@dataclass(frozen=True)
class RowResult:
    """The samples of one row.

    Attributes:
        number: the row's position in the set's file; `row` is the record's own index.
        rewards: of the valid samples.
        invalid: number of samples without a verdict.
        votes: the answers of the valid samples, None for one without; None if the task's answers cannot be counted.
    """

    number: int
    row: int
    rewards: tuple[float, ...]
    invalid: int
    votes: tuple[str | None, ...] | None = None

    @classmethod
    def from_samples(cls, samples: Sequence[SessionRecord], task: Task[Any] | None = None) -> RowResult:
        """From the samples of one row, at least one; with `task`, which reads the answers, also their votes."""
        rewards = tuple(sample.draft.reward for sample in samples if sample.draft.reward is not None)
        votes: tuple[str | None, ...] | None = None
        if isinstance(task, Voting):  # a row of one sample needs no vote, and reading answers takes time
            several = len(samples) > 1
            votes = tuple(vote_of(task, sample) if several else None for sample in samples if sample.draft.valid)
        return cls(samples[0].number, samples[0].row, rewards, len(samples) - len(rewards), votes)

    @property
    def mean(self) -> float | None:
        """The mean reward of the valid samples; None if there are none."""
        return statistics.fmean(self.rewards) if self.rewards else None

    def filled(self, value: float) -> float:
        """The mean if every invalid sample had scored `value`."""
        return statistics.fmean([*self.rewards, *[value] * self.invalid])

    def best_at(self, k: int, metric: Metric) -> float:
        """The expected best of k samples: the mean over all ways to choose k of the valid ones, without repeats.

        For rewards of 0 and 1 this is pass@k, in its unbiased form (Chen et al., 2021).
        """
        ranked = sorted(self.rewards, reverse=not metric.higher_is_better)  # best last
        return sum(comb(i, k - 1) * reward for i, reward in enumerate(ranked)) / comb(len(ranked), k)

    def majority(self, metric: Metric) -> float:
        """The reward of the most frequent answer of the valid samples (self-consistency, Wang et al., 2023).

        If answers tie, this is the mean of their rewards. A sample without an answer does not vote; without any vote,
        the reward is the headline's worst.

        Raises:
            ValueError: the task's answers cannot be counted.
        """
        if self.votes is None:
            raise ValueError(f"row number {self.number}: its task counts no votes")
        counts = Counter(vote for vote in self.votes if vote is not None)
        if not counts:
            return metric.worst
        most = max(counts.values())
        by_vote: dict[str | None, list[float]] = {}
        for vote, reward in zip(self.votes, self.rewards, strict=True):
            by_vote.setdefault(vote, []).append(reward)
        # Equal answers usually earn the same reward; a task that also rates the wording gets their mean.
        return statistics.fmean(statistics.fmean(by_vote[vote]) for vote, count in counts.items() if count == most)


def vote_of(task: Task[Any], sample: SessionRecord) -> str | None:
    """The answer in a sample; None if it has none or failed, or if the task's answers cannot be counted."""
    if not isinstance(task, Voting) or not sample.draft.valid:
        return None
    return task.vote(task.row_type.model_validate(sample.record), task.saved_episode(sample.draft))
