"""A session keeps what its judge was sent and what it answered, word for word and within a bound."""

import asyncio

import pytest

from soul import examples
from soul.examples.endpoint import answer
from soul.judge import Gateway, Judge
from soul.judge.cache import Cache
from soul.judge.call.kept_call import MOST_CHARACTERS, KeptCall, bounded
from soul.judge.call.usage import Usage
from soul.judge.client import EndpointClient
from soul.record import SessionRecord
from soul.session import RefineSettings, run_session
from soul.testing import FakeOpenAI, Text, scripted_players


def played(name, fake, cache=None):
    """The record of a session of a task's example with these judges, read back from its line."""
    example = examples.load(name)
    row = example.row(0)
    client = EndpointClient(fake.endpoint(max_attempts=1), cache=cache, connection=fake.connection())
    players = scripted_players(example.player("oracle", row))
    work = run_session(example.task, row, players, Gateway.from_judge(Judge(client)), RefineSettings())
    return SessionRecord.from_line(asyncio.run(work).to_record().to_line(), "here")


def kept(record):
    return [call for attempt in record.attempts for call in attempt.calls]


@pytest.mark.parametrize("name", ["hitom", "sotopia", "coser"])
def test_the_record_has_the_requests_and_replies_of_judge_and_feedback(name, tmp_path):
    fake, cache = FakeOpenAI(answer), Cache(tmp_path / "cache.sqlite")
    record = played(name, fake, cache)
    sent = [request.body["messages"] for request in fake.requests]
    calls = kept(record)
    asked = [[(one["role"], one["content"].split(" [cut here: ")[0]) for one in call.request] for call in calls]
    for request in (one for one, call in zip(asked, calls, strict=True) if not call.cached):
        assert any(
            len(messages) == len(request)
            and all(
                m["role"] == role and m["content"].startswith(text)
                for m, (role, text) in zip(messages, request, strict=True)
            )
            for messages in sent
        )
    for role in ("judge", "feedback"):
        usage, of_role = record.usage.get(role, Usage()), [call for call in calls if call.role == role]
        assert sum(not call.cached for call in of_role) == usage.requests
        assert sum(call.prompt_tokens for call in of_role) == usage.prompt_tokens
        assert sum(call.completion_tokens for call in of_role) == usage.completion_tokens
    assert {call.role for call in calls} <= {"judge", "feedback"}
    if name == "hitom":  # its player repeats itself, so that the second session asks nothing new
        before = len(fake.requests)
        again = kept(played(name, fake, cache))
        assert [call.reply for call in again] == [call.reply for call in calls] and len(fake.requests) == before
        assert all(call.cached and call.prompt_tokens == 0 for call in again)


def test_an_answer_that_could_not_be_used_is_kept_with_its_reason():
    fake = FakeOpenAI(lambda request: answer(request) if request.number else Text("I would say: good."))
    first, second = kept(played("hitom", fake))
    assert (first.failure, first.reply, second.failure) == ("invalid", "I would say: good.", "")
    assert "could not be used" in second.request[1]["content"]


def test_long_calls_are_cut_to_one_length_and_say_so():
    short, long = "Score it.", "x" * MOST_CHARACTERS
    calls = [
        KeptCall(model="m", request=[{"role": "user", "content": text}], reply="7") for text in (short, long, long)
    ]
    texts = [call.request[0]["content"] for call in bounded(calls)]
    assert texts[0] == short and texts[1] == texts[2] and texts[1].startswith("xxxx")
    left = len(texts[1].partition(" [cut here: ")[0])
    assert texts[1].endswith(f" [cut here: {MOST_CHARACTERS - left:,} more characters]")
    assert 0.8 * MOST_CHARACTERS < 2 * left <= MOST_CHARACTERS
    assert bounded(calls[:1]) == calls[:1] and bounded([]) == []
