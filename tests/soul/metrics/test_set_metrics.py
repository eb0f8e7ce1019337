"""Metrics of sets.

Promise under test: with every row counted once they are their definitions, computed here anew; with other weights they
are those of a set in which rows are repeated; thousands of resamples of a large set take seconds.
"""

import itertools
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from soul.metrics.set_metrics import Outcome, Ratio, SetScore, jaccard_pairs
from soul.tasks.hitom import HiToM
from tests.soul.evaluate.finished_samples import scored_by_rule, shown_for_the_set
from tests.soul.samples import HITOM, tagged

WORDS = st.frozensets(st.sampled_from("abcdefgh"), min_size=1)


def once(count):
    return [Outcome(place, 1.0, None, None) for place in range(count)]


def value(metric, weights):
    return float(metric.values(np.array([weights], dtype=float))[0])


def mean_of(values, name="mean"):
    return Ratio.from_outcomes(name, len(values), once(len(values)), [(value, 1.0) for value in values])


@given(st.lists(st.tuples(WORDS, st.integers(0, 3)), min_size=2, max_size=6))
def test_diversity_is_the_mean_distance_of_all_pairs_and_a_row_drawn_twice_makes_none_with_itself(drawn):
    sets, weights = zip(*drawn, strict=True)
    pairs = [
        (1 - len(sets[a] & sets[b]) / len(sets[a] | sets[b]), weights[a] * weights[b])
        for a, b in itertools.combinations(range(len(sets)), 2)
    ]
    found = value(jaccard_pairs("d", once(len(sets)), sets), weights)
    total = sum(weight for _, weight in pairs)
    want = sum(distance * weight for distance, weight in pairs) / total if total else float("nan")
    assert found == pytest.approx(want, nan_ok=True)


def test_silence_and_failures_have_distances_of_their_own():
    sets = [frozenset("ab"), frozenset("cd"), frozenset()]
    assert value(jaccard_pairs("d", once(3), sets), [1, 1, 1]) == pytest.approx(1 / 3)
    assert value(jaccard_pairs("d", once(3), [*sets[:2], "worst"]), [1, 1, 1]) == pytest.approx(1 / 3)
    assert value(jaccard_pairs("d", once(3), [sets[0], sets[0], "best"]), [1, 1, 1]) == pytest.approx(2 / 3)
    assert value(jaccard_pairs("d", once(3), [*sets[:2], None]), [1, 1, 1]) == 1.0
    assert np.isnan(value(jaccard_pairs("d", once(1), sets[:1]), [1]))
    assert np.isnan(value(jaccard_pairs("d", [], []), [1, 1]))


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 4)), min_size=1, max_size=8))
def test_a_ratio_is_the_weighted_mean(drawn):
    values, weights = zip(*drawn, strict=True)
    repeated = [value for value, weight in drawn for _ in range(weight)]
    want = statistics.fmean(repeated) if repeated else float("nan")
    assert value(mean_of(values), weights) == pytest.approx(want, nan_ok=True, abs=1e-12)


def test_a_metric_that_a_resample_leaves_undefined_keeps_its_value():
    rare = Ratio.from_outcomes("rare", 3, once(3), [(0.5, 1.0), None, None])
    score = SetScore.from_metrics(
        3, [mean_of([0.0, 1.0, 1.0]), rare, Ratio.from_outcomes("none", 3, once(3), [None] * 3)]
    )
    assert dict(score.parts) == {"mean": pytest.approx(2 / 3), "rare": 0.5}
    assert score.mean == pytest.approx((2 / 3 + 0.5) / 2)
    assert score.values(np.array([[0.0, 2.0, 1.0]])) == pytest.approx([(1 + 0.5) / 2])
    assert score.only({"rare"}).mean == 0.5 and SetScore.from_metrics(3, []).mean is None


def test_a_metric_of_the_whole_set_is_shown_beside_the_score(monkeypatch):
    def right_orders(_task, rows, outcomes):
        parts = [(one.scored.verdict.reward, float(one.row.question_order == 1)) for one in outcomes]
        return [Ratio.from_outcomes("right_per_first_order", rows, outcomes, parts)]

    monkeypatch.setattr(HiToM, "set_metrics", right_orders)
    said = [("B", 0), ("B", 1), ("A", 1)]  # B is right
    samples = [
        scored_by_rule("hitom", {**HITOM, "question_order": order}, tagged(letter), number)
        for number, (letter, order) in enumerate(said)
    ]
    assert shown_for_the_set(samples) == {"right_per_first_order": 2 / 2}
