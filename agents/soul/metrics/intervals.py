"""Compute 95 % intervals and p-values: one method for training curves, evaluations, comparisons and figures.

    scores of 0 or 1 (the ends of a range)    Wilson (1927)
    paired scores of 0 or 1                   Bonett and Price (2012): one more win and one more loss
    other means and differences               Student's t
    scores that are not means, such as an F1  bootstrap over rows, percentiles widened for few rows (Hesterberg, 2015)
    a mean over several sets or tasks         stratified: the variance of each, degrees of freedom of Satterthwaite

Values are independent of each other: rows, prompts or seeds, never the samples of one row. Fewer than FEWEST have no
interval, and neither have equal values that are not at the ends of their range: nothing says how far others would lie.
No interval leaves the range of its metric.

The p-value of a mean difference of 0 is that of Student's t, from the estimate whose interval is shown, or, for
differences of one size (scores of 0 or 1), of the exact sign test, which is McNemar's. It is adjusted for many
comparisons after Holm (1979): the chance of one false star among all sets of a comparison stays below LEVEL, however
the sets depend on each other.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from zlib import crc32

Interval = tuple[float, float]
ANY: Interval = (-math.inf, math.inf)  # the range of a metric that has none
FEWEST = 5
Z = statistics.NormalDist().inv_cdf(0.975)
RESAMPLES = 2000
_ROUNDING = 1e-9  # a relative spread that is none
_SAME = 1e-12  # two means of equal rewards may differ by rounding
LEVEL = 0.05
_AT_ONCE = 4_000_000  # weights in memory: 32 MB


@dataclass(frozen=True)
class Estimate:
    """A mean of `n` independent values.

    Attributes:
        variance: of the mean; for scores of 0 or 1 with two more of each (Agresti and Coull), so that it is never 0.
        interval: 95 %; None if too little is known.
        range: of the metric.
        degrees: of freedom of the variance; infinite where a normal distribution is meant.
    """

    mean: float
    n: int
    variance: float
    interval: Interval | None
    range: Interval = ANY
    degrees: float = math.inf


def mean_of(
    values: Sequence[float], range_: Interval = ANY, *, center: float | None = None, fewest: int = FEWEST
) -> Estimate:
    """Estimate a mean.

    Args:
        values: at least one. If one of them is outside `range_`, the range is taken to be unknown.
        center: another estimate of the mean, to lay the interval around, such as a mean over the sessions of prompts.
    """
    n, (low, high) = len(values), range_
    if not all(low <= value <= high for value in values):
        return mean_of(values, center=center, fewest=fewest)
    mean, width = statistics.fmean(values), high - low
    center = mean if center is None else center
    if math.isfinite(width) and all(value in range_ for value in values):
        wins = sum(value == high for value in values)
        share = (wins + 2) / (n + 4)
        variance = width**2 * share * (1 - share) / (n + 4)
        middle = (wins + Z**2 / 2) / (n + Z**2)
        half = Z / (n + Z**2) * math.sqrt(wins * (n - wins) / n + Z**2 / 4)
        ends = max(low, low + width * (middle - half)), min(high, low + width * (middle + half))
        return Estimate(center, n, variance, ends if n >= fewest else None, range_)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n if n > 1 else 0.0
    return _by_t(center, n, variance, n - 1, range_, fewest)


def difference_of(pairs: Sequence[tuple[float, float]], range_: Interval = ANY) -> Estimate:
    """Estimate the mean of `second - first` over pairs.

    Args:
        range_: of both members of a pair.
    """
    n, width = len(pairs), range_[1] - range_[0]
    differences = [second - first for first, second in pairs]
    if not math.isfinite(width) or not all(value in range_ for pair in pairs for value in pair):
        return mean_of(differences, (-width, width))
    wins, losses = ((sum(sign * one > 0 for one in differences) + 1) / (n + 2) for sign in (1, -1))
    middle = wins - losses
    variance = (wins + losses - middle**2) / (n + 2)
    half = Z * math.sqrt(variance)
    ends = width * max(-1.0, middle - half), width * min(1.0, middle + half)
    mean = statistics.fmean(differences)
    return Estimate(mean, n, width**2 * variance, ends if n >= FEWEST else None, (-width, width))


def score_of_rows(
    score: Callable[[Any], Any], mean: float, rows: int, name: str, range_: Interval = ANY, resamples: int = RESAMPLES
) -> Estimate:
    """Estimate a score that is not a mean over rows, from resamples with replacement.

    Args:
        score: maps weights of shape (resamples, rows), how often each row was drawn, to one score per resample.
        mean: the score if every row counts once.
        name: of the set; it is the seed, so that sets of equal size are resampled independently.
    """
    import numpy as np

    generator = np.random.default_rng([0, crc32(name.encode())])
    at_once = max(1, _AT_ONCE // rows)
    sizes = [min(at_once, resamples - start) for start in range(0, resamples, at_once)]
    even = np.full(rows, 1 / rows)
    drawn = np.concatenate([score(generator.multinomial(rows, even, size=size).astype(np.float64)) for size in sizes])
    if rows < 2:
        return Estimate(mean, rows, 0.0, None, range_)
    widened = math.sqrt(rows / (rows - 1))  # a resample's spread is that of n - 1 rows
    beyond = statistics.NormalDist().cdf(-widened * t_quantile(rows - 1))
    low, high = float(np.quantile(drawn, beyond)), float(np.quantile(drawn, 1 - beyond))
    known = rows >= FEWEST and low < high
    return Estimate(mean, rows, float(np.var(drawn)) * widened**2, (low, high) if known else None, range_, rows - 1)


def centered(found: Estimate) -> Estimate:
    """Lay a normal interval around the estimate of a score that is always lower, or higher, in resamples."""
    half = Z * math.sqrt(found.variance)
    return replace(found, interval=(max(found.range[0], found.mean - half), min(found.range[1], found.mean + half)))


def pooled(parts: Sequence[Estimate], weights: Sequence[float] | None = None) -> Estimate:
    """Estimate the weighted mean of independent estimates; without weights, all weigh the same.

    Each part needs two values, and all together the degrees of freedom of FEWEST.
    """
    shares = [1 / len(parts)] * len(parts) if weights is None else [weight / math.fsum(weights) for weight in weights]
    pairs = list(zip(shares, parts, strict=True))
    mean, n = math.fsum(share * part.mean for share, part in pairs), sum(part.n for part in parts)
    variances = [share**2 * part.variance for share, part in pairs]
    variance = math.fsum(variances)
    range_ = sum(share * part.range[0] for share, part in pairs), sum(share * part.range[1] for share, part in pairs)
    if len(parts) == 1:
        return parts[0]
    if not variance or any(part.n < 2 for part in parts):
        return Estimate(mean, n, variance, None, range_)
    squares = math.fsum(one**2 / (part.n - 1) for one, part in zip(variances, parts, strict=True))
    return _by_t(mean, n, variance, int(variance**2 / squares), range_)


def _by_t(mean: float, n: int, variance: float, degrees: int, range_: Interval, fewest: int = FEWEST) -> Estimate:
    if degrees < fewest - 1 or math.sqrt(variance) <= _ROUNDING * max(1.0, abs(mean)):
        return Estimate(mean, n, variance, None, range_)
    half = t_quantile(degrees) * math.sqrt(variance)
    return Estimate(mean, n, variance, (max(range_[0], mean - half), min(range_[1], mean + half)), range_, degrees)


@cache
def t_quantile(degrees: int) -> float:
    """The 97.5 % quantile of Student's t."""
    from scipy.special import stdtrit  # here: SciPy takes a second to import

    return float(stdtrit(degrees, 0.975))


def p_of_pairs(differences: Sequence[float], estimate: Estimate) -> float | None:
    """The p-value of paired differences; None where nothing is known: all are 0, or there are too few.

    Args:
        estimate: of their mean.
    """
    wins = sum(one > _SAME for one in differences)
    losses = sum(one < -_SAME for one in differences)
    sizes = [abs(one) for one in differences if abs(one) > _SAME]
    if not sizes or max(sizes) - min(sizes) > _SAME:
        return p_of_mean(estimate) if sizes else None
    from scipy.special import bdtr  # here: SciPy takes a second to import

    return min(1.0, float(2 * bdtr(min(wins, losses), wins + losses, 0.5)))


def p_of_mean(estimate: Estimate) -> float | None:
    """The two-sided p-value of Student's t for a mean of 0; None for an estimate without an interval."""
    if estimate.interval is None or not estimate.variance:
        return None
    from scipy.special import stdtr

    return float(2 * stdtr(estimate.degrees, -abs(estimate.mean) / math.sqrt(estimate.variance)))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """The adjusted p-values, in the given order; None stays None and is not counted."""
    known = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, (p, place) in enumerate(known):
        least = max(least, min(1.0, (len(known) - rank) * p))
        adjusted[place] = least
    return adjusted
