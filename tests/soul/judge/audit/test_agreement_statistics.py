"""Agreement statistics against independent float64 computations: pair by pair, as their definitions say it.

Promise under test: published examples come out, degenerate input is None and never a number or a crash, and an interval
is that of a plain bootstrap.
"""

import math
import random
import warnings
from itertools import permutations, product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from soul.judge.audit import agreement_statistics
from soul.judge.audit.agreement_statistics import (
    RESAMPLES,
    accuracy,
    agreement,
    cohens_kappa,
    krippendorff_alpha,
)

# The examples of K. Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), with the values printed there.
TWO_BINARY = [[0, 1, 0, 0, 0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]]
TWO_NOMINAL = [[ord(c) for c in "aabbdcccedda"], [ord(c) for c in "babbbccceddd"]]
FOUR = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]

DISTANCE = {"nominal": lambda a, b: float(a != b), "interval": lambda a, b: (a - b) ** 2}


def alpha_by_coincidences(ratings, level):
    """Alpha as it is defined: observed over expected disagreement of all ordered pairs; None where nothing differs."""
    distance, observed, count = DISTANCE[level], {}, {}
    for unit in zip(*ratings, strict=True):
        values = [v for v in unit if v is not None]
        for a, b in permutations(values, 2):
            observed[a, b] = observed.get((a, b), 0.0) + 1 / (len(values) - 1)
    for (a, _), weight in observed.items():
        count[a] = count.get(a, 0.0) + weight
    total = sum(count.values())
    expected = sum(count[a] * count[b] * distance(a, b) for a, b in product(count, repeat=2))
    if expected == 0:
        return None
    return 1 - (total - 1) * sum(w * distance(a, b) for (a, b), w in observed.items()) / expected


@pytest.mark.parametrize(
    "ratings, level, published",
    [
        (TWO_BINARY, "nominal", 0.095),
        (TWO_NOMINAL, "nominal", 0.692),
        (FOUR, "nominal", 0.743),
        (FOUR, "interval", 0.849),
    ],
)
def test_alpha_gives_the_published_examples(ratings, level, published):
    alpha = krippendorff_alpha(ratings, level)
    assert alpha == pytest.approx(published, abs=5e-4)
    assert alpha == pytest.approx(alpha_by_coincidences(ratings, level), rel=1e-12)


SCORES = st.one_of(st.none(), st.integers(0, 10), st.sampled_from([0.1, 0.25, 0.5, 0.75, 2.5]))


@st.composite
def rated(draw):
    """Members x units with gaps."""
    units = draw(st.integers(1, 8))
    return draw(st.lists(st.lists(SCORES, min_size=units, max_size=units), min_size=1, max_size=4))


@example([], "interval")
@example([[1, 1, 5], [1, 1, None]], "nominal")  # the 5 stands alone: among what can be paired nothing differs
@given(rated(), st.sampled_from(["nominal", "interval"]))
def test_alpha_is_its_definition_on_any_ratings(ratings, level):
    expected = alpha_by_coincidences(ratings, level)
    alpha = krippendorff_alpha(ratings, level)
    assert (alpha is None) == (expected is None)
    if alpha is not None:
        assert alpha == pytest.approx(expected, abs=1e-9)
        assert alpha <= 1 + 1e-12


# --- a judge and people


def pearson_by_sums(x, y):
    mx, my = math.fsum(x) / len(x), math.fsum(y) / len(y)
    cross = math.fsum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    return cross / math.sqrt(math.fsum((a - mx) ** 2 for a in x) * math.fsum((b - my) ** 2 for b in y))


def ranks_by_counting(x):
    return [sum(b < a for b in x) + (sum(b == a for b in x) + 1) / 2 for a in x]


def kendall_by_pairs(x, y):
    agree = ties_x = ties_y = pairs = 0
    for i in range(len(x)):
        for j in range(i):
            dx, dy = (x[i] > x[j]) - (x[i] < x[j]), (y[i] > y[j]) - (y[i] < y[j])
            agree, ties_x, ties_y, pairs = agree + dx * dy, ties_x + (dx == 0), ties_y + (dy == 0), pairs + 1
    return agree / math.sqrt((pairs - ties_x) * (pairs - ties_y))


def kappa_by_tables(x, y):
    """Quadratic weights, from the table of observed pairs and the one that the two margins would give."""
    pairs = list(zip(x, y, strict=True))
    chance = sum((a - b) ** 2 for a, b in product(x, y)) / len(x) ** 2
    return 1 - sum((a - b) ** 2 for a, b in pairs) / len(x) / chance


EXPECTED = {
    "pearson": pearson_by_sums,
    "spearman": lambda x, y: pearson_by_sums(ranks_by_counting(x), ranks_by_counting(y)),
    "kendall": kendall_by_pairs,
    "weighted_kappa": kappa_by_tables,
    "alpha": lambda x, y: alpha_by_coincidences([x, y], "interval"),
    "absolute_error": lambda x, y: sum(abs(a - b) for a, b in zip(x, y, strict=True)) / len(x),
}


def noisy(n, seed, steps=None):
    rng = random.Random(seed)
    x = [rng.random() for _ in range(n)]
    y = [a + rng.gauss(0, 0.3) for a in x]
    return ([round(a * steps) for a in x], [round(a * steps) for a in y]) if steps else (x, y)


@pytest.mark.parametrize("n, steps", [(3, None), (17, 3), (100, 10)])
def test_measures_are_their_formulas(n, steps, monkeypatch):
    judge, human = noisy(n, seed=n, steps=steps)
    monkeypatch.setattr(agreement_statistics, "RESAMPLES", 50)
    found = agreement(judge, human)
    assert list(found) == list(EXPECTED)
    for name, formula in EXPECTED.items():
        assert found[name].value == pytest.approx(formula(judge, human), abs=1e-12)
        assert found[name].n == n


def test_an_interval_repeats_with_its_seed_and_resembles_a_plain_bootstrap():
    judge, human = noisy(80, seed=1)
    first, again, other = (agreement(judge, human, seed=seed)["pearson"] for seed in (5, 5, 6))
    assert first == again != other
    rng = random.Random(99)
    drawn = []
    for _ in range(2000):
        rows = [rng.randrange(80) for _ in range(80)]
        drawn.append(pearson_by_sums([judge[i] for i in rows], [human[i] for i in rows]))
    drawn.sort()
    assert first.low == pytest.approx(drawn[50], abs=0.02)
    assert first.high == pytest.approx(drawn[1950], abs=0.02)


@pytest.mark.parametrize("judge, human", [([], []), ([0.5], [0.5]), ([0.5] * 9, list(range(9))), ([1, 1], [2, 2])])
def test_what_the_data_do_not_define_is_none(judge, human):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = agreement(judge, human)
    for name, estimate in found.items():
        if len(judge) < 2 or name in ("pearson", "spearman", "kendall"):
            assert (estimate.value, estimate.low, estimate.high, estimate.n) == (None, None, None, len(judge))


def test_a_judge_that_says_what_people_say_throughout_has_shown_no_agreement():
    found = agreement([0.7] * 9, [0.7] * 9)
    assert found["weighted_kappa"].value is found["alpha"].value is None and found["absolute_error"].value == 0


def test_resamples_without_variation_are_dropped_and_counted():
    judge, human = [0.2, 0.2, 0.2, 0.2, 0.9], [0.1, 0.3, 0.2, 0.1, 0.8]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = agreement(judge, human)["pearson"]
    # the one different score is missing from (4/5)^5 of the resamples; all five draws are it in (1/5)^5
    assert found.dropped / RESAMPLES == pytest.approx(0.8**5 + 0.2**5, abs=0.06)
    assert -1 <= found.low <= found.value <= 1
    assert found.high == pytest.approx(1, abs=0.01)


# both say yes 20 times and no 15 times; the judge alone 5 times, people alone 10 times
JUDGE = ["yes"] * 20 + ["no"] * 15 + ["yes"] * 5 + ["no"] * 10
PEOPLE = ["yes"] * 20 + ["no"] * 15 + ["no"] * 5 + ["yes"] * 10


def test_accuracy_and_kappa_of_a_two_by_two_table():
    share, kappa = accuracy(JUDGE, PEOPLE), cohens_kappa(JUDGE, PEOPLE)
    observed, chance = 35 / 50, (25 / 50) * (30 / 50) + (25 / 50) * (20 / 50)
    assert share.value == pytest.approx(observed)
    assert kappa.value == pytest.approx((observed - chance) / (1 - chance))
    # a mean of 50 zeros and ones: normal approximation
    assert share.low == pytest.approx(observed - 1.96 * math.sqrt(observed * (1 - observed) / 50), abs=0.03)
    assert share.high == pytest.approx(observed + 1.96 * math.sqrt(observed * (1 - observed) / 50), abs=0.03)
    assert -1 <= kappa.low < kappa.value < kappa.high <= 1
