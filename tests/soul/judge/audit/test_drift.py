"""Chance alone is no drift, a change of the judge is, and grades of other replies or failures are no reference."""

import random

import pytest

from soul.judge.audit.biases import REPLIES
from soul.judge.audit.drift import compare, is_reference


def graded(chance, levels, deviation, change=0.0):
    scores = (round(level + change + chance.gauss(0.0, deviation)) for level in levels)
    return {"date": "2026-01-01T00:00", "grades": [[float(score), "r"] for score in scores]}


@pytest.mark.parametrize(
    ("deviation", "change", "least", "most"),
    [
        (0.3, 0.0, 0, 0.02),
        (0.7, 0.0, 0, 0.02),
        (1.2, 0.0, 0, 0.02),
        (0.3, 1, 0.95, 1),
        (0.7, 1, 0.4, 1),
        (0.7, 2, 0.95, 1),
    ],
)
def test_chance_alone_is_no_drift_and_a_change_is(deviation, change, least, most):
    chance, found = random.Random(0), 0
    for _ in range(500):
        levels = [chance.choice((3, 5, 7)) for _ in REPLIES]
        found += bool(compare("m", graded(chance, levels, deviation), graded(chance, levels, deviation, change))[1])
    assert least <= found / 500 <= most


def test_grades_that_cannot_be_compared_are_no_reference():
    assert not is_reference(None) and not is_reference({"cases": "old", "grades": [[1.0, "r"]] * len(REPLIES)})
