"""TwinVoice: histories in every form, and what each dimension is scored as."""

import json

import pytest
from pydantic import ValidationError

from soul.leaks.redaction import redact
from soul.tasks.twinvoice import TwinVoice, TwinVoiceRow
from tests.soul.tasks.one_turn_samples import TWINVOICE, tagged, verdict_of

TASK = TwinVoice()
HISTORY = TWINVOICE["conversation_history"]


def row_with(**fields):
    return TwinVoiceRow.model_validate({**TWINVOICE, **fields})


@pytest.mark.parametrize(
    "history", [HISTORY, json.dumps(HISTORY), str(HISTORY), "\n".join(HISTORY), [*HISTORY, None, " "], tuple(HISTORY)]
)
def test_forms_of_a_history(history):
    assert row_with(conversation_history=history).conversation_history == HISTORY


def test_history_entries_that_are_objects():
    entries = [{"post": "Rain again?", "reply": "nope"}, {"post": None, "reply": "ugh"}]
    row = row_with(conversation_history=json.dumps(entries))
    assert row.conversation_history == ["post: Rain again?\nreply: nope", "reply: ugh"]
    assert "- post: Rain again?" in TASK.prompt(row)[0]["content"]


def test_the_other_names_of_the_fields():
    record = {
        "index": 0,
        "history": HISTORY,
        "context": TWINVOICE["anchor_post"],
        "choices": json.dumps(TWINVOICE["answer_choices"]),
        "answer_idx": 1,
        "dimension": 1,
    }
    assert TwinVoiceRow.model_validate(record) == row_with()


def test_a_row_without_history_is_asked_all_the_same():
    text = TASK.prompt(row_with(conversation_history=None))[0]["content"]
    assert "said before" not in text and "The new occasion:\nThe office moves" in text


def test_a_character_with_name_and_traits():
    text = TASK.prompt(row_with(speaker="Nydia", persona={"Traits": ["loyal", "jealous"]}))[0]["content"]
    assert "What is known about Nydia:\nTraits: loyal, jealous\n" in text and "What Nydia said before:" in text
    assert "Question: Which of these does Nydia say?" in text


@pytest.mark.parametrize("number", [-1, 4, 99])
def test_an_index_that_names_no_reply(number):
    with pytest.raises(ValueError, match="^answer_idx: .* an index from 0 to 3"):
        TASK.check(row_with(answer_idx=number))


@pytest.mark.parametrize("fields", [{"anchor_post": " "}, {"answer_choices": ["one"]}, {"answer_idx": None}])
def test_rows_that_cannot_be_asked(fields):
    with pytest.raises(ValidationError):
        row_with(**fields)


@pytest.mark.parametrize(
    "dimension, name",
    [
        (3, "accuracy_dimension_3"),
        ("dimension_2", "accuracy_dimension_2"),
        ("Social Persona", "accuracy_social_persona"),
    ],
)
def test_accuracy_by_dimension(dimension, name):
    verdict = verdict_of(TASK, row_with(dimension=dimension), tagged("B"))
    assert verdict.metrics == {
        "accuracy": 1.0,
        "accuracy_strict": 1.0,
        "answered": 1.0,
        "answered_strict": 1.0,
        name: 1.0,
    }
    assert verdict_of(TASK, row_with(dimension=None), tagged("B")).metrics == {
        "accuracy": 1.0,
        "accuracy_strict": 1.0,
        "answered": 1.0,
        "answered_strict": 1.0,
    }


def test_each_index_is_its_letter():
    for number, letter in enumerate("ABCD"):
        row = row_with(answer_idx=number)
        assert [verdict_of(TASK, row, tagged(choice)).reward for choice in "ABCD"] == [
            float(choice == letter) for choice in "ABCD"
        ]


@pytest.mark.parametrize("hint", ["Reply B", "the second reply", "response (b)", "the last response", "option B"])
def test_feedback_points_at_no_reply(hint):
    text, withheld = redact(f"This person would say {hint} here", TASK.secrets(row_with()))
    assert len(withheld) == 1 and text.endswith("[withheld] here") and hint not in text
    advice = "Each reply a friend of hers gets is short."
    assert redact(advice, TASK.secrets(row_with())) == (advice, [])
