"""How well raters agree: members of a jury, repeats of one judge, people and a judge. Pure functions on numbers.

Nothing here knows where the numbers come from. What is undefined is None, never 0 or 1: a jury that gives everyone a 7
has shown neither agreement nor disagreement. Every comparison of a judge with people carries an interval, because a
correlation of a hundred pairs is known to about a tenth.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

# SciPy and krippendorff are imported where they are used: SciPy alone takes over a second, and who only wants a judge
# should not wait for it.

Level = Literal["nominal", "ordinal", "interval", "ratio"]
Ratings = Sequence[Sequence[float | None]]  # members x units; None: this member gave no rating of this unit

RESAMPLES = 2000  # the ends of a 95% interval then rest on 50 resamples each


@dataclass(frozen=True)
class Estimate:
    """A statistic and its 95% bootstrap interval.

    Attributes:
        value: None with fewer than two pairs, and where the data do not define it (one side constant).
        low, high: None where `value` is, and where no resample defined the statistic.
        n: how many pairs it rests on.
        dropped: resamples in which it was undefined; the interval rests on the others.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    dropped: int = 0


def krippendorff_alpha(ratings: Ratings, level: Level = "interval") -> float | None:
    """Krippendorff's alpha: 1 is perfect agreement, 0 what chance gives, below 0 systematic disagreement.

    Units with fewer than two ratings say nothing about agreement and are left out.

    Args:
        level: how far apart two ratings are: "nominal" (equal or not), "interval" (squared difference), "ordinal",
            "ratio". Only "interval" takes scores of any number; the other levels tabulate every pair of distinct
            ratings and are meant for scales of some dozens of steps.

    Returns:
        None where alpha is undefined: fewer than two members, no unit that two members rated, or the same rating
        everywhere, where no disagreement was to be expected either (0/0).

    Raises:
        ValueError: rows of different length, or a rating that is not finite.
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
    """Alpha of squared differences from sums alone.

    The package tabulates units x values x values: 34 GiB for 800 units with three continuous scores each. The squared
    differences of all pairs of m numbers sum to 2 (m sum x^2 - (sum x)^2), so no table is needed.
    """
    values = np.array([value for unit in units for value in unit])
    centre = values.mean()  # centred, so that the two sums do not cancel each other's digits

    def spread(numbers: Any) -> float:
        centred = np.asarray(numbers) - centre
        return float(2 * (centred.size * (centred**2).sum() - centred.sum() ** 2))

    observed = sum(spread(unit) / (len(unit) - 1) for unit in units) / values.size
    expected = spread(values) / (values.size * (values.size - 1))
    return 1 - observed / expected


def exact_match_share(ratings: Ratings) -> float | None:
    """The share of units on which all members who rated them gave the same rating.

    Units with fewer than two ratings are left out; None where no others are left.

    Raises:
        ValueError: rows of different length, or a rating that is not finite.
    """
    units = _pairable(ratings)
    return sum(len(set(unit)) == 1 for unit in units) / len(units) if units else None


def _pairable(ratings: Ratings) -> list[list[float]]:
    """The ratings unit by unit, of the units that have at least two."""
    if len({len(row) for row in ratings}) > 1:
        raise ValueError(f"every member needs one entry a unit (None: no rating); got {[len(row) for row in ratings]}")
    units = [[float(value) for value in unit if value is not None] for unit in zip(*ratings, strict=True)]
    if not all(math.isfinite(value) for unit in units for value in unit):
        raise ValueError("a rating is not finite; a missing rating is None")
    return [unit for unit in units if len(unit) >= 2]


def correlations(
    judge: Sequence[float], human: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, Estimate]:
    """Pearson's r, Spearman's rho and Kendall's tau-b of the pairs (the measures of paper, Table 5).

    Raises:
        ValueError: lists of different length, or a number that is not finite.
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
    """The share of pairs in which the judge gave the people's label.

    A bootstrap cannot see beyond its sample: where all pairs agree, the interval has no width, however few they are.

    Raises:
        ValueError: lists of different length.
    """

    def share(x: Any, y: Any, axis: int = -1) -> Any:
        return (x == y).mean(axis=axis)

    return _estimate(_coded(judge, human), share, seed, resamples)


def cohens_kappa(
    judge: Sequence[Hashable], human: Sequence[Hashable], *, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """Cohen's kappa: agreement on labels beyond what two raters with these habits would reach by chance.

    Undefined where both sides gave one and the same label throughout.

    Raises:
        ValueError: lists of different length.
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
    """Labels as whole numbers, in the order of their first appearance."""
    codes = {label: code for code, label in enumerate(dict.fromkeys([*judge, *human]))}
    return _pairs([codes[label] for label in judge], [codes[label] for label in human])


def _pairs(judge: Sequence[float], human: Sequence[float]) -> Any:
    if len(judge) != len(human):
        raise ValueError(f"the judge's {len(judge)} verdicts and the people's {len(human)} are no pairs")
    return np.array([judge, human])


def _estimate(pairs: Any, statistic: Callable[..., Any], seed: int, resamples: int) -> Estimate:
    """The statistic of the pairs, with a percentile interval over resampled pairs."""
    import scipy.stats

    n = pairs.shape[1]
    if n < 2:
        return Estimate(None, None, None, n)
    with warnings.catch_warnings():
        # A constant side is no accident here: it is what `value` None and `dropped` tell.
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
    # SciPy's own interval is nan as soon as one resample is; ours rests on the defined ones and says how many are not.
    defined = drawn[~np.isnan(drawn)]
    dropped = int(drawn.size - defined.size)
    if not defined.size:
        return Estimate(value, None, None, n, dropped)
    return Estimate(value, float(np.percentile(defined, 2.5)), float(np.percentile(defined, 97.5)), n, dropped)
