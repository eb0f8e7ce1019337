"""The judge gateway under every fault, over real HTTP: what comes out, after how many attempts, and what is sent.

Promise under test (design, sections 5 and 6): a verdict is a value or a typed failure; what can heal is tried again,
what cannot fails at once; no key ever shows.
"""

import asyncio
import logging
import time
import traceback
from contextlib import contextmanager

import pytest
from pydantic import BaseModel, field_validator

from soul.errors import PERMANENT, JudgeFailure, PolicyFailure
from soul.judge import ChatModel, Judge
from soul.judge.call.http import BadStatus, Response, retry_after
from soul.one_turn import Critique
from soul.policy import OpenAISeat
from soul.testing import (
    BadRequest,
    DropConnection,
    Empty,
    FakeOpenAI,
    Hang,
    Json,
    NoQuota,
    NotFound,
    RateLimit,
    Refusal,
    ServerError,
    Text,
    Truncated,
    TruncatedJson,
    Unauthorized,
    WrongSchema,
    fake_judge,
)

pytestmark = [pytest.mark.smoke, pytest.mark.usefixtures("no_backoff")]

GOOD = Json({"critique": "Look again."})


def ask(judge, schema=Critique, instructions="Be brief.", data=None):
    async def run():
        try:
            return await judge.ask(schema, instructions, data or {})
        finally:
            await judge.endpoint_client.connection.close()

    return asyncio.run(run())


@contextmanager
def served(script, **settings):
    """A judge behind a real HTTP endpoint with this script, and the endpoint."""
    settings = {"timeout_s": 10.0, "max_attempts": 3, "max_reasks": 1, "structured": "json_schema", **settings}
    with FakeOpenAI(script) as fake:
        yield Judge.connect(fake.endpoint(**settings)), fake


# what -> (the endpoint's reply, the failure's cause, requests until the judge gives up)
FAULTS = {
    # transient: max_attempts requests
    "500": (ServerError(status=500), "server_error", 3),
    "503": (ServerError(status=503), "server_error", 3),
    "silence": (Hang(30), "timeout", 3),
    "dropped connection": (DropConnection(), "connection", 3),
    # content: one re-ask
    "empty": (Empty(), "empty", 2),
    "blank": (Text(" \n"), "empty", 2),
    "refusal": (Refusal(), "refusal", 2),
    "token limit": (Truncated(), "truncated", 2),
    "truncated JSON": (TruncatedJson(), "invalid", 2),
    "wrong schema": (WrongSchema(), "invalid", 2),
    "not JSON": (Text("I give it a seven."), "invalid", 2),
    # permanent: one request
    "no such key": (Unauthorized(), "auth", 1),
    "no quota": (NoQuota(), "auth", 1),
    "no such model": (NotFound(), "not_found", 1),
    "bad request": (BadRequest(), "bad_request", 1),
}


@pytest.mark.parametrize("fault, cause, attempts", FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_that_stays_becomes_a_typed_failure(fault, cause, attempts):
    with served(fault, timeout_s=0.3 if fault == Hang(30) else 10.0) as (judge, fake):
        with pytest.raises(JudgeFailure) as caught:
            ask(judge)
    assert caught.value.cause == cause
    assert len(fake.requests) == attempts
    assert judge.usage.failures == {cause: 1}
    assert judge.usage.completion_tokens == 0 or cause in ("truncated", "invalid")
    assert (cause in PERMANENT) == (attempts == 1)


HEALING = {name: row for name, row in FAULTS.items() if row[2] > 1}


@pytest.mark.parametrize("fault, cause, attempts", HEALING.values(), ids=HEALING.keys())
def test_a_fault_that_passes_costs_one_more_request(fault, cause, attempts):
    with served([fault, GOOD], timeout_s=0.3 if fault == Hang(30) else 10.0) as (judge, fake):
        assert ask(judge).critique == "Look again."
    assert len(fake.requests) == 2
    assert not judge.usage.failures


@pytest.mark.parametrize("max_reasks", [0, 1, 3])
def test_reasks_on_content_faults(max_reasks):
    with served(WrongSchema(), max_reasks=max_reasks) as (judge, fake), pytest.raises(JudgeFailure):
        ask(judge)
    assert len(fake.requests) == 1 + max_reasks
    assert (judge.usage.calls, judge.usage.requests, judge.usage.reasks) == (1, 1 + max_reasks, max_reasks)


def test_a_429_uses_up_no_attempt_and_waits_for_the_deadline_alone():
    with served([*[RateLimit()] * 4, ServerError(), RateLimit(retry_after=0.6), GOOD], max_attempts=2) as (judge, fake):
        start = time.perf_counter()
        assert ask(judge).critique == "Look again."
        assert 0.55 < time.perf_counter() - start < 10.0  # Retry-After is honoured
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


KEY = "sk-sentinel-0123456789abcdef"

# --- keys


# The SDK's message quotes the endpoint's body, and OpenAI-compatible gateways quote the key in a 401 ("Incorrect API
# key provided: sk-..."): it must not land in the failure's detail, hence in traces and logs.
@pytest.mark.parametrize("fault", [row[0] for row in FAULTS.values()], ids=FAULTS.keys())
def test_the_key_shows_nowhere(fault, monkeypatch, caplog):
    monkeypatch.setenv("SOUL_TEST_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    timeout_s = 0.3 if fault == Hang(30) else 10.0
    with served(fault, api_key_env="SOUL_TEST_KEY", timeout_s=timeout_s, max_attempts=1) as (judge, fake):
        with pytest.raises(JudgeFailure) as caught:
            ask(judge)
    assert fake.requests[0].headers["authorization"] == f"Bearer {KEY}"  # it was used ...
    error = caught.value
    shown = [repr(error), error.detail, *traceback.format_exception(error), repr(judge)]
    shown += [repr(judge.endpoint_client.connection), judge.endpoint.model_dump_json(), caplog.text]
    assert not [text for text in shown if KEY in text]  # ... and shows nowhere


# --- what is sent


def test_settings_are_sent_only_where_set():
    with served(GOOD) as (judge, fake):
        ask(judge)
    assert fake.requests[0].body.keys() == {"model", "messages", "response_format", "max_completion_tokens"}
    settings = {"reasoning_effort": "low", "temperature": 0.0, "max_output_tokens": 77, "top_p": 0.9, "seed": 3}
    with served(GOOD, **settings) as (judge, fake):
        ask(judge)
    body = fake.requests[0].body
    assert (body["reasoning_effort"], body["temperature"], body["max_completion_tokens"]) == ("low", 0.0, 77)
    assert (body["top_p"], body["seed"]) == (0.9, 3)


def refusing_above(room, message):
    def answer(request):
        return BadRequest(message) if request.body.get("max_completion_tokens", 0) > room else GOOD

    return answer


TOO_LONG = "This model's maximum context length is 8192 tokens. However, you requested 16384 output tokens and ..."


@pytest.mark.parametrize("message", [TOO_LONG, "Unsupported parameter: 'max_completion_tokens'"])
def test_an_answer_is_bounded_by_our_limit_or_by_the_endpoints_own(message):
    with served(refusing_above(20_000, message)) as (judge, fake):
        ask(judge)
    assert [request.body.get("max_completion_tokens") for request in fake.requests] == [16_384]
    with served(refusing_above(8_000, message)) as (judge, fake):

        async def twice():
            for number in range(2):
                await judge.ask(Critique, "Be brief.", {"attempt": number})
            await judge.close()

        asyncio.run(twice())
    assert [request.body.get("max_completion_tokens") for request in fake.requests] == [16_384, None, None]
    with served(refusing_above(8_000, message), max_output_tokens=9_000) as (judge, fake):
        with pytest.raises(JudgeFailure, match="bad_request|context|Unsupported"):
            ask(judge)  # what the user asked for is not left out
    assert all(request.body["max_completion_tokens"] == 9_000 for request in fake.requests)
