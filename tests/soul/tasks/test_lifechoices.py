"""LifeChoices: the row in its nested and its flat form, and the blank that gave the right option away."""

import json

from soul.tasks.lifechoices import LifeChoices, LifeChoicesRow
from tests.soul.tasks.one_turn_samples import LIFECHOICES

TASK = LifeChoices()
NESTED = LIFECHOICES["Multiple Choice Question"]
FLAT = {
    **{key: value for key, value in LIFECHOICES.items() if key != "Multiple Choice Question"},
    "scenario": NESTED["Scenario"],
    "question": NESTED["Question"],
    "options": NESTED["Options"],
    "correct_answer": "B",
}


def test_nested_flat_and_json_are_one_row():
    row = LifeChoicesRow.model_validate(LIFECHOICES)
    assert row == LifeChoicesRow.model_validate(FLAT)
    assert row == LifeChoicesRow.model_validate({**LIFECHOICES, "Multiple Choice Question": json.dumps(NESTED)})
    assert row == LifeChoicesRow.model_validate({**FLAT, "options": json.dumps(NESTED["Options"])})
    assert row == LifeChoicesRow.model_validate({**FLAT, "options": str(NESTED["Options"])})  # a Python literal
    biography = {**{key: value for key, value in FLAT.items() if key != "input_text"}, "biography": FLAT["input_text"]}
    assert row == LifeChoicesRow.model_validate(biography)


def test_the_prompt_does_not_name_the_book():
    with_title, without = (LifeChoicesRow.model_validate({**FLAT, "book": book}) for book in ("Moby-Dick", None))
    text = TASK.prompt(with_title)[0]["content"]
    assert "Character: Ada Brook\n" in text and "Moby-Dick" not in text and "Scenario:" in text
    assert text == TASK.prompt(without)[0]["content"]
    assert "Scenario" not in TASK.prompt(LifeChoicesRow.model_validate({**FLAT, "scenario": None}))[0]["content"]
