"""Mistakes: the student's wrong answer is the right one here, and its LaTeX must not leak in plain spelling."""

import pytest

from soul.leaks.redaction import redact
from soul.tasks.mistakes import Mistakes, MistakesRow
from tests.soul.tasks.one_turn_samples import MISTAKES, tagged, verdict_of

TASK = Mistakes()


def row_with(**fields):
    return MistakesRow.model_validate({**MISTAKES, **fields})


def test_the_correct_answer_is_no_mistake():
    with pytest.raises(ValueError, match="^target_option: A is the correct answer"):
        TASK.check(row_with(TargetOption="A"))


SEVERAL = {"AcceptedOptions": ["C", "B"]}


@pytest.mark.parametrize("letter, reward", [("A", 0), ("B", 1), ("C", 1), ("D", 0), ("E", 0), ("B or C", 0)])
def test_each_of_several_right_options_is_accepted(letter, reward):
    TASK.check(row_with(**SEVERAL))
    verdict = verdict_of(TASK, row_with(**SEVERAL), tagged(letter))
    assert verdict.reward == verdict.metrics["accuracy"] == reward
    assert verdict_of(TASK, row_with(), tagged("C")).reward == 0


def test_the_critic_knows_all_right_options_and_gives_none_away():
    row = row_with(**SEVERAL)
    assert TASK.reference(row) == f"B. {row.options[1]} or C. {row.options[2]}"
    for option in row.options[1:3]:
        assert redact(f"You should have come to {option}.", TASK.secrets(row))[1]
    assert redact("Choose option C here.", TASK.secrets(row))[1]


def test_to_forget_the_part_is_counted():
    assert verdict_of(TASK, row_with(), tagged("A")).metrics["right_in_mathematics"] == 1.0
    assert verdict_of(TASK, row_with(), tagged("B")).metrics["right_in_mathematics"] == 0.0
    assert "right_in_mathematics" not in verdict_of(TASK, row_with(CorrectAnswer=None), tagged("A")).metrics


@pytest.mark.parametrize("spelling", [r"\( 48 \)", "$48$", "48."])
def test_a_result_is_blanked_however_it_is_written(spelling):
    text, withheld = redact(f"You would arrive at {spelling} here", TASK.secrets(row_with()))
    assert withheld and "48" not in text
