"""MirrorBench: the record as a row and who hears what.

Promise under test: the policy never gets to see what the real user says next, and the assistant's turns are the
record's.
"""

import json

import pytest

from tests.soul.tasks.mirrorbench_talks import LESSON, RECORD, SIMULATED, TASK, play, row_of


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
