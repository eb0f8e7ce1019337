"""Measure how well a judge agrees with people, on texts that people labelled.

The agreement of the judge with people is shown between a ceiling, how well one person agrees with the others, and a
floor, what the best constant answer reaches. Failed judgments are counted and excluded, never scored.

A judge's expected score is read from the log-probabilities of its levels (`LevelJudge`), where an endpoint gives them.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from statistics import fmean, median, stdev
from string import ascii_uppercase
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo
from rich.table import Table as RichTable

from soul.errors import Cause, JudgeFailure, SessionError
from soul.judge.audit.agreement_statistics import (
    Estimate,
    Level,
    accuracy,
    agreement,
    cohens_kappa,
    krippendorff_alpha,
)
from soul.judge.audit.human_labels import Label, RecordedLabel, Scores
from soul.judge.call.untrusted import data_message, require_content
from soul.judge.client import CANDIDATES, Request
from soul.judge.judge import Judge, all_answers
from soul.judge.mirrorbench_judgments import WIN
from soul.message import Message
from soul.table import Table

CODES = "pairwise"  # the metric whose scores are codes for labels: the simulated user's share of wins
EXPECTED = ", expected"  # after the name of a metric: the scores are expected ones
LEAST_MASS = 0.5  # probability of all levels together; with less, the model was about to write something else
SchemaT = TypeVar("SchemaT", bound=BaseModel)


@dataclass
class LevelJudge(Judge):
    """A judge that gives expected scores: for each, one call for the letter of a level, without reasoning.

    Levels are letters because numbers of two digits are several tokens in many models. A whole number has a level for
    each value; another number has eleven.
    """

    async def ask(
        self,
        schema: type[SchemaT],
        instructions: str,
        data: Mapping[str, Any],
        *,
        policy_texts: Sequence[str] | None = None,
        min_words: int = 1,
        sample: int = 0,
    ) -> SchemaT:
        """An instance with expected scores and no texts (see `Judge.ask`).

        Raises:
            JudgeFailure: the schema asks for more than texts and levels; the endpoint gives no log-probabilities; or
                the levels have too little probability (`invalid`).
        """
        if policy_texts is not None:
            require_content(policy_texts, min_words)
        levels: dict[str, list[float]] = {}
        _filled(schema, lambda path, field: levels.setdefault(path, _levels(path, field))[0])
        block = data_message(data)  # one for all calls, so that the endpoint's cache knows most of each prompt
        calls = []
        for path, of in levels.items():
            letters = ", ".join(f"{letter} = {level:g}" for letter, level in zip(ascii_uppercase, of, strict=False))
            question = (
                f"Do not write the JSON object now. Decide only on {path}, and answer with the letter of its level and "
                f"nothing else: {letters}."
            )
            key = self._key(schema, f"{instructions}\n\n{question}", data, sample) if self.cached else None
            calls.append(self._counted(self._expected(instructions, f"{block}\n\n{question}", key, of)))
        scores = dict(zip(levels, await all_answers(*calls), strict=True))
        return _filled(schema, lambda path, _: scores[path])

    async def _expected(self, system: str, question: str, key: bytes | None, levels: Sequence[float]) -> float:
        messages: tuple[Message, ...] = ({"role": "system", "content": system}, {"role": "user", "content": question})
        request = Request(messages, key=key, first_token=True)
        candidates = json.loads((await self.endpoint_client.complete(request, self.usage)).text)
        mass = dict.fromkeys(ascii_uppercase[: len(levels)], 0.0)
        for token, log_probability in candidates.items():
            if token.strip() in mass:
                mass[token.strip()] += math.exp(log_probability)
        if (whole := sum(mass.values())) < LEAST_MASS:
            raise JudgeFailure("invalid", f"{self.endpoint.name}: the levels have {whole:.0%} of the probability")
        return sum(map(float.__mul__, mass.values(), levels)) / whole


def _filled(schema: type[SchemaT], score: Callable[[str, FieldInfo], float], at: str = "") -> SchemaT:
    """An instance whose numbers are these scores, by their places in the schema."""
    values: dict[str, Any] = {}
    for name, field in schema.model_fields.items():
        kind, path = field.annotation, f"{at}{name}"
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            values[name] = _filled(kind, score, f"{path}.")
        elif kind in (int, float):
            values[name] = score(path, field)
        elif kind is str:
            values[name] = "-"
        else:
            raise JudgeFailure("invalid", f"{path} is neither a text nor a number with levels")
    return schema.model_construct(**values)


def _levels(path: str, field: FieldInfo) -> list[float]:
    low, high = (
        next((getattr(bound, name) for bound in field.metadata if hasattr(bound, name)), None) for name in ("ge", "le")
    )
    if low is None or high is None or (field.annotation is int and high - low >= CANDIDATES):
        raise JudgeFailure("invalid", f"{path} has no bounds, or more than {CANDIDATES} levels")
    count = high - low if field.annotation is int else 10
    return [low + (high - low) * i / count for i in range(count + 1)]


@dataclass(frozen=True)
class Expected:
    """A label whose judge is asked for expected scores."""

    label: Label

    @property
    def people(self) -> Mapping[str, Scores]:
        return {f"{name}{EXPECTED}": scores for name, scores in self.label.people.items()}

    @property
    def recorded(self) -> Mapping[str, float]:
        return {}

    async def ask(self, judge: Judge, seed: int, sample: int) -> Mapping[str, float]:
        known = await self.label.ask(LevelJudge(**vars(judge)), seed, sample)
        return {f"{name}{EXPECTED}": score for name, score in known.items()}


@dataclass(frozen=True)
class MetricAgreement:
    """A judge's agreement with people on one metric. Pairwise labels count as wins of the simulated user: 0, 0.5, 1."""

    n: int  # labelled texts with at least one verdict; `judge_...` and `measures` are computed from these
    left_out: int  # labelled texts for which the judge gave no verdict at all
    failures: Mapping[Cause, int]  # failed judgments, by cause
    # Mean and standard deviation. A gap between the means is a bias that correlations do not show.
    judge_mean: float | None
    judge_sd: float | None
    human_mean: float | None
    human_sd: float | None
    # The judge against people; a text's score is the mean over repeats, and over annotators. Pairwise also has accuracy
    # and kappa, on the most frequent label of the repeats and of the annotators (draw: tie).
    measures: Mapping[str, Estimate]
    # One person of each text, drawn by seed, against the mean of the others: the ceiling. Empty with one annotator.
    people: Mapping[str, Estimate]
    floor: Mapping[str, float]  # what the best constant answer reaches, by measure
    human_alpha: float | None  # Krippendorff's alpha among all annotators; None with one annotator
    judge_alpha: float | None  # the same among the judge's repeats, which shows whether it agrees with itself


@dataclass(frozen=True)
class Agreement:
    """The result of `compare`, by metric."""

    metrics: Mapping[str, MetricAgreement]
    repeats: int
    seed: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> Agreement:
        """Read back what `to_json` gives, as JSON."""
        return TypeAdapter(cls).validate_json(text)


Verdict = Mapping[str, float] | Cause  # the scores by metric, or the cause of the failure


async def compare(judge: Judge | None, labels: Sequence[Label], *, repeats: int = 1, seed: int = 0) -> Agreement:
    """Ask the judge about every labelled text, all at once (the gateway limits concurrency), and compare.

    Args:
        judge: None: ask nobody, and compare the scores that are recorded with the labels.
        repeats: the number of judgments of every text (self-consistency; section C.9 of the paper), at least 1.
        seed: for the order of A and B, the drawn person, and the bootstrap.
    """

    async def judged(label: Label) -> Sequence[Verdict]:
        if judge is None or isinstance(label, RecordedLabel):
            return [label.recorded]
        count = 1 if isinstance(label, Expected) else repeats  # an expected score is the same every time
        return await asyncio.gather(*(_verdict(judge, label, seed, i) for i in range(count)))

    verdicts = await asyncio.gather(*map(judged, labels))
    return measure(list(zip(labels, verdicts, strict=True)), repeats=repeats, seed=seed)


def measure(judged: Sequence[tuple[Label, Sequence[Verdict]]], *, repeats: int = 1, seed: int = 0) -> Agreement:
    """Compare labels with verdicts that are known."""
    by_metric: dict[str, list[tuple[Scores, list[float | Cause]]]] = {}
    for label, verdicts in judged:
        for name, scores in label.people.items():
            said = [
                one if isinstance(one, str) else one[name] for one in verdicts if isinstance(one, str) or name in one
            ]
            by_metric.setdefault(name, []).append((scores, said))
    return Agreement({name: _metric(pairs, name == CODES, seed) for name, pairs in by_metric.items()}, repeats, seed)


async def _verdict(judge: Judge, label: Label, seed: int, sample: int) -> Verdict:
    try:
        return await label.ask(judge, seed, sample)
    except SessionError as failure:
        return failure.cause


def _metric(judged: Sequence[tuple[Scores, Sequence[float | Cause]]], coded: bool, seed: int) -> MetricAgreement:
    """The agreement on one metric; `coded`: its scores are codes for labels (pairwise)."""
    every = [
        ([s for s in verdicts if not isinstance(s, str)], [s for s in people if s is not None])
        for people, verdicts in judged
    ]
    kept = [(by_judge, by_people) for by_judge, by_people in every if by_judge]
    by_judge, by_people = [one for one, _ in kept], [one for _, one in kept or every]
    drawn = [random.Random(f"{seed}:{i}").sample(scores, len(scores)) for i, (_, scores) in enumerate(every)]
    means, human_means = [fmean(scores) for scores in by_judge], [fmean(scores) for scores in by_people]
    floor = {"absolute_error": fmean(abs(mean - median(human_means)) for mean in human_means)}
    if coded:
        floor["accuracy"] = max(Counter(map(_majority, by_people)).values()) / len(by_people)
    level: Level = "nominal" if coded else "interval"
    return MetricAgreement(
        n=len(kept),
        left_out=len(judged) - len(kept),
        failures=dict(Counter(one for _, verdicts in judged for one in verdicts if isinstance(one, str))),
        judge_mean=fmean(means) if kept else None,
        judge_sd=stdev(means) if len(kept) > 1 else None,
        human_mean=fmean(human_means),
        human_sd=stdev(human_means) if len(human_means) > 1 else None,
        measures=_measures(kept, coded, seed),
        people=_measures([([one], others) for one, *others in drawn if others], coded, seed),
        floor=floor,
        human_alpha=krippendorff_alpha(list(zip_longest(*(people for people, _ in judged))), level),
        judge_alpha=krippendorff_alpha(list(zip_longest(*by_judge)), level),
    )


def _measures(texts: Sequence[tuple[Sequence[float], Sequence[float]]], coded: bool, seed: int) -> dict[str, Estimate]:
    """Every measure of two sides, from the scores that each gave each text; empty if there are no texts."""
    if not texts:
        return {}
    found = agreement([fmean(one) for one, _ in texts], [fmean(other) for _, other in texts], seed=seed)
    if coded:
        modes = [_majority(one) for one, _ in texts], [_majority(other) for _, other in texts]
        found |= {"accuracy": accuracy(*modes, seed=seed), "kappa": cohens_kappa(*modes, seed=seed)}
    return found


def _majority(scores: Sequence[float]) -> float:
    """The most frequent label; a tie if two are equally frequent. A recorded mean counts as the nearer end."""
    (first, count), *others = Counter(scores).most_common()
    if others and others[0][1] == count:
        return WIN["tie"]
    return first if first in WIN.values() else float(first > WIN["tie"])


def table(agreement: Agreement) -> RichTable:
    """The agreement as a table for the terminal."""
    lines: list[list[str]] = []
    sections: list[str] = []
    for name, metric in agreement.metrics.items():
        rows = [
            [one, *(_shown(side.get(one)) for side in (metric.measures, metric.people)), _number(metric.floor.get(one))]
            for one in metric.measures or metric.people or metric.floor
        ]
        sides = (metric.judge_mean, metric.judge_sd), (metric.human_mean, metric.human_sd)
        rows.append(["mean, deviation", *(", ".join(filter(None, map(_number, side))) for side in sides), ""])
        rows.append(["alpha among themselves", _number(metric.judge_alpha), _number(metric.human_alpha), ""])
        if metric.n or metric.failures:
            causes = ", ".join(f"{cause} {count}" for cause, count in sorted(metric.failures.items()))
            rows.append(["no verdict; failures", f"{metric.left_out}; {causes or 0}", "", ""])
        titles = [f"{name}: {metric.n + metric.left_out} texts", *[""] * (len(rows) - 1)]
        lines += [[title, row[0].replace("_", " "), *row[1:]] for title, row in zip(titles, rows, strict=True)]
        sections += [name] * len(rows)
    head = ("metric", "measure", "judge and people", "one person and the others", "best constant")
    words = frozenset(range(len(head)))
    return Table(head, lines, sections, words=words).rich("The judge against people, with 95 % intervals")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _shown(estimate: Estimate | None) -> str:
    if estimate is None:
        return ""
    if estimate.low is None or estimate.high is None:
        return _number(estimate.value) or "undefined"
    dropped = f" ({estimate.dropped} undefined)" if estimate.dropped else ""
    return f"{_number(estimate.value)}  {estimate.low:.3f} to {estimate.high:.3f}{dropped}"
