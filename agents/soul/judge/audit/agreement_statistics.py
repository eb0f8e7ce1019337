"""Measure how well raters agree: members of a jury, repeats of one judge, or people and a judge.

These are pure functions of numbers. An undefined statistic is None, never 0 or 1: a jury that rates everything 7 has
shown neither agreement nor disagreement. Every comparison of a judge with people has an interval, because a correlation
over a hundred pairs is accurate only to about 0.1.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

# SciPy and krippendorff are imported where they are used: SciPy alone takes more than a second, and most users of the
# judge do not need it.

Level = Literal["nominal", "ordinal", "interval", "ratio"]
Ratings = Sequence[Sequence[float | None]]  # members x units; None: this member gave no rating of this unit

RESAMPLES = 2000  # so that 50 resamples lie beyond each end of a 95 % interval


@dataclass(frozen=True)
class Estimate:
    """A statistic and its 95 % bootstrap interval.

    Attributes:
        value: None with fewer than two pairs, and if the data do not define it (one side is constant).
        low, high: None if `value` is None, and if no resample defined the statistic.
        n: the number of pairs.
        dropped: the number of resamples in which it was undefined; the interval uses the others.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    dropped: int = 0


def krippendorff_alpha(ratings: Ratings, level: Level = "interval") -> float | None:
    """Krippendorff's alpha: 1 is perfect agreement, 0 is chance level, below 0 is systematic disagreement.

    Units with fewer than two ratings say nothing about agreement and are left out.

    Args:
        level: how far apart two ratings are: "nominal" (equal or not), "interval" (squared difference), "ordinal",
            "ratio". Only "interval" is fit for continuous scores. The other levels tabulate every pair of distinct
            ratings, and are meant for scales with at most some dozens of steps.

    Returns:
        None if alpha is undefined: fewer than two members, no unit that two members rated, or the same rating
        everywhere, so that no disagreement is expected by chance either (0/0).

    Raises:
        ValueError: the rows have different lengths, or a rating is not finite.
    """
    units = _pairable(ratings)
    values = [value for unit in units for value in unit]
    if len(set(values)) < 2:
        return None
    if level == "interval":
        return _interval_alpha(units)
    import krippendorff

    longest = max(map(len, units))
    table = [[unit[i] if i < len(unit) else math.nan for unit in units] for i in range(longest)]
    return float(krippendorff.alpha(reliability_data=np.array(table), level_of_measurement=level))


def _interval_alpha(units: Sequence[Sequence[float]]) -> float:
    """Alpha for squared differences, computed from sums.

    The package krippendorff tabulates units x values x values: 34 GiB for 800 units with three continuous scores each.
    The squared differences of all ordered pairs of m numbers sum to 2 (m sum x^2 - (sum x)^2), so no table is needed.
    """
    values = np.array([value for unit in units for value in unit])
    centre = values.mean()  # centre the values, or the subtraction would cancel most digits

    def spread(numbers: Any) -> float:
        centred = np.asarray(numbers) - centre
        return float(2 * (centred.size * (centred**2).sum() - centred.sum() ** 2))

    observed = sum(spread(unit) / (len(unit) - 1) for unit in units) / values.size
    expected = spread(values) / (values.size * (values.size - 1))
    return 1 - observed / expected


def exact_match_share(ratings: Ratings) -> float | None:
    """The share of units that got the same rating from all members who rated them.

    Units with fewer than two ratings are left out; None if no units remain.

    Raises:
        ValueError: the rows have different lengths, or a rating is not finite.
    """
    units = _pairable(ratings)
    return sum(len(set(unit)) == 1 for unit in units) / len(units) if units else None


def _pairable(ratings: Ratings) -> list[list[float]]:
    """The ratings of each unit that has at least two."""
    if len({len(row) for row in ratings}) > 1:
        lengths = [len(row) for row in ratings]
        raise ValueError(f"every member needs one entry for each unit (None: no rating); got {lengths}")
    units = [[float(value) for value in unit if value is not None] for unit in zip(*ratings, strict=True)]
    if not all(math.isfinite(value) for unit in units for value in unit):
        raise ValueError("a rating is not finite; a missing rating is None")
    return [unit for unit in units if len(unit) >= 2]


def correlations(
    judge: Sequence[float], human: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, Estimate]:
    """Pearson's r, Spearman's rho and Kendall's tau-b of the pairs (the measures in Table 5 of the paper).

    Raises:
        ValueError: the lists have different lengths, or a number is not finite.
    """
    import scipy.stats

    def pearson(x: Any, y: Any, axis: int = -1) -> Any:
        return scipy.stats.pearsonr(x, y, axis=axis).statistic

    def spearman(x: Any, y: Any, axis: int = -1) -> Any:
        return pearson(scipy.stats.rankdata(x, axis=axis), scipy.stats.rankdata(y, axis=axis), axis)

    def kendall(x: Any, y: Any, axis: int = -1) -> Any:
        return scipy.stats.kendalltau(x, y, axis=axis).statistic

    pairs = _pairs([float(value) for value in judge], [float(value) for value in human])
    if not np.isfinite(pairs).all():
        raise ValueError("a score is not finite; leave a pair without a score out")
    statistics = {"pearson": pearson, "spearman": spearman, "kendall": kendall}
    return {name: _estimate(pairs, statistic, seed, resamples) for name, statistic in statistics.items()}


def accuracy(
    judge: Sequence[Hashable], human: Sequence[Hashable], *, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """The share of pairs in which the judge gave the same label as the people.

    A bootstrap only resamples what it has: if all pairs agree, the interval has no width, however few pairs there are.

    Raises:
        ValueError: the lists have different lengths.
    """

    def share(x: Any, y: Any, axis: int = -1) -> Any:
        return (x == y).mean(axis=axis)

    return _estimate(_coded(judge, human), share, seed, resamples)


def cohens_kappa(
    judge: Sequence[Hashable], human: Sequence[Hashable], *, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """Cohen's kappa: agreement on labels beyond the chance level of two raters with these label frequencies.

    It is undefined if both sides gave one and the same label throughout.

    Raises:
        ValueError: the lists have different lengths.
    """
    pairs = _coded(judge, human)
    categories = np.unique(pairs)

    def kappa(x: Any, y: Any, axis: int = -1) -> Any:
        observed = (x == y).mean(axis=axis)
        chance = sum((x == label).mean(axis=axis) * (y == label).mean(axis=axis) for label in categories)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(chance == 1, np.nan, (observed - chance) / (1 - chance))

    return _estimate(pairs, kappa, seed, resamples)


def _coded(judge: Sequence[Hashable], human: Sequence[Hashable]) -> Any:
    """Labels as integers, numbered by first appearance: an array of shape (2, pairs)."""
    codes = {label: code for code, label in enumerate(dict.fromkeys([*judge, *human]))}
    return _pairs([codes[label] for label in judge], [codes[label] for label in human])


def _pairs(judge: Sequence[float], human: Sequence[float]) -> Any:
    if len(judge) != len(human):
        raise ValueError(f"expected pairs, got {len(judge)} verdicts of the judge and {len(human)} of people")
    return np.array([judge, human])


def _estimate(pairs: Any, statistic: Callable[..., Any], seed: int, resamples: int) -> Estimate:
    """The statistic of the pairs, with a percentile bootstrap interval."""
    import scipy.stats

    n = pairs.shape[1]
    if n < 2:
        return Estimate(None, None, None, n)
    with warnings.catch_warnings():
        # A constant side is expected here: `value` None and `dropped` report it.
        warnings.simplefilter("ignore", scipy.stats.DegenerateDataWarning)
        value = float(statistic(*pairs))
        if math.isnan(value):
            return Estimate(None, None, None, n)
        drawn = scipy.stats.bootstrap(
            tuple(pairs),
            statistic,
            paired=True,
            vectorized=True,
            n_resamples=resamples,
            method="percentile",
            rng=np.random.default_rng(seed),
        ).bootstrap_distribution
    # SciPy's own interval is NaN if one resample is. Ours uses the defined ones and counts the others.
    defined = drawn[~np.isnan(drawn)]
    dropped = int(drawn.size - defined.size)
    if not defined.size:
        return Estimate(value, None, None, n, dropped)
    return Estimate(value, float(np.percentile(defined, 2.5)), float(np.percentile(defined, 97.5)), n, dropped)
