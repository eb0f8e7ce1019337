"""TwinVoice: histories in every form, and what each dimension is scored as."""

import json

import pytest

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


@pytest.mark.parametrize("dimension, name", [(3, "dimension_3"), ("Social Persona", "social_persona")])
def test_accuracy_by_dimension(dimension, name):
    metrics = dict.fromkeys(("accuracy", "accuracy_strict", "answered", "answered_strict"), 1.0)
    assert verdict_of(TASK, row_with(dimension=dimension), tagged("B")).metrics == {**metrics, f"accuracy_{name}": 1.0}
    assert verdict_of(TASK, row_with(dimension=None), tagged("B")).metrics == metrics


@pytest.mark.parametrize("hint", ["Reply B", "the second reply", "response (b)", "the last response", "option B"])
def test_feedback_points_at_no_reply(hint):
    text, withheld = redact(f"This person would say {hint} here", TASK.secrets(row_with()))
    assert len(withheld) == 1 and text.endswith("[withheld] here") and hint not in text
    advice = "Each reply a friend of hers gets is short."
    assert redact(advice, TASK.secrets(row_with())) == (advice, [])
