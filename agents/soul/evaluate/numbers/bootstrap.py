"""The bootstrap over rows: how much a set's mean varies with the choice of rows.

Rows are resampled, not samples: several samples of one row say little about other rows. A bootstrap cannot see beyond
its data: if all rows score the same, the interval has width 0, however few they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import numpy as np

RESAMPLES = 2000  # so 50 resamples lie beyond each end of a 95% interval
_FEW, _MANY = 32, 100  # with few distinct values among many rows, drawing their counts is 100 times cheaper
_AT_ONCE = 4_000_000  # indices in memory: 32 MB


def resampled_means(values: Sequence[float], name: str, *, seed: int = 0, resamples: int = RESAMPLES) -> Any:
    """The means of resamples with replacement.

    Args:
        values: one per row, in an order that does not depend on when rows finished.
        name: of the set; it is part of the seed, so that sets of equal size are resampled independently.

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
    if distinct.size <= _FEW and data.size > _MANY:
        return generator.multinomial(data.size, counts / data.size, size=resamples) @ distinct / data.size
    chunks = _chunks(resamples, data.size)
    return np.concatenate([data[generator.integers(data.size, size=(n, data.size))].mean(axis=1) for n in chunks])


def resampled_scores(
    score: Callable[[Any], Any], rows: int, name: str, *, seed: int = 0, resamples: int = RESAMPLES
) -> Any:
    """The scores of resamples with replacement, for a score that is not a mean over rows.

    Args:
        score: maps weights of shape (resamples, rows), how often each row was drawn, to one score per resample.
        rows: how many rows there are; at least one.
        name: as in `resampled_means`.

    Returns:
        A float64 array of length `resamples`.
    """
    generator = np.random.default_rng([seed, crc32(name.encode())])
    even = np.full(rows, 1 / rows)
    weights = (generator.multinomial(rows, even, size=n).astype(np.float64) for n in _chunks(resamples, rows))
    return np.concatenate([score(chunk) for chunk in weights])


def _chunks(resamples: int, rows: int) -> list[int]:
    """The resamples, split into numbers that fit into memory at once."""
    step = max(1, _AT_ONCE // rows)
    return [min(step, resamples - start) for start in range(0, resamples, step)]


def percentile_interval(means: Any, level: float = 0.95) -> tuple[float, float]:
    """The interval with the middle `level` of the resampled statistics."""
    return float(np.quantile(means, (1 - level) / 2)), float(np.quantile(means, (1 + level) / 2))
