"""UserLLM: the record as a row, and what the policy sees."""

import json

import pytest
from pydantic import ValidationError

from soul.tasks.userllm import END, spoken
from tests.soul.tasks.userllm_rows import GOES_ON, NQ, OPENS, TASK, row_of

# --- rows


def test_the_originals_names_for_the_intent_and_the_source():
    for record, keys in ((NQ, ("intent", "intent_summary", "opening_prompt")), (OPENS, ("intent", "intent_summary"))):
        bare = {k: v for k, v in record.items() if k != "intent"}
        for key in keys:
            assert row_of({**bare, key: OPENS["intent"]}).intent == OPENS["intent"]
            assert row_of({**bare, "intent": " ", key: OPENS["intent"], "question": "x"}).intent == OPENS["intent"]
        assert row_of({**record, "opening_prompt": "other"}).intent == record["intent"]
    assert row_of({**OPENS, "source": "PRISM_alignment"}).source == "prism"
    assert row_of({k: v for k, v in NQ.items() if k != "intent"}).intent == NQ["question"]


@pytest.mark.parametrize("key", ["opening_prompt", "question"])
@pytest.mark.parametrize("record", [OPENS, GOES_ON], ids=["first", "next"])
def test_the_persons_own_message_is_no_intent(record, key):
    own = {**{k: v for k, v in record.items() if k != "intent"}, key: "do bees see red", "index": 1}
    with pytest.raises(ValidationError, match=f"intent: this row of prism has only {key}.*data.userllm intents"):
        TASK.row_type.model_validate(own)


def test_a_history_of_turns_is_a_text_and_the_proposal_joins_it_once():
    turns = [{"role": "user", "content": "who built the bridge "}, {"role": "assistant", "content": "No idea."}]
    text = "User: who built the bridge\nAssistant: No idea."
    for history in (turns, json.dumps(turns), text, f" {text}\n"):
        assert row_of(NQ, conversation_history=history).conversation == text
    row = row_of(NQ, conversation_history=text, assistant_suggestion_turn="Shall I tell you about ferries?")
    assert row.conversation == f"{text}\nAssistant: Shall I tell you about ferries?"
    assert (
        row_of(NQ, assistant_suggestion_turn="Shall I tell you about ferries?").conversation
        == NQ["conversation_history"]
    )
    assert row_of(NQ, conversation_history="[laughs] who?").conversation == "[laughs] who?"


# --- what the policy sees


@pytest.mark.parametrize(
    "text, said, ends",
    [
        ("hm?", "hm?", False),
        (f"thanks {END}", "thanks", True),
        (f"bye {END.upper()}\nAssistant: bye", "bye", True),
        (f"<think>should I say {END}?</think>no", "no", False),
        (f"User: who?\n{END}", "who?", True),
        ("**User:** who?", "who?", False),
        ("my user: who?", "my user: who?", False),
        (END, "", True),
        ("<|endconversation", "<|endconversation", False),
        ("", "", False),
    ],
)
def test_what_is_heard_of_a_turn(text, said, ends):
    assert spoken(text) == (said, ends)
