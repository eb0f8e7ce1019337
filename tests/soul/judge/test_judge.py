"""The judge gateway under every fault, over real HTTP with the real SDK: what comes out, after how many attempts.

Promise under test (design, sections 5 and 6): a verdict is a value or a typed failure; what can heal is tried again,
what cannot fails at once; no key ever shows.
"""

import asyncio
import time

import pytest
from pydantic import BaseModel, Field, field_validator

import soul.judge.client
from soul.errors import PERMANENT, JudgeFailure, PolicyFailure
from soul.judge import ChatModel
from soul.judge.call.http import BadStatus, Response, retry_after
from soul.policy import OpenAISeat
from soul.testing import (
    FakeOpenAI,
    Hang,
    Json,
    NotFound,
    RateLimit,
    ServerError,
    Text,
    WrongSchema,
    fake_judge,
)
from tests.soul.judge.served_judge import FAULTS, GOOD, ask, served

pytestmark = pytest.mark.smoke


class Score(BaseModel):
    score: float = Field(ge=0, le=10)
    critique: str = ""


@pytest.fixture(autouse=True)
def _no_backoff(monkeypatch):
    """Only what the endpoint asks for (Retry-After) is waited; the random backoff has a test of its own."""
    monkeypatch.setattr(soul.judge.client, "backoff_s", lambda attempt: 0.0)


@pytest.mark.parametrize("fault, cause, attempts", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_that_stays_becomes_a_typed_failure(fault, cause, attempts):
    with served(fault, timeout_s=0.3 if isinstance(fault, Hang) else 10.0) as (judge, fake):
        with pytest.raises(JudgeFailure) as caught:
            ask(judge)
    assert caught.value.cause == cause
    assert len(fake.requests) == attempts
    assert judge.usage.failures == {cause: 1}
    assert judge.usage.completion_tokens == 0 or cause in ("truncated", "invalid")
    assert (cause in PERMANENT) == (attempts == 1)
    assert (caught.value.cause in PERMANENT) == (attempts == 1)


HEALING = {name: row for name, row in FAULTS.items() if row[2] > 1}


@pytest.mark.parametrize("fault, cause, attempts", HEALING.values(), ids=HEALING.keys())
def test_a_fault_that_passes_costs_one_more_request(fault, cause, attempts):
    with served([fault, GOOD], timeout_s=0.3 if isinstance(fault, Hang) else 10.0) as (judge, fake):
        assert ask(judge).critique == "Look again."
    assert len(fake.requests) == 2
    assert not judge.usage.failures


@pytest.mark.parametrize("max_reasks", [0, 1, 3])
def test_reasks_on_content_faults(max_reasks):
    with served(WrongSchema(), max_reasks=max_reasks) as (judge, fake), pytest.raises(JudgeFailure):
        ask(judge)
    assert len(fake.requests) == 1 + max_reasks
    assert (judge.usage.calls, judge.usage.requests, judge.usage.reasks) == (1, 1 + max_reasks, max_reasks)


def test_a_reask_shows_the_validation_error_and_keeps_the_question():
    with served([Json({"score": 11}), Json({"score": 9})]) as (judge, fake):
        assert ask(judge, Score, "Score it.", {"answer": "forty-two"}).score == 9
    first, second = fake.requests
    assert second.messages[0] == first.messages[0] and second.data == first.data == {"answer": "forty-two"}
    assert [message["role"] for message in second.messages] == ["system", "user"]  # every chat template takes that
    complaint = second.messages[-1]["content"].rpartition("</data-")[2]
    assert "score: Input should be less than or equal to 10" in complaint
    assert '"maximum": 10' in complaint  # the schema, for servers that take response_format and ignore it


def test_a_429_uses_up_no_attempt_and_waits_for_the_deadline_alone():
    with served([*[RateLimit()] * 4, ServerError(), RateLimit(), GOOD], max_attempts=2) as (judge, fake):
        assert ask(judge).critique == "Look again."
    assert len(fake.requests) == 7 and judge.usage.retries == 6


@pytest.mark.parametrize("script, cause", [(RateLimit(0.25), "rate_limit"), ([ServerError(), Hang(60)], "timeout")])
def test_a_call_ends_at_its_deadline_of_five_timeouts(script, cause):
    with served(script, timeout_s=0.2, max_attempts=9) as (judge, _), pytest.raises(JudgeFailure) as caught:
        start = time.perf_counter()
        ask(judge)
    assert caught.value.cause == cause and judge.usage.failures == {cause: 1}
    assert time.perf_counter() - start < 10.0


def test_an_endpoint_that_asks_to_wait_past_the_deadline_fails_the_call_at_once():
    with served(RateLimit(retry_after=60), timeout_s=6.0) as (judge, fake), pytest.raises(JudgeFailure) as caught:
        start = time.perf_counter()
        ask(judge)
    assert caught.value.cause == "rate_limit" and time.perf_counter() - start < 10.0
    assert "the next request in 60 s would be past the call's 30 s" in caught.value.detail


@pytest.mark.parametrize(
    "headers, seconds",
    [
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "1"}, 1.0),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "Wed, 99 Oct 99999999999999999999 07:28:00 GMT"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_headers_that_ask_to_wait(headers, seconds):
    assert retry_after(BadStatus(Response(429, headers, b""))) == seconds


def test_retry_after_is_honoured():
    with served([RateLimit(retry_after=0.6), GOOD]) as (judge, _):
        start = time.perf_counter()
        ask(judge)
        assert 0.55 < time.perf_counter() - start < 5.0


# --- what is not the endpoint's fault


def test_a_bug_in_a_schema_is_not_swallowed():
    class Broken(BaseModel):
        critique: str

        @field_validator("critique")
        @classmethod
        def _boom(cls, value):
            raise ZeroDivisionError("a bug of ours")

    judge = fake_judge(GOOD)
    with pytest.raises(ZeroDivisionError, match="a bug of ours"):
        ask(judge, Broken)


# --- concurrency and counters


# --- the policy behind an endpoint


def test_a_policy_endpoint_that_fails_is_a_policy_failure():
    def say(script):
        with FakeOpenAI(script) as fake:
            seat = OpenAISeat(ChatModel.connect(fake.endpoint(max_attempts=2)))
            return asyncio.run(seat.say([{"role": "user", "content": "hi"}])), fake

    text, fake = say([ServerError(), Text("Hello.")])
    assert text == "Hello."
    assert "response_format" not in fake.requests[0].body
    with pytest.raises(PolicyFailure) as caught:
        say(NotFound())
    assert caught.value.cause == "not_found"


def test_half_a_surrogate_pair_in_a_conversation_is_sent_as_a_replacement():
    """A model's JSON may hold one, and the next turn carries it."""
    with FakeOpenAI(Text("Hello.")) as fake:
        seat = OpenAISeat(ChatModel.connect(fake.endpoint()))
        asyncio.run(seat.say([{"role": "assistant", "content": "a\ud83d b"}, {"role": "user", "content": "?"}]))
    assert fake.requests[0].messages[0]["content"] == "a? b"
