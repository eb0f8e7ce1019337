"""The intervals of training, evaluation, comparison and figures: against independent formulas, and their coverage.

Promise under test: an interval covers the truth about as often as it says, few rows or many, near an end of the range
or not, and never leaves the range; too little is a dash.
"""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from soul.metrics.intervals import FEWEST, difference_of, mean_of, pooled, score_of_rows

UNIT = (0.0, 1.0)


@pytest.mark.parametrize(("wins", "n"), [(0, 5), (3, 5), (12, 12), (70, 100)])
def test_scores_of_0_and_1_have_wilsons_interval(wins, n):
    expected = scipy.stats.binomtest(wins, n).proportion_ci(method="wilson")
    found = mean_of([1.0] * wins + [0.0] * (n - wins), UNIT)
    assert found.interval == pytest.approx((expected.low, expected.high))
    scaled = mean_of([10.0] * wins + [-10.0] * (n - wins), (-10.0, 10.0))
    assert scaled.interval == pytest.approx((20 * expected.low - 10, 20 * expected.high - 10))


def test_other_means_have_students_t():
    values = [0.1, 0.4, 0.35, 0.8, 0.2, 0.55]
    expected = scipy.stats.ttest_1samp(values, 0).confidence_interval()
    assert mean_of(values, UNIT).interval == pytest.approx(tuple(expected))
    shifted = mean_of(values, UNIT, center=0.5).interval
    assert sum(shifted) / 2 == pytest.approx(0.5) and np.diff(shifted) == pytest.approx(np.diff(tuple(expected)))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.lists(st.floats(0, 1), min_size=12, max_size=12))
def test_no_interval_leaves_the_range_and_few_values_have_none(values, others):
    for found, (low, high) in (
        (mean_of(values, UNIT), UNIT),
        (difference_of(list(zip(values, others, strict=False)), UNIT), (-1.0, 1.0)),
        (pooled([mean_of(values, UNIT), mean_of(others, UNIT)]), UNIT),
    ):
        assert found.n >= FEWEST or found.interval is None
        if found.interval:
            assert low <= found.interval[0] <= found.mean + 1e-9 and found.mean - 1e-9 <= found.interval[1] <= high


def test_equal_values_between_the_ends_say_nothing_about_others():
    assert mean_of([0.5] * 30, UNIT).interval is None and mean_of([1.0] * 30, UNIT).interval is not None
    assert mean_of([0.0] * 30, (0.0, math.inf)).interval is None  # a count: only one end is known
    assert difference_of([(0.5, 0.5)] * 30, UNIT).interval is None
    assert difference_of([(1.0, 1.0)] * 30, UNIT).interval == pytest.approx((-0.087, 0.087), abs=1e-3)


@pytest.mark.parametrize(("n", "p"), [(5, 0.5), (8, 0.9), (12, 0.3), (100, 0.98)])
def test_coverage_of_scores_and_paired_scores_of_0_and_1(n, p):
    draw, hits, paired, runs = np.random.default_rng(n), 0, 0, 800
    for _ in range(runs):
        low, high = mean_of((draw.random(n) < p).astype(float).tolist(), UNIT).interval
        hits += low <= p <= high
        both = (draw.random((2, n)) < [[p], [p / 2]]).astype(float)
        low, high = difference_of(both.T.tolist(), UNIT).interval
        paired += low <= -p / 2 <= high
    assert hits / runs >= 0.91 and paired / runs >= 0.92


@pytest.mark.parametrize("n", [5, 12, 60])
def test_coverage_of_means_and_of_their_pool(n):
    draw, hits, pools, runs = np.random.default_rng(n), 0, 0, 800
    for _ in range(runs):
        small, large = draw.beta(4, 4, n).tolist(), (10 * draw.beta(4, 4, 6)).tolist()
        low, high = mean_of(small, UNIT).interval
        hits += low <= 0.5 <= high
        low, high = pooled([mean_of(small, UNIT), mean_of(large, (0.0, 10.0))], [3, 1]).interval
        pools += low <= 0.75 * 0.5 + 0.25 * 5 <= high
    assert 0.92 <= hits / runs <= 0.98 and 0.92 <= pools / runs <= 0.985


def test_a_pool_of_scales_is_stratified():
    """Values of two scales in one pot would spread by the distance of the scales, which no choice of rows changes."""
    low, high = [0.1, 0.2, 0.3, 0.2, 0.1, 0.25], [8.1, 8.2, 8.3, 8.2, 8.1, 8.25]
    found = pooled([mean_of(low), mean_of(high)]).interval
    together = mean_of(low + high).interval
    assert found[1] - found[0] < (together[1] - together[0]) / 20
    assert pooled([mean_of(low), mean_of([1.0])]).interval is None  # one value has no spread


@pytest.mark.parametrize("n", [6, 40])
def test_a_score_of_rows_has_a_bootstrap_that_is_wide_enough_for_few_rows(n):
    draw, hits, runs = np.random.default_rng(n), 0, 300
    for run in range(runs):
        values = draw.beta(4, 4, n)
        found = score_of_rows(lambda weights, v=values: weights @ v / n, values.mean(), n, f"{run}", UNIT, 1000)
        low, high = found.interval
        hits += low <= 0.5 <= high
        assert found.variance == pytest.approx(values.var(ddof=1) / n, rel=0.2)
    assert 0.92 <= hits / runs <= 0.985


def test_large_sets_are_resampled_in_parts(monkeypatch):
    monkeypatch.setattr("soul.metrics.intervals._AT_ONCE", 1000)
    values = np.random.default_rng(1).normal(size=300)
    found = score_of_rows(lambda weights: weights @ values / 300, values.mean(), 300, "parts")
    assert math.sqrt(found.variance) == pytest.approx(values.std() / math.sqrt(300), rel=0.1)
