"""How the tasks with a definite answer read what was said, and gold answers in the notations that public files use."""

import pytest

from soul.answers.extraction import mentioned_names, tagged_answer
from soul.answers.thinking import without_thinking
from soul.errors import BadRow
from soul.metrics.overlap import token_f1
from soul.one_turn import parse_options
from soul.rows.task_files import parse_row
from tests.soul.samples import SAMPLES, load, tagged, verdict_of

pytestmark = pytest.mark.smoke


# lower() can lengthen a text (the capital dotted I of Turkish becomes two characters): positions found in it are not
# positions in what was said.
@pytest.mark.parametrize(
    "before", ["\u0130", "\u0130stanbul, \u0130zmir: ", "\u1e9e", "\ufb01", "\U0001f600", "e\u0301"]
)
def test_letters_that_change_length_with_case_do_not_shift_the_answer(before):
    assert tagged_answer(f"{before}<answer>treasure_chest</answer>{before}") == "treasure_chest"


def test_tagged_answer_and_thinking():
    assert tagged_answer("no tag") is None
    assert tagged_answer("<answer> x\ny </answer>") == "x\ny"
    assert without_thinking("<think>a</think>b<think>c") == "b"


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


@pytest.mark.parametrize("nobody", ["", [], "[]", " , "])
def test_a_list_question_that_all_can_answer(nobody):
    item = parse_row("fantom", {**SAMPLES["fantom_list"].record, "wrong_answer": nobody})
    assert verdict_of(item, tagged("Ann, Bob")).reward == 1.0 and verdict_of(item, tagged("Ann")).reward == 0.0


def test_a_place_whose_name_holds_another_place_can_be_the_answer():
    record = {**SAMPLES["paratomi"].record, "cands": ["box", "red box"], "correct_answer": "red box"}
    item = parse_row("paratomi", record)
    assert [verdict_of(item, tagged(place)).reward for place in ("red box", "box", "red box or box")] == [1.0, 0.0, 0.0]


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


def test_a_partial_fact_scores_in_part():
    assert 0.0 < verdict_of(load("fantom_fact")[1], tagged("three")).reward < 1.0


# With an empty gold list ANY answer names all of nobody.
def test_a_list_question_without_gold_names_gives_nothing_away():
    record = {**SAMPLES["fantom_list"].record, "correct_answer": [], "wrong_answer": []}
    try:
        item = parse_row("fantom", record)
    except BadRow as error:  # to refuse the row is the other right way
        assert "correct_answer" in str(error)
    else:
        assert verdict_of(item, tagged("whoever")).reward == 0.0
