"""Lexical diversity against references written another way, by counting pairs, windows and draws one by one."""

import string
from fractions import Fraction

import pytest

from soul.metrics.lexical import (
    Lexis,
    hdd,
    lexical_score,
    likeness,
    mattr,
    words,
    yules_k,
)

TEXTS = [
    "no",
    "no no no no",
    "whats a good knot for a hammock, the knot should hold me and the hammock",
    "I would like to know how the ferry to the island runs in winter. My sister told me that the ferry stops then, "
    "but the man at the harbour told my sister that a small ferry runs on Sundays. So which one is it? If the ferry "
    "does not run at all, is there a bridge, or do I have to wait until spring like the last time? I do not mind the "
    "cold and I do not mind to wait, but I would like to know it before I buy the tickets.",
    " ".join(f"w{i % 7} x{i * i % 31} y{i % 3}" for i in range(70)),
]
each_text = pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))


def slow_mattr(tokens, window):
    if len(tokens) < window:
        return len(set(tokens)) / len(tokens)
    windows = [tokens[start : start + window] for start in range(len(tokens) - window + 1)]
    return float(sum(Fraction(len(set(part)), window) for part in windows) / len(windows))


def slow_hdd(tokens, sample):
    """The chance of missing a word is a product over the draws."""
    total, sample = len(tokens), min(sample, len(tokens))
    found = Fraction(0)
    for word in set(tokens):
        missed = Fraction(1)
        for draw in range(sample):
            missed *= Fraction(max(0, total - tokens.count(word) - draw), total - draw)
        found += 1 - missed
    return float(found / sample)


def slow_yules_k(tokens):
    """10^4 times the share of ordered pairs of different places that hold the same word."""
    places = range(len(tokens))
    return 1e4 * sum(tokens[i] == tokens[j] for i in places for j in places if i != j) / len(tokens) ** 2


@each_text
def test_the_measures_agree_with_their_references(text):
    tokens = words(text)
    assert mattr(tokens) == pytest.approx(slow_mattr(tokens, 50), abs=1e-9)
    assert hdd(tokens) == pytest.approx(slow_hdd(tokens, 42), abs=1e-9)
    assert yules_k(tokens) == pytest.approx(slow_yules_k(tokens), abs=1e-9)
    for size in (1, 2, 5, 13, len(tokens)):
        assert mattr(tokens, size) == pytest.approx(slow_mattr(tokens, size), abs=1e-9)
        assert hdd(tokens, size) == pytest.approx(slow_hdd(tokens, size), abs=1e-9)


UNIT = Lexis(0.1, 0.2, 50.0)
HERE = Lexis(0.6, 0.7, 200.0)


@pytest.mark.parametrize(
    "distance, score", [(0, 1), (0.5, 1), (1, 1), (1.5, 0.75), (2, 0.5), (2.5, 0.25), (3, 0), (3.5, 0), (40, 0)]
)
def test_likeness_falls_from_one_deviation_to_three(distance, score):
    for sign in (1, -1):
        there = Lexis(*(value + sign * distance * unit for value, unit in zip(HERE, UNIT, strict=True)))
        assert likeness(there, HERE, UNIT) == pytest.approx(score, abs=1e-9)
        assert likeness(HERE, there, UNIT) == pytest.approx(score, abs=1e-9)
        alone = HERE._replace(yules_k=there.yules_k)  # each of the three counts as much
        assert likeness(alone, HERE, UNIT) == pytest.approx((2 + score) / 3, abs=1e-9)


WIDE = Lexis(0.12, 0.11, 102.0)  # about that of MirrorBench's users
TEN = "i would like to know how the ferry leaves today".split()
DIFFERENT = (
    "one two three four five six seven eight nine ten red blue green black white north south east west up".split()
)
MANY = DIFFERENT + "Monday Tuesday Friday June July August king queen cat dog tree house river sea".split()


@pytest.mark.parametrize(
    "said, human, score",
    [
        (TEN, TEN, 1.0),
        (TEN[:5], TEN, 1.0),  # half of the human's tokens is enough
        (TEN[:4], TEN, 4 / 5),  # less is not, in proportion
        (["ok"], TEN, 1 / 5),
        (["ok"], TEN[:5], 1 / 5),  # nor is less than five tokens, whatever the human wrote
        (["no"], DIFFERENT, 1 / 10),
        (MANY[:25], [*string.ascii_letters, *MANY], 1.0),  # no more is asked for than half a window
        (["\U0001f44d"], TEN, 1 / 5),
        ([], TEN, 0.0),
        (["ok"], TEN[:4], None),  # the human's own text is too short to be compared with
        (["ok"], ["\U0001f44d"], None),
    ],
)
def test_a_short_text_is_not_scored_as_human(said, human, score):
    found = lexical_score([" ".join(said)], [" ".join(human)], WIDE)
    assert found == (None if score is None else pytest.approx(score))
