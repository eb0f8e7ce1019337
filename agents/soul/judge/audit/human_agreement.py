"""Measure how well a judge agrees with people, on pairs of conversations that people labelled.

Failed judgments are counted and excluded, never scored. If there are several annotators, the table also shows how well
they agree among themselves, which is the most that can be expected of a judge.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from statistics import fmean
from typing import Any

from pydantic import TypeAdapter
from rich.table import Table

from soul.errors import Cause, JudgeFailure
from soul.judge.audit.agreement_statistics import (
    Estimate,
    Level,
    accuracy,
    cohens_kappa,
    correlations,
    krippendorff_alpha,
)
from soul.judge.audit.human_labels import GTEvalLabel, Label, PairwiseLabel
from soul.judge.judge import Judge
from soul.judge.mirrorbench_judgments import WIN, gteval, pairwise


@dataclass(frozen=True)
class MetricAgreement:
    """A judge's agreement with people on one metric. Pairwise labels count as wins of the simulated user: 0, 0.5, 1.

    Attributes:
        n: labelled pairs with at least one verdict; everything below except `human_alpha` is computed from these.
        left_out: labelled pairs for which the judge gave no verdict at all.
        failures: failed judgments, by cause.
        judge_mean, human_mean: a gap between the two is a bias that correlations do not show.
        correlations: pearson, spearman, kendall. A pair's score is the mean over repeats, and over annotators.
        accuracy, kappa: pairwise only, on the most frequent label of the repeats and of the annotators (draw: tie).
        human_alpha: Krippendorff's alpha among the annotators, the human ceiling; None with one annotator.
        judge_alpha: the same among the judge's repeats, which shows whether it agrees with itself.
    """

    n: int
    left_out: int
    failures: Mapping[Cause, int]
    judge_mean: float | None
    human_mean: float | None
    correlations: Mapping[str, Estimate]
    accuracy: Estimate | None
    kappa: Estimate | None
    human_alpha: float | None
    judge_alpha: float | None


@dataclass(frozen=True)
class Agreement:
    """The result of `compare`; None for a metric that the file has no labels for."""

    gteval: MetricAgreement | None
    pairwise: MetricAgreement | None
    repeats: int
    seed: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Agreement:
        """Read back what `to_json` gives, as JSON.

        Raises:
            ValidationError: it is something else.
        """
        return TypeAdapter(cls).validate_json(text)


@dataclass(frozen=True)
class _Judged:
    """A label and the judge's verdicts on it, one for each repeat: a score, or the cause of the failure."""

    label: Label
    verdicts: Sequence[float | Cause]

    @property
    def scores(self) -> list[float | None]:
        return [None if isinstance(verdict, str) else verdict for verdict in self.verdicts]


async def compare(judge: Judge, labels: Sequence[Label], *, repeats: int = 1, seed: int = 0) -> Agreement:
    """Ask the judge about every labelled pair, all at once (the gateway limits concurrency), and compare.

    Args:
        repeats: the number of judgments of every pair (self-consistency; section C.9 of the paper).
        seed: for the order of A and B, and for the bootstrap.

    Raises:
        ValueError: fewer than one repeat.
    """
    if repeats < 1:
        raise ValueError(f"repeats: expected at least 1, got {repeats}")

    async def judged(label: Label) -> _Judged:
        return _Judged(label, await asyncio.gather(*(_verdict(judge, label, seed, i) for i in range(repeats))))

    all_judged = await asyncio.gather(*map(judged, labels))
    metrics: list[MetricAgreement | None] = []
    for kind in (GTEvalLabel, PairwiseLabel):
        pairs = [pair for pair in all_judged if isinstance(pair.label, kind)]
        metrics.append(_metric(pairs, kind is PairwiseLabel, seed) if pairs else None)
    return Agreement(metrics[0], metrics[1], repeats, seed)


async def _verdict(judge: Judge, label: Label, seed: int, sample: int) -> float | Cause:
    real, simulated = label.conversations
    try:
        if isinstance(label, GTEvalLabel):
            return (await gteval(judge, real, simulated, sample)).score
        return (await pairwise(judge, real, simulated, seed, sample)).score
    except JudgeFailure as failure:
        return failure.cause


def _metric(judged: Sequence[_Judged], labelled: bool, seed: int) -> MetricAgreement:
    """The agreement on one metric; `labelled`: its scores are codes for labels (pairwise)."""
    kept = [pair for pair in judged if any(score is not None for score in pair.scores)]
    by_judge = [_given(pair.scores) for pair in kept]
    by_people = [_given(pair.label.scores) for pair in kept]
    judge_scores, human_scores = [fmean(scores) for scores in by_judge], [fmean(scores) for scores in by_people]
    judge_labels, human_labels = [_majority(scores) for scores in by_judge], [_majority(s) for s in by_people]
    level: Level = "nominal" if labelled else "interval"
    return MetricAgreement(
        n=len(kept),
        left_out=len(judged) - len(kept),
        failures=dict(Counter(verdict for pair in judged for verdict in pair.verdicts if isinstance(verdict, str))),
        judge_mean=fmean(judge_scores) if kept else None,
        human_mean=fmean(human_scores) if kept else None,
        correlations=correlations(judge_scores, human_scores, seed=seed),
        accuracy=accuracy(judge_labels, human_labels, seed=seed) if labelled else None,
        kappa=cohens_kappa(judge_labels, human_labels, seed=seed) if labelled else None,
        human_alpha=_alpha([pair.label.scores for pair in judged], level),
        judge_alpha=_alpha([pair.scores for pair in kept], level),
    )


def _given(scores: Sequence[float | None]) -> list[float]:
    return [score for score in scores if score is not None]


def _majority(scores: Sequence[float]) -> float:
    """The most frequent label; a tie if two labels are equally frequent."""
    (first, count), *others = Counter(scores).most_common()
    return WIN["tie"] if others and others[0][1] == count else first


def _alpha(units: Sequence[Sequence[float | None]], level: Level) -> float | None:
    """Krippendorff's alpha of units that may have different numbers of raters."""
    return krippendorff_alpha(list(zip_longest(*units)), level)


def table(agreement: Agreement) -> Table:
    """The agreement as a table for the terminal."""
    shown = Table("metric", "measure", "value", "95% interval", "pairs", title="The judge against human labels")
    for name, metric in (("GTEval", agreement.gteval), ("pairwise", agreement.pairwise)):
        if metric is None:
            continue
        if shown.row_count:
            shown.add_section()
        estimates = {**metric.correlations, "accuracy": metric.accuracy, "Cohen's kappa": metric.kappa}
        for measure, estimate in estimates.items():
            if estimate is not None:
                shown.add_row(name, measure, _number(estimate.value), _interval(estimate), str(estimate.n))
        shown.add_row(name, "mean score of the judge", _number(metric.judge_mean), "", str(metric.n))
        shown.add_row(name, "mean score of people", _number(metric.human_mean), "", str(metric.n))
        shown.add_row(name, "alpha among annotators", _number(metric.human_alpha), "", "")
        if agreement.repeats > 1:
            shown.add_row(name, "alpha among the judge's repeats", _number(metric.judge_alpha), "", "")
        causes = ", ".join(f"{cause} {count}" for cause, count in sorted(metric.failures.items()))
        shown.add_row(name, "pairs without a verdict", str(metric.left_out), "", "")
        shown.add_row(name, "failed judgments", causes or "0", "", "")
    return shown


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    dropped = f" ({estimate.dropped} resamples undefined)" if estimate.dropped else ""
    return f"{estimate.low:.3f} to {estimate.high:.3f}{dropped}"
