"""SimulatorArena: what policy, tutor and assistant get to read, and how a conversation ends."""

import json

import pytest

from soul.tasks.sim_arena import TURNS, SimArenaMath, hear
from soul.testing import FakeOpenAI, Text
from tests.soul.tasks.sim_arena_cases import LESSON, TASKS, each_task, everybody, judged, play, row_of, scripted

# --- prompts


@each_task
def test_the_policy_reads_its_profile_and_nothing_of_the_real_conversation(kind):
    task, record, prefix = TASKS[kind]
    row = row_of(kind)
    system, opening = task.prompt(row)
    assert system["role"] == "system" and opening["role"] == "user"
    assert row.user_profile_text in system["content"] and prefix in system["content"]
    assert "terminate conversation" in system["content"] and str(TURNS) in system["content"]
    for gold in row.human_user_queries:
        assert gold not in system["content"] or len(gold) < 3
    assert "coach" not in system["content"]


# --- what a turn says


HEARD = [
    ("Query: how do i start", "how do i start", False),
    ("  response :  13 ", "13", False),
    ("**Query:** what now", "what now", False),
    ("I would ask.\nQuery: what now", "what now", False),
    ("Query: first try\nNo, better:\nResponse: second", "second", False),
    ("<think>Query: secret</think>Response: open", "open", False),
    ("still thinking, Query: a</think>\nResponse: open", "open", False),
    ("<think>Response: never closed", "", False),
    ("how do i start", "how do i start", False),
    ("<think>hm</think> my Query: how", "my Query: how", False),
    ("thx\nterminate conversation", "thx", True),
    ("Query:", "", False),
    ("", "", False),
    # leaving
    ("terminate conversation", "", True),
    ("Response: Terminate  Conversation.", "", True),
    ("Query: thx\nterminate conversation", "thx", True),
    ("Query: thx!\n\n**terminate conversation**\n", "thx!", True),
    ("Response: Thanks a lot. Terminate conversation.", "Thanks a lot.", True),
    ("Response: thx\n[terminate conversation]\nTutor: bye", "thx", True),
    ("<think>done</think>\n'terminate conversation'", "", True),
    # not leaving
    ("<think>I could terminate conversation</think>Response: more", "more", False),
    ("<think>\nterminate conversation\n</think>Response: more", "more", False),
    ("terminate conversation\nor not?\nResponse: more", "more", False),
    ("Response: do not terminate conversation", "do not terminate conversation", False),
    ("Response: when do we terminate conversation?", "when do we terminate conversation?", False),
    ("Response: terminate conversations", "terminate conversations", False),
    ("Response: I will terminate conversation now", "I will terminate conversation now", False),
]


@pytest.mark.parametrize(("text", "message", "leaves"), HEARD)
def test_what_is_heard_of_a_turn(text, message, leaves):
    heard = hear(text, ("Query", "Response"))
    assert (heard.message, heard.leaves) == (message, leaves)
    unlabelled = ("how do i start", "<think>hm</think> my Query: how", "thx\nterminate conversation")
    assert heard.labelled == (text not in ("", "<think>Response: never closed", *unlabelled))


# --- play


@each_task
def test_the_partner_hears_messages_alone(kind):
    task, _, prefix = TASKS[kind]
    row = row_of(kind)
    policy = scripted(
        f"<think>private one</think>I plan {prefix}.\n{prefix} one", f"{prefix} two\nterminate conversation"
    )
    _, _, sent = play(kind, policy, LESSON)
    text = json.dumps(sent)
    for hidden in ("private", "I plan", "braces", "coach", prefix, "terminate", *row.user_profile_text.split("\n")):
        assert hidden not in text, hidden
    assert sent[0] == [
        {"role": "system", "content": task.partner_instructions(row)},
        {"role": "user", "content": "one"},
    ]
    for messages in sent:
        assert [m["role"] for m in messages[1:]] == ["user", "assistant"] * (len(messages) // 2 - 1) + ["user"]


def test_a_tutor_is_asked_between_two_messages_and_not_after_the_last():
    for turns in (1, 2, 5, TURNS):
        policy = scripted(*["Query: and now"] * (turns - 1), "Response: got it\nterminate conversation")
        episode, heard, sent = play("math", policy)
        assert (episode.ended, len(heard), len(sent)) == ("left", turns, turns - 1)
    _, heard, sent = play("math", "Query: and now")
    assert (len(heard), len(sent)) == (TURNS, TURNS - 1)
    assert SimArenaMath.calls_per_episode == {"partner": len(sent), "judge": 1}


# --- the final document


def test_the_assistant_gives_a_final_document_after_the_last_message():
    document = "Sir, the heating!"
    fake = FakeOpenAI(lambda r: Text(document if "final version" in r.messages[-1]["content"] else "A draft."))
    policy = scripted("Message: write it", "Message: meaner\nterminate conversation")
    episode, _, sent = play("doc", policy, fake=fake)
    assert len(sent) == 2  # the answer to the first message, and the document
    assert [m["role"] for m in sent[-1]] == ["system", "user", "assistant", "user"]
    assert sent[-1][-1]["content"].startswith("meaner\n\n")
    assert episode.seats["policy"][-1] == {"role": "user", "content": document}
    verdict_fake = everybody()
    judged("doc", episode, verdict_fake)
    data = verdict_fake.requests[0].data
    assert data["final_document"] == document
    assert data["messages_of_the_attempt"] == ["write it", "meaner"]
    assert data["conversation_of_the_attempt"] == [
        {"by": "person", "text": "write it"},
        {"by": "partner", "text": "A draft."},
        {"by": "person", "text": "meaner"},
    ]
