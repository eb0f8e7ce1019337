"""p-values of differences, and their adjustment for many comparisons.

    differences of one size (scores of 0 or 1)    the exact sign test, which is McNemar's exact test
    other means, and means over sets              Student's t, from the estimate whose interval is shown

Both ask whether the mean difference is 0. The adjustment is that of Holm (1979): the chance of one false star among all
sets of a comparison stays below LEVEL, however the sets depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from soul.metrics.intervals import Estimate

LEVEL = 0.05
_ROUNDING = 1e-12  # two means of equal rewards may differ by rounding


def p_of_pairs(differences: Sequence[float], estimate: Estimate) -> float | None:
    """The p-value of paired differences; None where nothing is known: all are 0, or there are too few.

    Args:
        estimate: of their mean.
    """
    wins = sum(one > _ROUNDING for one in differences)
    losses = sum(one < -_ROUNDING for one in differences)
    sizes = [abs(one) for one in differences if abs(one) > _ROUNDING]
    if not sizes or max(sizes) - min(sizes) > _ROUNDING:
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
