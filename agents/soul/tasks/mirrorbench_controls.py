"""MirrorBench's controls, and its scores calibrated by them (paper, section C.9; Hathidara et al., 2026).

HH: the real conversation judged against itself. PP: the simulated one judged against itself. The benchmark's public
code (mirrorbench/metrics/judge/calibration.py) maps each score so that the mean of PP becomes 0 and the mean of HH 1,
cuts it to [0, 1], and takes the mean. Rubric-and-reason has no PP control; its HH control is only reported.

Read the controls first: a judge that gives both the same score (GTEval's should be near 1 in both, pairwise near 0.5)
leaves nothing between them, and then every calibrated score is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from soul.judge import Judge
from soul.judge.judge import all_answers
from soul.judge.mirrorbench_judgments import Conversation, Samples, judgments
from soul.metrics.set_metrics import Array, Outcome, SetMetric

CALIBRATED = ("gteval", "pairwise")
_GAP = 1e-6  # the smallest difference of the controls, as in the public code


async def controls(
    judge: Judge, real: Conversation, simulated: Conversation, seed: int, samples: Samples
) -> dict[str, float]:
    """The scores of both controls of an episode: "hh_gteval", "pp_pairwise" and so on."""
    human, proxy = await all_answers(
        judgments(judge, real, real, seed, samples),
        judgments(judge, simulated, simulated, seed, samples._replace(rubric_and_reason=0)),
    )
    both = {"hh": human, "pp": proxy}
    return {f"{kind}_{name}": score for kind, judged in both.items() for name, score in judged.scores.items()}


@dataclass(frozen=True)
class Calibrated:
    """The mean of a judgment's scores between the mean of its PP control (0) and that of its HH control (1).

    Attributes:
        places, shares: the row of each sample, and its share of the row.
        scores, human, proxy: the sample's score, and those of its HH and PP controls; NaN for a silent episode, which
            was not judged and counts as 0.
    """

    name: str
    places: Array
    shares: Array
    scores: Array
    human: Array
    proxy: Array

    @classmethod
    def from_outcomes(cls, judgment: str, outcomes: Sequence[Outcome]) -> Calibrated:
        """Build it from samples that have a verdict."""
        names = judgment, f"hh_{judgment}", f"pp_{judgment}"
        metrics = [outcome.scored.verdict.metrics for outcome in outcomes if not isinstance(outcome.scored, str)]
        return cls(
            f"{judgment}_calibrated",
            np.array([outcome.place for outcome in outcomes], dtype=int),
            np.array([outcome.share for outcome in outcomes]),
            *(np.array([values.get(name, np.nan) for values in metrics]) for name in names),
        )

    def values(self, weights: Array) -> Array:
        drawn = weights[:, self.places] * self.shares
        judged = ~np.isnan(self.scores)
        heard = drawn[:, judged]
        human, proxy = (_divided(heard @ control[judged], heard.sum(axis=1)) for control in (self.human, self.proxy))
        units = np.maximum(_GAP, human - proxy)[:, None]
        scores = np.clip((self.scores[judged] - proxy[:, None]) / units, 0, 1)
        return _divided((heard * np.nan_to_num(scores)).sum(axis=1), drawn.sum(axis=1))


def calibrated_metrics(outcomes: Sequence[Outcome]) -> Sequence[SetMetric]:
    """The calibrated score of each judgment; none if no sample has controls."""
    known = [outcome for outcome in outcomes if not isinstance(outcome.scored, str)]
    metrics = [outcome.scored.verdict.metrics for outcome in known if not isinstance(outcome.scored, str)]
    if not any(f"hh_{CALIBRATED[0]}" in values for values in metrics):
        return []
    return [Calibrated.from_outcomes(judgment, known) for judgment in CALIBRATED]


def _divided(top: Array, bottom: Array) -> Array:
    return np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1), np.nan)
