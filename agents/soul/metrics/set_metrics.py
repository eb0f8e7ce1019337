"""Metrics of a whole set of rows, such as an F1 or the diversity of answers, and their mean.

A task returns such metrics from `Task.set_metrics`: those of which the score of a set is the mean, or those to show
beside a score that is the mean of the rewards. A metric has a value for any weights of the rows. So one object is
enough for the score itself (every row counts once), the bootstrap (a row counts as often as it was drawn) and the
comparison of two runs (with the same weights for both).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from soul.task_types import Scored

Array = Any  # a numpy array of float64; mypy does not check numpy here
Edge = Literal["worst", "best"]
_BLOCK = 512  # for so many samples at a time, the distances to all others are in memory


class Outcome(NamedTuple):
    """One sample of a set.

    Attributes:
        place: the position of its row in the set, from 0.
        share: 1 / the number of samples of its row, so that every row counts once.
        row: the validated row.
        scored: its episode and verdict; to compute the bounds of the score, "worst" or "best" for a sample without a
            verdict.
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
        """The metric for each weighting of the rows.

        Args:
            weights: float64, shape (weightings, rows).

        Returns:
            Float64, shape (weightings,); NaN where the metric is undefined.
        """
        ...


@dataclass(frozen=True)
class Ratio:
    """A weighted sum over rows divided by another: a mean, a precision, an F1.

    Attributes:
        top, bottom: each row's contribution to numerator and denominator; shape (rows,).
    """

    name: str
    top: Array
    bottom: Array

    @classmethod
    def from_outcomes(
        cls, name: str, rows: int, outcomes: Sequence[Outcome], parts: Sequence[tuple[float, float] | None]
    ) -> Ratio:
        """Build it from each sample's contribution to numerator and denominator; None: ignore the sample."""
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

    A row that a bootstrap draws twice forms no pair with itself, because such pairs would only lower the value.

    Attributes:
        places: the rows that the metric uses; shape (n,).
        mass: the weight of each of them, which is the sum of the shares of the samples used; shape (n,).
        distances: between these rows, weighted by the shares of their samples, with 0 on the diagonal; shape (n, n).
    """

    name: str
    places: Array
    mass: Array
    distances: Array

    def values(self, weights: Array) -> Array:
        drawn = weights[:, self.places]
        masses = drawn * self.mass
        pairs = masses.sum(axis=1) ** 2 - (masses**2).sum(axis=1)  # the sum over i != j of m_i m_j
        return _divided(((drawn @ self.distances) * drawn).sum(axis=1), pairs)


def jaccard_pairs(name: str, outcomes: Sequence[Outcome], sets: Sequence[AbstractSet[str] | Edge | None]) -> PairMean:
    """The mean Jaccard distance between the sets of different rows: 0 if all are equal, 1 if they share nothing.

    An empty set is at distance 0 from every other set: an empty answer adds no diversity.

    Args:
        outcomes: the samples.
        sets: one for each sample; "worst" and "best" stand for distances of 0 and 1; None: leave the sample out.
    """
    from scipy import sparse  # not above: few sets need it, and it takes a fifth of a second of CPU time

    chosen = [(outcome, words) for outcome, words in zip(outcomes, sets, strict=True) if words is not None]
    places = sorted({outcome.place for outcome, _ in chosen})
    column = {place: i for i, place in enumerate(places)}
    shares = np.array([outcome.share for outcome, _ in chosen])
    rows = np.array([column[outcome.place] for outcome, _ in chosen], dtype=int)
    # Shape (rows, samples): averages over the samples of a row.
    row_shares = sparse.csr_matrix((shares, (rows, np.arange(len(chosen)))), shape=(len(places), len(chosen)))
    distances = np.zeros((len(places), len(places)))
    for start, block in _jaccard_blocks([words for _, words in chosen]):
        distances += row_shares[:, start : start + len(block)] @ (row_shares @ block.T).T
    np.fill_diagonal(distances, 0.0)
    return PairMean(name, np.array(places, dtype=int), np.asarray(row_shares.sum(axis=1)).ravel(), distances)


def _jaccard_blocks(sets: Sequence[AbstractSet[str] | Edge]) -> Any:
    """Distances between samples, in blocks of rows of the matrix: (index of the first row, block)."""
    from scipy import sparse

    known = [frozenset() if isinstance(words, str) else words for words in sets]
    vocabulary = {word: i for i, word in enumerate(sorted({word for words in known for word in words}))}
    columns = [vocabulary[word] for words in known for word in sorted(words)]
    samples: Array = np.repeat(np.arange(len(known)), [len(words) for words in known])
    holds = sparse.csr_matrix((np.ones(len(columns)), (samples, columns)), shape=(len(known), max(1, len(vocabulary))))
    sizes = np.array([len(words) for words in known], dtype=float)
    best = np.array([words == "best" for words in sets])
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
    """The mean of a set's metrics. A metric that is undefined for these rows is left out.

    Attributes:
        metrics: the metrics that are defined if every row counts once.
        parts: metric -> its value if every row counts once.
        rows: the number of rows.
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
        """The score; None if no metric is defined."""
        return statistics.fmean(self.parts.values()) if self.parts else None

    def values(self, weights: Array) -> Array:
        """One score for each weighting; `weights` has the shape (weightings, rows).

        If a metric is undefined for some weights (for example, no last turn was drawn), its value over all rows is used
        instead, so that every score is the mean of the same metrics.
        """
        drawn = [(metric.values(weights), self.parts[metric.name]) for metric in self.metrics]
        return np.mean([np.where(np.isnan(values), known, values) for values, known in drawn], axis=0)

    def only(self, names: AbstractSet[str]) -> SetScore:
        """The score over the metrics with these names only."""
        kept = [metric for metric in self.metrics if metric.name in names]
        return SetScore(tuple(kept), {metric.name: self.parts[metric.name] for metric in kept}, self.rows)


def _divided(top: Array, bottom: Array) -> Array:
    """The quotient; NaN where the denominator is 0."""
    return np.where(bottom > 0, top / np.where(bottom > 0, bottom, 1), np.nan)
