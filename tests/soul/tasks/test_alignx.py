"""AlignX: the order of the two responses, what of the user is shown, and that nothing points at one of two."""

import json

import pytest

from soul.leaks.redaction import redact
from soul.tasks.alignx import AlignX, AlignXHistory16, AlignXRow
from tests.soul.tasks.one_turn_samples import ALIGNX, tagged, verdict_of

TASK = AlignX()


def row_with(**fields):
    return AlignXRow.model_validate({**ALIGNX, **fields})


def test_every_order_is_shown_and_scored_as_drawn():
    seen = set()
    for index in range(20):
        row = row_with(index=index)
        gold = TASK.gold(row)
        seen.add(gold)
        assert TASK.options(row)[gold] == row.chosen and list(TASK.options(row)) == ["A", "B"]
        text = TASK.prompt(row)[0]["content"]
        assert f"Response {gold}:\n{row.chosen}\n" in text and text.count(row.chosen) == text.count(row.rejected) == 1
        rewards = {letter: verdict_of(TASK, row, tagged(letter)).reward for letter in "AB"}
        assert rewards == {letter: float(letter == gold) for letter in "AB"}
    assert seen == {"A", "B"}


def test_two_choices_and_two_comments_are_shown_unless_the_row_says_otherwise():
    text = TASK.prompt(row_with())[0]["content"]
    assert "Post: Rain?" in text and "Unseen third" not in text
    assert "Unseen third" in AlignXHistory16().prompt(row_with())[0]["content"]
    assert "Unseen third" in TASK.prompt(row_with(n_icl=3))[0]["content"]
    none = TASK.prompt(row_with(n_icl=0, n_ugc=0))[0]["content"]
    assert "the user chose" not in none and "the user wrote" not in none
    # nulls come from a file with other tasks; int(None) broke the original
    assert TASK.prompt(row_with(n_icl=None, n_ugc=None)) == TASK.prompt(row_with())


def test_lists_as_json_and_the_names_of_the_public_files():
    row = row_with(icl_pairs=json.dumps(ALIGNX["icl_pairs"]), ugc=json.dumps(ALIGNX["ugc"]))
    assert row == row_with()
    names = {"raw_prompt": "prompt", "demographic": "Demographic Information", "ugc": "User-Generated Content"}
    names["icl_pairs"] = "Pair-wise Comparative Feedback"
    assert AlignXRow.model_validate({names.get(key, key): value for key, value in ALIGNX.items()}) == row_with()


@pytest.mark.parametrize(
    "hint",
    ["Response B", "the reply a", "the first one", "second response", "the former", "option A", "Just say it. Done."]
    + ["the first because it is", "the second"],
)
def test_nothing_points_at_one_of_the_two(hint):
    text, withheld = redact(f"This user would like {hint}", TASK.secrets(row_with()), TASK.choices(row_with()))
    assert withheld and hint not in text
