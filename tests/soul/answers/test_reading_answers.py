"""How the tasks with a definite answer read what was said, and gold answers in the notations that public files use."""

import pytest

from soul.answers.extraction import mentioned_names
from soul.metrics.ngram import token_f1
from soul.one_turn import parse_options

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize(
    "choices, options",
    [
        ("A. green_box, B. red crate", {"A": "green_box", "B": "red crate"}),
        ("A. x\nB. y\nC. z", {"A": "x", "B": "y", "C": "z"}),
        ("A) x, B) y, z", {"A": "x", "B": "y, z"}),
        ("", {}),
    ],
)
def test_parse_options(choices, options):
    assert parse_options(choices) == options


@pytest.mark.parametrize(
    "answer, names, found",
    [
        ("in the Treasure chest!", ["treasure_chest"], {"treasure_chest"}),
        ("crate,", ["crate"], {"crate"}),
        ("crates, top_crate", ["crate"], set()),
        ("the red box", ["box", "red box", "red"], {"red box"}),
        ("the red box and the box", ["box", "red box"], {"box", "red box"}),
        ("Ann Marie, Bob", ["Ann", "Ann Marie", "Bob", "Carl"], {"Ann Marie", "Bob"}),
    ],
)
def test_names_are_found_as_whole_words_and_the_longest_first(answer, names, found):
    assert mentioned_names(answer, names) == found == mentioned_names(answer, names[::-1])


@pytest.mark.parametrize(
    "prediction, gold, score",
    [
        ("three hives", "three hives", 1.0),
        ("The three, hives!", "three hives", 1.0),
        ("three", "three hives", 2 / 3),
        ("three three hives", "three hives", 0.8),
        ("bees", "three hives", 0.0),
        ("", "three hives", 0.0),
        ("", "", 1.0),
        ("the", "a", 1.0),
    ],
)
def test_token_f1(prediction, gold, score):
    assert token_f1(prediction, gold) == pytest.approx(score)
    assert token_f1(gold, prediction) == pytest.approx(score)
