"""The fake endpoint itself: what other tests conclude from it must hold over HTTP and in process alike."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
import pytest

from soul.one_turn import Critique
from soul.testing import (
    BadRequest,
    ChatRequest,
    DropConnection,
    Duplicate,
    Empty,
    FakeOpenAI,
    Hang,
    Json,
    NoQuota,
    NotFound,
    RateLimit,
    Refusal,
    ServerError,
    SlowStream,
    Text,
    Truncated,
    Unauthorized,
    fake_judge,
    scripted_players,
)

GOOD = Json({"critique": "Look again."})
QUESTION = {"model": "m", "messages": [{"role": "user", "content": "two words"}]}


@asynccontextmanager
async def connect(fake: FakeOpenAI, timeout: float = 10.0) -> AsyncIterator[openai.AsyncOpenAI]:
    """The real SDK's client on the running fake."""
    # No TLS here, and its certificates take longer to load than a test.
    transport = openai.DefaultAsyncHttpxClient(timeout=timeout, verify=False)
    with fake:
        client = openai.AsyncOpenAI(
            api_key="any", base_url=fake.url, http_client=transport, timeout=timeout, max_retries=0
        )
        async with client:
            yield client


async def text_of(client: openai.AsyncOpenAI, **extra) -> str | None:
    return (await client.chat.completions.create(**QUESTION, **extra)).choices[0].message.content


async def streamed(client: openai.AsyncOpenAI, **extra) -> list[openai.types.chat.ChatCompletionChunk]:
    return [chunk async for chunk in await client.chat.completions.create(**QUESTION, stream=True, **extra)]


def test_a_list_is_consumed_in_order_and_its_last_reply_repeats():
    async def over_http(fake: FakeOpenAI) -> list[str | None]:
        async with connect(fake) as client:
            return [await text_of(client) for _ in range(3)]

    async def in_process(fake: FakeOpenAI) -> list[str | None]:
        answers = [await fake.connection().post(QUESTION) for _ in range(3)]
        return [json.loads(answer.body)["choices"][0]["message"]["content"] for answer in answers]

    for way in (over_http, in_process):
        fake = FakeOpenAI([Text("one"), Text("two")])
        assert asyncio.run(way(fake)) == ["one", "two", "two"]
        assert [request.body for request in fake.requests] == [QUESTION] * 3


def test_peak_counts_the_requests_in_flight():
    async def run(fake: FakeOpenAI) -> None:
        async with connect(fake) as client:
            await asyncio.gather(*(text_of(client) for _ in range(4)))
            await text_of(client)

    fake = FakeOpenAI(Text("x", delay=0.1))
    asyncio.run(run(fake))
    assert fake.peak == 4


def test_an_exception_in_the_script_is_not_lost():
    def broken(request: ChatRequest) -> Text:
        raise ZeroDivisionError("script")

    fake = FakeOpenAI(broken)

    async def ask():
        async with connect(fake) as client:
            await text_of(client)

    with pytest.raises(openai.BadRequestError, match="ZeroDivisionError"):
        asyncio.run(ask())
    assert isinstance(fake.errors[0], ZeroDivisionError)


def test_the_fake_judge_asks_the_endpoint_it_is_given():
    fake = FakeOpenAI(GOOD)
    assert asyncio.run(fake_judge(fake, model="tiny").ask(Critique, "", {})).critique == "Look again."
    assert [request.body["model"] for request in fake.requests] == ["tiny"]


def test_the_scripted_policy_answers_at_every_seat_and_remembers_what_it_heard():
    async def shout(messages):
        return messages[-1]["content"].upper()

    players = scripted_players(shout)()
    said = asyncio.run(players.policy("a").say([{"role": "user", "content": "hi"}], base=[]))
    assert said == "HI"
    assert asyncio.run(scripted_players("same")("feedback").policy().say([])) == "same"
    assert players.seats["a"].heard == [([{"role": "user", "content": "hi"}], [])]


@pytest.mark.parametrize(
    ("fault", "expected", "code"),
    [
        (RateLimit(retry_after=7), openai.RateLimitError, "rate_limit_exceeded"),
        (NoQuota(), openai.RateLimitError, "insufficient_quota"),
        (ServerError(503), openai.InternalServerError, None),
        (BadRequest(), openai.BadRequestError, "invalid_request_error"),
        (Unauthorized(), openai.AuthenticationError, "invalid_api_key"),
        (NotFound(), openai.NotFoundError, "model_not_found"),
        (SlowStream(NotFound(), 0.06), openai.NotFoundError, "model_not_found"),
        (Hang(30), openai.APITimeoutError, None),
        (DropConnection(), openai.APIConnectionError, None),
    ],
)
def test_the_sdk_raises_what_the_fault_stands_for_and_the_server_lives_on(fault, expected, code):
    async def run() -> list[openai.APIError]:
        errors = []
        fake = FakeOpenAI([GOOD, fault, GOOD, fault, GOOD])
        async with connect(fake, timeout=0.2 if isinstance(fault, Hang) else 10.0) as client:
            good = await text_of(client)  # so that the faults meet a connection that was kept alive
            for ask in (text_of, streamed):
                with pytest.raises(expected) as caught:
                    await ask(client)
                errors.append(caught.value)
                assert await text_of(client) == good
        return errors

    for error in asyncio.run(run()):
        # The SDK's aiohttp transport takes every broken connection for a timeout, a kind of connection error.
        assert type(error) is expected
        assert error.code == code
        if isinstance(fault, RateLimit):
            assert error.response.headers["retry-after"] == "7"


@pytest.mark.parametrize(
    ("reply", "text", "refusal", "finish"),
    [
        (Text("Größe: 5 µm,\n\ndata: [DONE] 🙂"), "Größe: 5 µm,\n\ndata: [DONE] 🙂", "", "stop"),
        (Duplicate({"score": 3}, {"score": 9}), '{"score": 3}{"score": 9}', "", "stop"),
        (Empty(), "", "", "stop"),
        (Refusal("I will not."), "", "I will not.", "stop"),
        (Truncated(), '{"critique": "You', "", "length"),
        (SlowStream(Text("in many bits"), 0.1), "in many bits", "", "stop"),
    ],
)
def test_a_stream_tells_the_same_as_the_plain_answer(reply, text, refusal, finish):
    async def run() -> None:
        async with connect(FakeOpenAI(reply)) as client:
            plain = (await client.chat.completions.create(**QUESTION)).choices[0]
            assert (plain.message.content or "", plain.message.refusal or "") == (text, refusal)
            assert plain.finish_reason == finish
            parts = [chunk.choices[0] for chunk in await streamed(client)]
            assert "".join(part.delta.content or "" for part in parts) == text
            assert "".join(part.delta.refusal or "" for part in parts) == refusal
            assert [part.finish_reason for part in parts] == [None] * (len(parts) - 1) + [finish]

    asyncio.run(run())


def test_a_stream_has_the_form_of_openai():
    async def run() -> None:
        async with connect(FakeOpenAI(Text("four words of text", cached_tokens=1))) as client:
            *parts, last = await streamed(client, stream_options={"include_usage": True})
            assert parts[0].choices[0].delta.role == "assistant" and parts[0].choices[0].delta.content == ""
            assert sum(bool(part.choices[0].delta.content) for part in parts) > 1
            assert {part.object for part in (*parts, last)} == {"chat.completion.chunk"}
            assert len({part.id for part in (*parts, last)}) == 1
            assert last.choices == [] and all(part.usage is None for part in parts)
            assert (last.usage.total_tokens, last.usage.prompt_tokens_details.cached_tokens) == (6, 1)
            assert all(part.choices and part.usage is None for part in await streamed(client))  # not asked for

    asyncio.run(run())


def test_a_slow_body_outlasts_the_read_timeout_and_ends_at_a_deadline_only():
    async def run() -> None:
        slow, endless = SlowStream(GOOD, 0.4), SlowStream(GOOD, 30)
        fake = FakeOpenAI([slow, slow, endless, endless, GOOD])
        async with connect(fake, timeout=0.2) as client:
            start = time.monotonic()
            assert all(await asyncio.gather(text_of(client), streamed(client)))
            assert time.monotonic() - start > 0.35
            waits = [asyncio.wait_for(ask(client), 0.15) for ask in (text_of, streamed)]
            ends = await asyncio.gather(*waits, return_exceptions=True)
            assert [type(end) for end in ends] == [TimeoutError, TimeoutError]
            await asyncio.gather(text_of(client), text_of(client))

    asyncio.run(run())


def test_a_response_format_that_is_not_supported_costs_no_reply():
    async def run() -> None:
        fake = FakeOpenAI([Text("one"), Text("two")], supports=("json_object",))
        async with connect(fake) as client:
            for wrong in ("json_schema", "grammar"):
                with pytest.raises(openai.BadRequestError, match="'response_format.type' must be 'json_object' or"):
                    await text_of(client, response_format={"type": wrong})
            assert await text_of(client, response_format={"type": "json_object"}) == "one"
            assert await text_of(client) == "two"
        assert [request.number for request in fake.requests] == [0, 1]
        refused = [(request.number, request.body["response_format"]["type"]) for request in fake.refused]
        assert refused == [(0, "json_schema"), (1, "grammar")]

    asyncio.run(run())
