"""MirrorBench: the record as a row, who hears what, and a model in the assistant's place.

Promise under test: the policy never gets to see what the real user says next, and the assistant's turns are the
record's.
"""

import json

import pytest

from soul.tasks.mirrorbench import SILENCE, MirrorBench, conversation
from soul.testing import FakeOpenAI, Text, fake_gateway
from tests.soul.tasks.mirrorbench_talks import LESSON, RECORD, SIMULATED, TASK, play, row_of

# --- rows


def test_json_lists_aliases_nulls_and_the_way_to_another_process_give_one_row():
    row = row_of()
    forms = [
        {**RECORD, "turns": json.dumps(RECORD["turns"])},
        {**RECORD, "turns": tuple(RECORD["turns"])},
        {"conversation": RECORD["turns"], **{k: v for k, v in RECORD.items() if k != "turns"}},
        {**RECORD, "question": None, "few_shot_user_examples": [{"utterance": "yes"}]},
    ]
    for record in forms:
        assert row_of(record) == row
    assert TASK.row_type.model_validate(row.model_dump(mode="json")) == row
    assert row_of({**RECORD, "dataset": None}) == row_of({k: v for k, v in RECORD.items() if k != "dataset"})


def test_the_conversation_ends_with_the_user_and_roles_alternate():
    row = row_of()
    assert [turn["role"] for turn in row.conversation] == ["user", "assistant"] * 2 + ["user"]
    assert row.user_turns == ["whats a good knot for a hammock", "yes", "ok thx, and the other end of the rope?"]
    twice = [
        {"role": "user", "content": "hi"},
        {"role": "user", "content": "you there?"},
        {"role": "assistant", "content": "Yes."},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "good"},
    ]
    assert [turn["content"] for turn in row_of(turns=twice).conversation] == ["hi\nyou there?", "Yes.\nHello!", "good"]


# --- what the policy sees


@pytest.mark.parametrize("feedback", [None, LESSON])
def test_the_seat_sees_an_alternating_conversation_that_only_grows(feedback):
    row = row_of()
    episode, players = play(row, SIMULATED, feedback)
    heard = players.seats["policy"].heard
    assert len(heard) == 3 and set(players.seats) == {"policy"}
    record = [turn["content"] for turn in row.conversation if turn["role"] == "assistant"]
    for number, (messages, base) in enumerate(heard):
        assert [m["role"] for m in messages] == ["system", "user", *["assistant", "user"] * number]
        assert base[:2] == TASK.prompt(row) and messages[:2] == TASK.prompt(row, feedback)
        assert messages[2:] == base[2:]
        assert [m["content"] for m in messages[2::2]] == SIMULATED[:number]
        assert [m["content"] for m in messages[3::2]] == record[:number]
        if number:
            assert messages[: len(heard[number - 1][0])] == heard[number - 1][0]
    assert list(episode.seats["policy"]) == [*heard[-1][0], {"role": "assistant", "content": SIMULATED[-1]}]
    assert episode.ended == "record_over"


# --- a model as assistant


def test_a_model_hears_the_clean_turns_and_the_real_conversation_and_nothing_else():
    task = MirrorBench(assistant="model")
    fake = FakeOpenAI([Text("<think>hm</think>A bowline holds."), Text("Lead the end through.")])
    said = ["<think>my plan</think>User: Which knot?", "<think>only a plan", "bye"]
    episode, players = play(row_of(), said, LESSON, task, fake_gateway(fake))
    assert len(fake.requests) == 2 == 3 - 1
    assert [m["content"] for m in fake.requests[1].messages[1:]] == ["Which knot?", "A bowline holds.", SILENCE]
    for request in fake.requests:
        assert [m["role"] for m in request.messages] == ["system", "user", "assistant", "user"][: len(request.messages)]
        assert "plan" not in request.text and LESSON not in request.text and "coach" not in request.text
        assert "Make a loop and lead the end through it." in request.messages[0]["content"]
        assert "whats a good knot" in request.messages[0]["content"] and "{{" not in request.messages[0]["content"]
    spoken = [m["content"] for m in episode.seats["policy"][2:]]
    assert spoken == [said[0], "A bowline holds.", said[1], "Lead the end through.", said[2]]
    assert [m["content"] for m in conversation(episode.seats["policy"])][::2] == ["Which knot?", "", "bye"]
