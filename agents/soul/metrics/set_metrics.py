"""Metrics of a whole set of rows, such as an F1 or the diversity of answers, and their mean.

A task that scores a set other than by the mean of its rewards returns such metrics from `Task.set_metrics`. A metric
has a value for any weights of the rows. So one object serves the score itself (every row counts once), the bootstrap (a
row counts as often as it was drawn) and the comparison of two runs (the same weights for both).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from soul.task import Scored

Array = Any  # numpy's float64 arrays: mypy does not follow numpy here
Edge = Literal["worst", "best"]
_BLOCK = 512  # samples whose distances to all others are in memory at once


class Outcome(NamedTuple):
    """One sample of a set.

    Attributes:
        place: the place of its row among the set's rows, from 0.
        share: 1 / the number of samples of its row, so that a row counts once, however many samples it has.
        scored: its episode and verdict; "worst" or "best" for a sample without a verdict, when the bounds of the score
            are computed.
    """

    place: int
    share: float
    row: Any
    scored: Scored | Edge


class SetMetric(Protocol):
    """A metric of a whole set."""

    @property
    def name(self) -> str: ...

    def values(self, weights: Array) -> Array:
        """One value for each line of `weights`, which has a column for each row; NaN where it is undefined."""
        ...


@dataclass(frozen=True)
class Ratio:
    """A weighted sum over rows divided by another: a mean, a precision, an F1.

    Attributes:
        top, bottom: what each row adds above and below the line.
    """

    name: str
    top: Array
    bottom: Array

    @classmethod
    def from_outcomes(
        cls, name: str, rows: int, outcomes: Sequence[Outcome], parts: Sequence[tuple[float, float] | None]
    ) -> Ratio:
        """Build it from what each sample adds above and below the line; None: the metric ignores the sample."""
        top, bottom = np.zeros(rows), np.zeros(rows)
        for outcome, part in zip(outcomes, parts, strict=True):
            if part is not None:
                top[outcome.place] += outcome.share * part[0]
                bottom[outcome.place] += outcome.share * part[1]
        return cls(name, top, bottom)

    def values(self, weights: Array) -> Array:
        return _divided(weights @ self.top, weights @ self.bottom)


@dataclass(frozen=True)
class PairMean:
    """The mean of a distance over all pairs of different rows.

    A row that a bootstrap draws twice makes no pair with itself: such pairs would only pull the value down.

    Attributes:
        places: the rows that count in the metric.
        mass: the weight of each of them: the summed shares of its samples that count.
        distances: between these rows, weighted by the shares of their samples; 0 on the diagonal.
    """

    name: str
    places: Array
    mass: Array
    distances: Array

    def values(self, weights: Array) -> Array:
        drawn = weights[:, self.places]
        heavy = drawn * self.mass
        pairs = heavy.sum(axis=1) ** 2 - (heavy**2).sum(axis=1)
        return _divided(((drawn @ self.distances) * drawn).sum(axis=1), pairs)


def jaccard_pairs(name: str, outcomes: Sequence[Outcome], sets: Sequence[AbstractSet[str] | Edge | None]) -> PairMean:
    """The mean Jaccard distance between the sets of different rows: 0 if all are equal, 1 if they share nothing.

    An empty set is at distance 0 from every other set: an empty answer adds no diversity.

    Args:
        sets: of each sample; "worst" and "best" stand for distances of 0 and 1; None: the sample is left out.
    """
    chosen = [(outcome, found) for outcome, found in zip(outcomes, sets, strict=True) if found is not None]
    places = sorted({outcome.place for outcome, _ in chosen})
    column = {place: i for i, place in enumerate(places)}
    shares = np.array([outcome.share for outcome, _ in chosen])
    rows = np.array([column[outcome.place] for outcome, _ in chosen], dtype=int)
    of_row = sparse.csr_matrix((shares, (rows, np.arange(len(chosen)))), shape=(len(places), len(chosen)))
    distances = np.zeros((len(places), len(places)))
    for start, block in _jaccard_blocks([found for _, found in chosen]):
        distances += of_row[:, start : start + len(block)] @ (of_row @ block.T).T
    np.fill_diagonal(distances, 0.0)
    return PairMean(name, np.array(places, dtype=int), np.asarray(of_row.sum(axis=1)).ravel(), distances)


def _jaccard_blocks(sets: Sequence[AbstractSet[str] | Edge]) -> Any:
    """Distances between samples, in blocks of lines of the matrix: (first line, block)."""
    known = [frozenset() if isinstance(found, str) else found for found in sets]
    vocabulary = {word: i for i, word in enumerate(sorted({word for found in known for word in found}))}
    columns = [vocabulary[word] for found in known for word in sorted(found)]
    lines: Array = np.repeat(np.arange(len(known)), [len(found) for found in known])
    holds = sparse.csr_matrix((np.ones(len(columns)), (lines, columns)), shape=(len(known), max(1, len(vocabulary))))
    sizes = np.array([len(found) for found in known], dtype=float)
    best = np.array([found == "best" for found in sets])
    for start in range(0, len(known), _BLOCK):
        part = slice(start, start + _BLOCK)
        common = (holds[part] @ holds.T).toarray()
        union = sizes[part, None] + sizes[None, :] - common
        block = 1 - common / np.maximum(union, 1)
        block[(sizes[part, None] == 0) | (sizes[None, :] == 0)] = 0.0
        block[best[part, None] | best[None, :]] = 1.0
        yield start, block


@dataclass(frozen=True)
class SetScore:
    """The plain mean of a set's metrics. A metric that the rows do not define is left out.

    Attributes:
        metrics: those that are defined when every row counts once.
        parts: metric -> its value then.
        rows: how many rows there are.
    """

    metrics: tuple[SetMetric, ...]
    parts: Mapping[str, float]
    rows: int

    @classmethod
    def from_metrics(cls, rows: int, metrics: Sequence[SetMetric]) -> SetScore:
        """Keep the metrics that are defined."""
        values = [float(metric.values(np.ones((1, rows)))[0]) for metric in metrics]
        known = [(metric, value) for metric, value in zip(metrics, values, strict=True) if not math.isnan(value)]
        return cls(tuple(metric for metric, _ in known), {metric.name: value for metric, value in known}, rows)

    @property
    def mean(self) -> float | None:
        """The score; None where no metric is defined."""
        return statistics.fmean(self.parts.values()) if self.parts else None

    def values(self, weights: Array) -> Array:
        """One score for each line of weights.

        Where a metric is undefined for these weights (no last turn was drawn), its value over all rows is used, so that
        every score is the mean of the same metrics.
        """
        drawn = [(metric.values(weights), self.parts[metric.name]) for metric in self.metrics]
        return np.mean([np.where(np.isnan(values), known, values) for values, known in drawn], axis=0)

    def only(self, names: AbstractSet[str]) -> SetScore:
        """The score over those of its metrics that have these names."""
        kept = [metric for metric in self.metrics if metric.name in names]
        return SetScore(tuple(kept), {metric.name: self.parts[metric.name] for metric in kept}, self.rows)


def _divided(top: Array, bottom: Array) -> Array:
    """The quotient; NaN where it is undefined."""
    return np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1), np.nan)
