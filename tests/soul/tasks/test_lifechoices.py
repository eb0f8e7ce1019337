"""LifeChoices: the row in its nested and its flat form, and the blank that gave the right option away."""

import json

import pytest
from pydantic import ValidationError

from soul.tasks.lifechoices import LifeChoices, LifeChoicesRow
from tests.soul.tasks.one_turn_samples import LIFECHOICES, tagged, verdict_of

TASK = LifeChoices()
NESTED = LIFECHOICES["Multiple Choice Question"]
FLAT = {
    **{key: value for key, value in LIFECHOICES.items() if key != "Multiple Choice Question"},
    "scenario": NESTED["Scenario"],
    "question": NESTED["Question"],
    "options": NESTED["Options"],
    "correct_answer": "B",
}


def changed(**fields):
    return LifeChoicesRow.model_validate({**LIFECHOICES, "Multiple Choice Question": {**NESTED, **fields}})


def test_nested_flat_and_json_are_one_row():
    row = LifeChoicesRow.model_validate(LIFECHOICES)
    assert row == LifeChoicesRow.model_validate(FLAT)
    assert row == LifeChoicesRow.model_validate({**LIFECHOICES, "Multiple Choice Question": json.dumps(NESTED)})
    assert row == LifeChoicesRow.model_validate({**FLAT, "options": json.dumps(NESTED["Options"])})
    assert row == LifeChoicesRow.model_validate({**FLAT, "options": str(NESTED["Options"])})  # a Python literal
    biography = {**{key: value for key, value in FLAT.items() if key != "input_text"}, "biography": FLAT["input_text"]}
    assert row == LifeChoicesRow.model_validate(biography)


# "B. She .." among "A.She ..": in the public stand-in the blank marks the right option in more than half of the rows.
def test_options_lose_letters_and_blanks_of_their_own():
    row = LifeChoicesRow.model_validate(LIFECHOICES)
    assert row.options[:2] == ["She lets him in.", "She sends him away."]
    assert "\nA. She lets him in.\nB. She sends him away.\n" in TASK.prompt(row)[0]["content"]
    assert changed(Options=["A. Smith", "Jones"]).options == ["A. Smith", "Jones"]  # not all have one: a name stays


@pytest.mark.parametrize("answer", ["B", "b", "B.", "(B)", "B. She sends him away.", "She sends him away."])
def test_ways_to_name_the_right_option(answer):
    row = changed(**{"Correct Answer": answer})
    TASK.check(row)
    assert TASK.gold(row) == "B" and TASK.reference(row) == "B. She sends him away."


@pytest.mark.parametrize("answer", ["E", "Z", "She stays.", "AB", "1"])
def test_a_right_option_that_is_none(answer):
    with pytest.raises(ValueError, match="^correct_answer: .* is not among the options"):
        TASK.check(changed(**{"Correct Answer": answer}))


@pytest.mark.parametrize(
    "options", [[], ["one"], ["a", "", "c"], ["a", None, "c"], 3, "no list", {"A": "x", "C": "y"}, [float("nan")] * 4]
)
def test_options_that_are_none(options):
    with pytest.raises(ValidationError):
        changed(Options=options)


def test_options_absent_at_the_end_are_dropped_and_objects_are_read_by_letter():
    assert changed(Options=["a", "b", None, float("nan")]).options == ["a", "b"]
    assert changed(Options={"B": "b", "a": "a", "C": None}).options == ["a", "b"]


def test_what_is_missing_is_named():
    for key in ("character_name", "input_text"):
        with pytest.raises(ValidationError, match=key):
            LifeChoicesRow.model_validate({**LIFECHOICES, key: " "})
    with pytest.raises(ValidationError, match="question"):
        changed(Question=None)
    with pytest.raises(ValidationError, match="expected an object, got list"):
        LifeChoicesRow.model_validate({**LIFECHOICES, "Multiple Choice Question": [1]})


# The original's parser took the first letter A to D of any text.
@pytest.mark.parametrize("text", ["The character chooses a brave path", "answer: both are bad", "no idea", "B", "(B)"])
def test_a_letter_outside_of_the_tag_is_no_answer(text):
    row = LifeChoicesRow.model_validate(LIFECHOICES)
    assert verdict_of(TASK, row, text).metrics == {
        "accuracy": 0.0,
        "accuracy_strict": 0.0,
        "answered": 0.0,
        "answered_strict": 0.0,
    }
    assert verdict_of(TASK, row, f"{text} {tagged('B')}").reward == 1.0


def test_the_prompt_does_not_name_the_book():
    with_title, without = (LifeChoicesRow.model_validate({**FLAT, "book": book}) for book in ("Moby-Dick", None))
    text = TASK.prompt(with_title)[0]["content"]
    assert "Character: Ada Brook\n" in text and "Moby-Dick" not in text and "Scenario:" in text
    assert text == TASK.prompt(without)[0]["content"]
    assert "Scenario" not in TASK.prompt(LifeChoicesRow.model_validate({**FLAT, "scenario": None}))[0]["content"]
