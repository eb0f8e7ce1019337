"""Measure how well a judge agrees with people, on conversations that people labelled.

Failed judgments are counted and excluded, never scored. If there are several annotators, the table also shows how well
they agree among themselves, which is the most that can be expected of a judge.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
from soul.judge.audit.human_labels import GTEvalLabel, Label, PairwiseLabel, RecordedLabel
from soul.judge.judge import Judge
from soul.judge.mirrorbench_judgments import WIN, gteval, pairwise


@dataclass(frozen=True)
class MetricAgreement:
    """A judge's agreement with people on one metric. Pairwise labels count as wins of the simulated user: 0, 0.5, 1."""

    n: int  # labelled pairs with at least one verdict; everything below except `human_alpha` is computed from these
    left_out: int  # labelled pairs for which the judge gave no verdict at all
    failures: Mapping[Cause, int]  # failed judgments, by cause
    # judge_mean, human_mean: a gap between the two is a bias that correlations do not show
    judge_mean: float | None
    human_mean: float | None
    # pearson, spearman, kendall. A pair's score is the mean over repeats, and over annotators.
    correlations: Mapping[str, Estimate]
    # accuracy, kappa: pairwise only, on the most frequent label of the repeats and of the annotators (draw: tie)
    accuracy: Estimate | None
    kappa: Estimate | None
    human_alpha: float | None  # Krippendorff's alpha among the annotators, the human ceiling; None with one annotator
    judge_alpha: float | None  # the same among the judge's repeats, which shows whether it agrees with itself


@dataclass(frozen=True)
class Agreement:
    """The result of `compare`; None for a metric that the file has no labels for.

    Attributes:
        recorded: metric of a task -> the agreement with the scores that its judge gave when the texts were written.
    """

    gteval: MetricAgreement | None
    pairwise: MetricAgreement | None
    repeats: int
    seed: int
    recorded: Mapping[str, MetricAgreement] = field(default_factory=dict)

    @property
    def metrics(self) -> dict[str, MetricAgreement]:
        """Every metric that was labelled, by the name that tables show."""
        asked = {"GTEval": self.gteval, "pairwise": self.pairwise}
        known = {name: metric for name, metric in asked.items() if metric}
        return known | {f"{name}, recorded": metric for name, metric in self.recorded.items()}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Agreement:
        """Read back what `to_json` gives, as JSON."""
        return TypeAdapter(cls).validate_json(text)


Verdicts = Sequence[float | Cause]  # one for each repeat: a score, or the cause of the failure


async def compare(judge: Judge, labels: Sequence[Label], *, repeats: int = 1, seed: int = 0) -> Agreement:
    """Ask the judge about every labelled pair, all at once (the gateway limits concurrency), and compare.

    Args:
        repeats: the number of judgments of every pair (self-consistency; section C.9 of the paper), at least 1.
        seed: for the order of A and B, and for the bootstrap.
    """

    async def judged(label: Label) -> Verdicts:
        if isinstance(label, RecordedLabel):
            return [label.judge_score]
        return await asyncio.gather(*(_verdict(judge, label, seed, i) for i in range(repeats)))

    verdicts = await asyncio.gather(*map(judged, labels))
    return measure(list(zip(labels, verdicts, strict=True)), repeats=repeats, seed=seed)


def measure(judged: Sequence[tuple[Label, Verdicts]], *, repeats: int = 1, seed: int = 0) -> Agreement:
    """Compare labels with verdicts that are known."""
    by_metric: dict[str | type[Label], list[tuple[Label, Verdicts]]] = {}
    for pair in judged:
        name = pair[0].metric if isinstance(pair[0], RecordedLabel) else type(pair[0])
        by_metric.setdefault(name, []).append(pair)
    found = {name: _metric(pairs, name is PairwiseLabel, seed) for name, pairs in by_metric.items()}
    recorded = {name: metric for name, metric in found.items() if isinstance(name, str)}
    return Agreement(found.get(GTEvalLabel), found.get(PairwiseLabel), repeats, seed, recorded)


async def _verdict(judge: Judge, label: GTEvalLabel | PairwiseLabel, seed: int, sample: int) -> float | Cause:
    real, simulated = label.conversations
    try:
        if isinstance(label, GTEvalLabel):
            return (await gteval(judge, real, simulated, sample)).score
        return (await pairwise(judge, real, simulated, seed, sample)).score
    except JudgeFailure as failure:
        return failure.cause


def _metric(judged: Sequence[tuple[Label, Verdicts]], labelled: bool, seed: int) -> MetricAgreement:
    """The agreement on one metric; `labelled`: its scores are codes for labels (pairwise)."""
    scored = [(label, [one for one in verdicts if not isinstance(one, str)]) for label, verdicts in judged]
    kept = [(label, scores) for label, scores in scored if scores]
    by_judge = [scores for _, scores in kept]
    by_people = [[score for score in label.scores if score is not None] for label, _ in kept]
    means = [fmean(scores) for scores in by_judge], [fmean(scores) for scores in by_people]
    modes = [_majority(scores) for scores in by_judge], [_majority(scores) for scores in by_people]
    level: Level = "nominal" if labelled else "interval"
    return MetricAgreement(
        n=len(kept),
        left_out=len(judged) - len(kept),
        failures=dict(Counter(one for _, verdicts in judged for one in verdicts if isinstance(one, str))),
        judge_mean=fmean(means[0]) if kept else None,
        human_mean=fmean(means[1]) if kept else None,
        correlations=correlations(*means, seed=seed),
        accuracy=accuracy(*modes, seed=seed) if labelled else None,
        kappa=cohens_kappa(*modes, seed=seed) if labelled else None,
        human_alpha=krippendorff_alpha(list(zip_longest(*(label.scores for label, _ in judged))), level),
        judge_alpha=krippendorff_alpha(list(zip_longest(*by_judge)), level),
    )


def _majority(scores: Sequence[float]) -> float:
    """The most frequent label; a tie if two labels are equally frequent."""
    (first, count), *others = Counter(scores).most_common()
    return WIN["tie"] if others and others[0][1] == count else first


def table(agreement: Agreement) -> Table:
    """The agreement as a table for the terminal."""
    shown = Table("metric", "measure", "value", "95% interval", "pairs", title="The judge against human labels")
    for name, metric in agreement.metrics.items():
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
