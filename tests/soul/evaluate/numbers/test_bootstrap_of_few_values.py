"""Where there are many rows of few values, the bootstrap draws counts of values: the same law as drawing rows."""

import numpy as np
import pytest

from soul.evaluate.numbers import bootstrap
from soul.evaluate.numbers.bootstrap import percentile_interval, resampled_means


@pytest.mark.parametrize("values", [[0.0] * 600 + [1.0] * 200, [0.1, 0.4, 0.4, 0.9] * 250], ids=["two", "three"])
def test_counts_and_rows_are_drawn_by_the_same_law(values, monkeypatch):
    by_counts = resampled_means(values, "x", resamples=20_000)
    monkeypatch.setattr(bootstrap, "_FEW", 0)
    by_rows = resampled_means(values, "x", resamples=20_000)
    error = np.std(values) / len(values) ** 0.5  # what both must spread by
    assert by_counts.mean() == pytest.approx(np.mean(values), abs=5 * error / 20_000**0.5)
    assert by_counts.std() == pytest.approx(error, rel=0.03) and by_rows.std() == pytest.approx(error, rel=0.03)
    assert percentile_interval(by_counts) == pytest.approx(percentile_interval(by_rows), abs=error / 5)
    assert set(np.round(by_counts * len(values) * 10) % 1) == {0.0}
