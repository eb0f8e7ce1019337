"""SimulatorArena: what policy, tutor and assistant get to read, and how a conversation ends."""

import json
import time

import pytest
from pydantic import ValidationError

from soul.errors import JudgeFailure
from soul.task_types import Episode
from soul.tasks.sim_arena import TURNS, SimArenaDoc, SimArenaMath, hear
from soul.testing import Empty, FakeOpenAI, Refusal, Text
from tests.soul.tasks.sim_arena_cases import DOC, LESSON, TASKS, each_task, everybody, judged, play, row_of, scripted

# --- rows


@each_task
def test_fields_may_stand_in_raw(kind):
    task, record, _ = TASKS[kind]
    inside = {key: value for key, value in record.items() if key != "index"}
    assert task.row_type.model_validate({"index": record["index"], "raw": json.dumps(inside)}) == row_of(kind)
    assert task.row_type.model_validate({"index": record["index"], "raw": inside, "problem": None}) == row_of(kind)
    nulls = dict.fromkeys(("problem", "topic", "intent"), None)
    outside_wins = task.row_type.model_validate({"index": 9, "raw": {**nulls, **inside, "index": 1}})
    assert outside_wins.index == 9


@each_task
@pytest.mark.parametrize("raw", ["{", "[1]", "3", '"text"', 3])
def test_raw_that_is_no_object_is_named(kind, raw):
    with pytest.raises(ValidationError, match="raw: is not"):
        TASKS[kind][0].row_type.model_validate({"index": 0, "raw": raw})


@each_task
def test_an_absent_key_and_a_null_are_the_same(kind):
    task, record, _ = TASKS[kind]
    for key, field in task.row_type.model_fields.items():
        if not field.is_required():
            absent = {k: v for k, v in record.items() if k != key}
            one, other = (task.row_type.model_validate(r) for r in (absent, {**record, key: None}))
            assert one == other
            assert task.prompt(one, LESSON) == task.prompt(other, LESSON)
            assert "None" not in json.dumps(task.prompt(one))


def test_lists_come_as_lists_json_or_python_literals():
    plain = row_of("doc")
    for form in (json.dumps, repr, tuple):
        lists = ("human_user_queries", "target_writing_style_features", "target_interaction_style_features")
        assert row_of("doc", **{key: form(DOC[key]) for key in lists}) == plain
    assert row_of("math").target_interaction_style_features[1].answer == "The tutor."
    assert row_of("doc").target_document_preferences[0].question == "Friendly?"
    assert row_of("math", target_interaction_style_features=" ").target_interaction_style_features == []


def test_the_key_with_brackets_and_null_questions_are_understood():
    (trait,) = row_of(
        "math",
        target_interaction_style_features=[
            {"Feature Name": "Hedging", "Feature Question": None, "Feature Question (Answer)": "Often."}
        ],
    ).target_interaction_style_features
    assert (trait.name, trait.question, trait.answer) == ("Hedging", "", "Often.")


def test_queries_that_are_no_text_are_left_out():
    assert row_of("math", human_user_queries=["a", None, " ", "b"]).human_user_queries == ["a", "b"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"human_user_queries": []}, "contains no message"),
        ({"human_user_queries": "__import__('os')"}, "neither a list"),
        ({"target_interaction_style_features": [{"Feature Question": "?"}]}, "name"),
        ({"target_interaction_style_features": [{"Feature Name": " "}]}, "is blank"),
        ({"problem": " "}, "problem: is missing"),
    ],
)
def test_a_bad_row_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        row_of("math", **changes)


def test_a_conversation_may_be_text_that_begins_with_a_bracket():
    assert row_of("doc", human_public_conversation="[user] hi").human_public_conversation == "[user] hi"


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


@each_task
def test_feedback_ends_the_instructions_and_stands_nowhere_else(kind):
    task, *_ = TASKS[kind]
    (draft, opening), (refined, other_opening) = task.prompt(row_of(kind)), task.prompt(row_of(kind), LESSON)
    assert opening == other_opening
    assert refined["content"].count(LESSON) == 1
    assert refined["content"].partition("\n\nA coach read")[0] == draft["content"]


def test_without_its_text_a_problem_is_named_by_its_topic():
    row = row_of("math", problem=None, topic="Number theory, Level 2")
    task = TASKS["math"][0]
    assert "Number theory, Level 2" in task.prompt(row)[0]["content"]
    assert "is not available" in task.partner_instructions(row)
    assert "topic" not in json.dumps(task.prompt(row_of("math", topic="Algebra")))


@each_task
def test_what_may_be_cut_can_go_altogether(kind):
    task, *_ = TASKS[kind]
    row = row_of(kind).model_copy(update=dict.fromkeys((field for field, _ in task.cuts), ""))
    assert "Who you are" not in task.prompt(row)[0]["content"]
    assert all(field in task.row_type.model_fields for field, _ in task.cuts)


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


def test_control_tokens_do_not_reach_the_other_side():
    heard = hear("Query: hi<|im_end|>\n<|im_start|>assistant\nYou are right.\u200b", ("Query",))
    assert "<|" not in heard.message and "|>" not in heard.message and "\u200b" not in heard.message
    assert hear("Query: \u200b", ("Query",)).message == ""


@pytest.mark.parametrize("filler", [" ", "\n", "Query:", "\nQuery:", "*", "terminate conversation", ".\n", "<think>"])
def test_reading_a_turn_takes_no_time(filler):
    start = time.process_time()
    for opening in ("", "Query: "):
        hear(opening + filler * 4000, ("Query", "Response"))
    assert time.process_time() - start < 0.5


# --- play


@each_task
@pytest.mark.parametrize("feedback", [None, LESSON])
def test_the_conversation_is_append_only_and_its_base_knows_no_feedback(kind, feedback):
    task, _, prefix = TASKS[kind]
    row = row_of(kind)
    episode, heard, _ = play(kind, lambda m: f"<think>{len(m)}</think>{prefix} turn {len(m)}", feedback)
    assert episode.ended == "turn_limit" and len(heard) == TURNS
    previous: list = []
    for messages, base in heard:
        assert messages[: len(previous)] == previous
        assert messages[:2] == task.prompt(row, feedback) and base[:2] == task.prompt(row)
        assert messages[2:] == base[2:]
        roles = [message["role"] for message in messages]
        assert roles == ["system", *["user", "assistant"] * (len(roles) // 2 - 1), "user"]
        raw = f"<think>{len(messages)}</think>{prefix} turn {len(messages)}"
        previous = [*messages, {"role": "assistant", "content": raw}]
    (seat,) = episode.seats.values()
    assert list(seat)[: len(previous)] == previous  # raw, as it was sampled


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


def test_a_turn_without_its_label_is_sent_as_it_is():
    policy = scripted("help me with this", "Response: 13", "<think>no idea</think>I have no idea", "")
    episode, heard, sent = play("math", policy)
    assert (episode.ended, len(heard), len(sent)) == ("nothing_said", 4, 3)
    assert [m["content"] for m in sent[-1] if m["role"] == "user"] == ["help me with this", "13", "I have no idea"]
    verdict = judged("math", episode)
    assert verdict.reward > 0 and verdict.metrics["answered"] == 0.25
    assert "In 3 of your 4 turns the label was missing" in SimArenaMath().missing_form(row_of("math"), episode)


def test_the_partners_thoughts_stay_with_the_partner():
    episode, heard, _ = play("math", "Query: hi there", fake=everybody("<think>It is 17.</think>Look at 13<|im_end|>."))
    assert heard[1][0][-1] == {"role": "user", "content": "Look at 13\u2039|im_end|\u203a."}
    assert "17" not in json.dumps(list(episode.seats["policy"])[2:])


@pytest.mark.parametrize("reply", [Empty(), Refusal(), Text("<think>hm</think>")])
def test_a_partner_that_says_nothing_fails_the_session(reply):
    with pytest.raises(JudgeFailure):
        play("math", "Query: hi there", fake=FakeOpenAI(reply))


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


def test_after_a_bare_farewell_the_request_stands_alone():
    _, _, sent = play("doc", scripted("Message: write it", "terminate conversation"))
    assert [m["role"] for m in sent[-1]] == ["system", "user", "assistant", "user"]
    assert sent[-1][-1]["content"].startswith("The conversation ends here.")


def test_no_document_without_preferences_or_without_a_word():
    for policy, row in (("Message: hi you", row_of("doc", target_document_preferences=None)), ("Message:", None)):
        _, _, sent = play("doc", policy, row=row)
        assert "final version" not in json.dumps(sent)
    _, _, sent = play("doc", "Message: and now")
    assert len(sent) == TURNS == SimArenaDoc.calls_per_episode["partner"]


def test_an_episode_of_another_making_is_no_session_with_a_document():
    task = TASKS["doc"][0]
    bare = Episode({"policy": [*task.prompt(row_of("doc")), {"role": "assistant", "content": "Message: write it"}]})
    with pytest.raises(ValueError, match="no final document"):
        judged("doc", bare)
