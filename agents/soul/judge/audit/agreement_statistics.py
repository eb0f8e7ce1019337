"""Measure how well raters agree: members of a jury, repeats of one judge, or people and a judge.

These are pure functions of numbers. An undefined statistic is None, never 0 or 1: a jury that rates everything 7 has
shown neither agreement nor disagreement. Every comparison of a judge with people has an interval, because a correlation
over a hundred pairs is accurate only to about 0.1.
"""

import math
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Level = Literal["nominal", "interval"]
Ratings = Sequence[Sequence[float | None]]  # members x units; None: this member gave no rating of this unit

_ROUNDING = 1e-20  # a variance of equal numbers may be this large
RESAMPLES = 2000  # so that 50 resamples lie beyond each end of a 95 % interval


@dataclass(frozen=True)
class Estimate:
    """A statistic and its 95 % bootstrap interval."""

    value: float | None  # None with fewer than two pairs, and if the data do not define it (one side is constant)
    # low, high: None if `value` is None, and if no resample defined the statistic
    low: float | None
    high: float | None
    n: int  # the number of pairs
    dropped: int = 0  # the number of resamples in which it was undefined; the interval uses the others


def krippendorff_alpha(ratings: Ratings, level: Level = "interval") -> float | None:
    """Krippendorff's alpha: 1 is perfect agreement, 0 is chance level, below 0 is systematic disagreement.

    It is computed from sums over units, because the package krippendorff tabulates units x values x values: 34 GiB for
    800 units with three continuous scores each. Units with fewer than two ratings are left out.

    Args:
        level: how far apart two ratings are: "nominal" (0 if equal, else 1) or "interval" (squared difference).

    Returns:
        None if alpha is undefined: fewer than two members, no unit that two members rated, or the same rating
        everywhere, so that no disagreement is expected by chance either (0/0).
    """
    units = _pairable(ratings)
    values = [value for unit in units for value in unit]
    if len(set(values)) < 2:
        return None
    centre = float(np.mean(values))  # centre the values, or the subtraction would cancel most digits

    def spread(numbers: Sequence[float]) -> float:
        """The sum of the distances of all ordered pairs."""
        if level == "nominal":
            return float(len(numbers) ** 2 - (np.unique(numbers, return_counts=True)[1] ** 2).sum())
        centred = np.asarray(numbers) - centre
        return float(2 * (centred.size * (centred**2).sum() - centred.sum() ** 2))

    observed = sum(spread(unit) / (len(unit) - 1) for unit in units) / len(values)
    expected = spread(values) / (len(values) * (len(values) - 1))
    return 1 - observed / expected


def exact_match_share(ratings: Ratings) -> float | None:
    """The share of units that got the same rating from all members who rated them.

    Units with fewer than two ratings are left out; None if no units remain.
    """
    units = _pairable(ratings)
    return sum(len(set(unit)) == 1 for unit in units) / len(units) if units else None


def _pairable(ratings: Ratings) -> list[list[float]]:
    if len({len(row) for row in ratings}) > 1:
        lengths = [len(row) for row in ratings]
        raise ValueError(f"every member needs one entry for each unit (None: no rating); got {lengths}")
    units = [[float(value) for value in unit if value is not None] for unit in zip(*ratings, strict=True)]
    if not all(math.isfinite(value) for unit in units for value in unit):
        raise ValueError("a rating is not finite; a missing rating is None")
    return [unit for unit in units if len(unit) >= 2]


def pearson(x: Any, y: Any) -> Any:
    """Pearson's r, over the last axis, like the other measures below."""
    from scipy import stats  # it takes more than a second to import, and most users of the judge do not need it

    return stats.pearsonr(x, y, axis=-1).statistic


def spearman(x: Any, y: Any) -> Any:
    """Spearman's rho: Pearson's r of the ranks, ties with their mean rank."""
    from scipy import stats

    return pearson(stats.rankdata(x, axis=-1), stats.rankdata(y, axis=-1))


def kendall(x: Any, y: Any) -> Any:
    """Kendall's tau-b."""
    from scipy import stats

    return stats.kendalltau(x, y, axis=-1).statistic


def weighted_kappa(x: Any, y: Any) -> Any:
    """Cohen's kappa with quadratic weights, which needs no levels (on other numbers it is Lin's concordance).

    Of Pearson's r it differs in that a judge that is always a point too mild loses agreement.
    """
    apart = (x.mean(axis=-1) - y.mean(axis=-1)) ** 2 + x.var(axis=-1) + y.var(axis=-1)
    return 1 - _ratio(((x - y) ** 2).mean(axis=-1), apart)


def alpha(x: Any, y: Any) -> Any:
    """Krippendorff's interval alpha of two raters without gaps: `krippendorff_alpha` for many resamples at once."""
    return 1 - _ratio(((x - y) ** 2).mean(axis=-1), 2 * np.concatenate([x, y], axis=-1).var(axis=-1, ddof=1))


def absolute_error(x: Any, y: Any) -> Any:
    """The mean distance."""
    return abs(x - y).mean(axis=-1)


MEASURES = {
    "pearson": pearson,
    "spearman": spearman,
    "kendall": kendall,
    "weighted_kappa": weighted_kappa,
    "alpha": alpha,
    "absolute_error": absolute_error,
}


def agreement(judge: Sequence[float], human: Sequence[float], *, seed: int = 0) -> dict[str, Estimate]:
    """Every one of `MEASURES` on the pairs; the correlations are those of Table 5 of the paper."""
    from scipy import stats

    pairs = np.array([judge, human], dtype=float)
    if not np.isfinite(pairs).all():
        raise ValueError("a score is not finite; leave a pair without a score out")
    with warnings.catch_warnings():
        # A constant side is expected here: `value` None and `dropped` report it.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        return {name: _estimate(pairs, statistic, seed) for name, statistic in MEASURES.items()}


def _ratio(part: Any, whole: Any) -> Any:
    """part / whole, undefined (nan) where both raters gave one and the same number throughout."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(abs(whole) < _ROUNDING, np.nan, part / whole)


def accuracy(judge: Sequence[Hashable], human: Sequence[Hashable], *, seed: int = 0) -> Estimate:
    """The share of pairs in which the judge gave the same label as the people.

    A bootstrap only resamples what it has: if all pairs agree, the interval has no width, however few pairs there are.
    """
    return _estimate(_coded(judge, human), lambda x, y: (x == y).mean(axis=-1), seed)


def cohens_kappa(judge: Sequence[Hashable], human: Sequence[Hashable], *, seed: int = 0) -> Estimate:
    """Cohen's kappa: agreement on labels beyond the chance level of two raters with these label frequencies.

    It is undefined if both sides gave one and the same label throughout.
    """
    pairs = _coded(judge, human)
    labels = np.unique(pairs)

    def kappa(x: Any, y: Any) -> Any:
        observed = (x == y).mean(axis=-1)
        chance = sum((x == label).mean(axis=-1) * (y == label).mean(axis=-1) for label in labels)
        return 1 - _ratio(1 - observed, 1 - chance)

    return _estimate(pairs, kappa, seed)


def _coded(judge: Sequence[Hashable], human: Sequence[Hashable]) -> Any:
    """Labels as integers, numbered by first appearance: an array of shape (2, pairs)."""
    codes = {label: code for code, label in enumerate(dict.fromkeys([*judge, *human]))}
    return np.array([[codes[label] for label in judge], [codes[label] for label in human]])


def _estimate(pairs: Any, statistic: Callable[[Any, Any], Any], seed: int) -> Estimate:
    """The statistic of the pairs (2, n), with a percentile bootstrap interval."""
    n = pairs.shape[1]
    value = float(statistic(*pairs)) if n >= 2 else math.nan
    if math.isnan(value):
        return Estimate(None, None, None, n)
    drawn = np.random.default_rng(seed).integers(0, n, (RESAMPLES, n))
    found = statistic(*pairs[:, drawn])
    defined = found[~np.isnan(found)]
    if not defined.size:
        return Estimate(value, None, None, n, RESAMPLES)
    low, high = float(np.percentile(defined, 2.5)), float(np.percentile(defined, 97.5))
    return Estimate(value, low, high, n, RESAMPLES - int(defined.size))
