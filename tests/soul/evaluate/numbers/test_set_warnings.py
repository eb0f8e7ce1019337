"""Signs that a score is not what the model can do.

Promise under test: a set in which every row scores 0 and one whose answers were mostly unreadable are called so, each
with its number and what to look at, in terminal, Markdown and report; a set that is merely weak is not.
"""

import pytest

from soul.evaluate.numbers.results import summarise
from soul.evaluate.tables.run_table import warnings_of
from tests.soul.evaluate.finished_samples import TOM, numbered


def result(rewards, of=TOM, **other):
    return summarise(numbered(rewards, of, **other), [of]).sets[of]


@pytest.mark.parametrize(
    ("rewards", "of", "titles"),
    [
        ([0.0] * 5, TOM, ["Every row scores exactly 0"]),
        ([0.0] * 5 + [None], TOM, ["Every row scores exactly 0"]),  # failed samples score nothing
        ([0.0] * 4, TOM, []),  # so few rows may all be wrong
        ([0.0] * 30 + [1.0], TOM, []),
        ([1.0] * 9, TOM, []),
        ([None] * 9, TOM, []),
        ([-3 / 7] * 9, "sotopia", ["Every row scores exactly -42.9"]),
        ([0.0] * 9, "sotopia", ["Every row scores exactly 0"]),
        ([0.1] * 9, "sotopia", []),
    ],
)
def test_a_set_that_scores_exactly_nothing_is_called_so(rewards, of, titles):
    assert [warning.title for warning in warnings_of(result(rewards, of, metrics={"overall": 0.0}))] == titles


@pytest.mark.parametrize(("answered", "warned"), [(0.0, True), (0.79, True), (0.8, False), (1.0, False)])
def test_a_set_whose_answers_could_not_be_read_is_called_so(answered, warned):
    found = warnings_of(result([1.0, 0.0], metrics={"answered": answered}))
    assert [warning.detail for warning in found] == ([f"{100 * answered:.0f} % read"] if warned else [])
