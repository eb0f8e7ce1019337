"""One sample of a run and one row with its samples: what the numbers of a set are made of.

A sample without a verdict stays in its row, as a count: it has no reward, and the row says how many it lacks.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, NamedTuple

from agents.judge.usage import Usage
from agents.task import Metric, Verdict


class Sample(NamedTuple):
    """What the numbers need of one line of the journal; the messages are left behind."""

    number: int
    sample: int
    row: int
    verdict: Verdict | None
    cause: str | None
    contentless: bool
    seconds: Mapping[str, float]
    usage: Mapping[str, Usage]

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Sample:
        """Read one line of the journal."""
        draft, usage = line["draft"], {role: Usage.of(count) for role, count in line["usage"].items()}
        verdict = Verdict(draft["reward"], draft["metrics"] or {}) if draft["valid"] else None
        cause = None if draft["valid"] else (draft["failure"] or {}).get("cause", "unknown")
        keys = line["number"], line["sample"], line["row"]
        return cls(*keys, verdict, cause, draft["contentless"], draft["seconds"] or {}, usage)


@dataclass(frozen=True)
class RowResult:
    """The samples of one row.

    Attributes:
        number: the row's position in the set's file; `row` is the index that the record itself carries.
        rewards: of the valid samples.
        invalid: how many gave no verdict.
    """

    number: int
    row: int
    rewards: tuple[float, ...]
    invalid: int

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> RowResult:
        """The samples of one row, at least one."""
        rewards = tuple(sample.verdict.reward for sample in samples if sample.verdict)
        return cls(samples[0].number, samples[0].row, rewards, len(samples) - len(rewards))

    @property
    def mean(self) -> float | None:
        """Of the valid samples; None where there are none."""
        return statistics.fmean(self.rewards) if self.rewards else None

    def filled(self, value: float) -> float:
        """The mean had every invalid sample scored `value`."""
        return statistics.fmean([*self.rewards, *[value] * self.invalid])

    def best_at(self, k: int, metric: Metric) -> float:
        """The expected best of k samples: the mean over all ways to choose k of the valid ones, without repeats.

        For rewards of 0 and 1 this is the unbiased pass@k.
        """
        ranked = sorted(self.rewards, reverse=not metric.higher_is_better)  # the best comes last
        return sum(comb(i, k - 1) * reward for i, reward in enumerate(ranked)) / comb(len(ranked), k)
