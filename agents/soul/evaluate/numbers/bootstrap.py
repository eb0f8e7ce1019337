"""The bootstrap over rows: how far a set's mean could move had other rows of the same kind been drawn.

Rows are resampled, not samples: several samples of one row say little about other rows. A bootstrap cannot see beyond
its sample: where all rows score the same, the interval has no width, however few they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import numpy as np

RESAMPLES = 2000  # the ends of a 95% interval then rest on 50 resamples each
_FEW, _MANY = 32, 100  # distinct values (0 and 1, a few grades) of so many: to draw their counts costs a hundredth
_AT_ONCE = 4_000_000  # drawn indices held in memory: 32 MB


def resampled_means(values: Sequence[float], name: str, *, seed: int = 0, resamples: int = RESAMPLES) -> Any:
    """The means of resamples with replacement.

    Args:
        values: one for each row, in an order that does not depend on which row was finished first.
        name: of what is resampled; it enters the seed, so that sets of equal size are drawn independently.

    Returns:
        A float64 array of length `resamples`.

    Raises:
        ValueError: there are no values.
    """
    data = np.asarray(values, dtype=np.float64)
    if not data.size:
        raise ValueError(f"{name}: there is no value to resample")
    generator = np.random.default_rng([seed, crc32(name.encode())])
    distinct, counts = np.unique(data, return_counts=True)
    if distinct.size <= _FEW and data.size > _MANY:  # how often each value is drawn tells as much as which rows are
        return generator.multinomial(data.size, counts / data.size, size=resamples) @ distinct / data.size
    step = max(1, _AT_ONCE // data.size)
    sizes = [min(step, resamples - start) for start in range(0, resamples, step)]
    return np.concatenate([data[generator.integers(data.size, size=(n, data.size))].mean(axis=1) for n in sizes])


def resampled_scores(
    score: Callable[[Any], Any], rows: int, name: str, *, seed: int = 0, resamples: int = RESAMPLES
) -> Any:
    """The scores of resamples with replacement, for a score that is not a mean over rows.

    Args:
        score: takes weights (a line for each resample, a column for each row: how often the row was drawn) and returns
            one score for each line.
        rows: how many rows there are; at least one.
        name: as in `resampled_means`.

    Returns:
        A float64 array of length `resamples`.
    """
    generator = np.random.default_rng([seed, crc32(name.encode())])
    step = max(1, _AT_ONCE // rows)
    sizes = [min(step, resamples - start) for start in range(0, resamples, step)]
    drawn = (generator.multinomial(rows, np.full(rows, 1 / rows), size=n).astype(np.float64) for n in sizes)
    return np.concatenate([score(weights) for weights in drawn])


def percentile_interval(means: Any, level: float = 0.95) -> tuple[float, float]:
    """The middle `level` of the resampled statistics."""
    return float(np.quantile(means, (1 - level) / 2)), float(np.quantile(means, (1 + level) / 2))
