"""The fake endpoint itself: what other tests conclude from it must hold over HTTP and in process alike."""

import asyncio
import http.client
import importlib.util
import json
import socket
import struct
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from urllib.parse import urlsplit

import openai
import pytest

import soul.testing
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
    NotJson,
    RateLimit,
    Refusal,
    Reply,
    ServerError,
    SlowStream,
    Text,
    Truncated,
    Unauthorized,
    fake_judge,
    refused_url,
    scripted_players,
    sometimes,
)

GOOD = Json({"critique": "Look again."})
QUESTION = {"model": "m", "messages": [{"role": "user", "content": "two words"}]}
needs_aiohttp = pytest.mark.skipif(importlib.util.find_spec("aiohttp") is None, reason="aiohttp is not installed")
AIOHTTP = pytest.param("aiohttp", marks=needs_aiohttp)
on_every_transport = pytest.mark.parametrize("way", ["in process", "http", AIOHTTP])


@asynccontextmanager
async def connect(fake: FakeOpenAI, way: str, timeout: float = 10.0) -> AsyncIterator[openai.AsyncOpenAI]:
    """The real SDK's client on the running or in-process fake."""
    with nullcontext() if way == "in process" else fake:
        async with fake.client(timeout) if way == "in process" else over_http(way, fake.url, timeout) as client:
            yield client


def over_http(way: str, url: str, timeout: float = 10.0) -> openai.AsyncOpenAI:
    kind = openai.DefaultAioHttpClient if way == "aiohttp" else openai.DefaultAsyncHttpxClient
    transport = kind(timeout=timeout, verify=False)  # no TLS here, and its certificates take longer to load than a test
    return openai.AsyncOpenAI(api_key="any", base_url=url, http_client=transport, timeout=timeout, max_retries=0)


async def text_of(client: openai.AsyncOpenAI, **extra) -> str | None:
    return (await client.chat.completions.create(**QUESTION, **extra)).choices[0].message.content


async def streamed(client: openai.AsyncOpenAI, **extra) -> list[openai.types.chat.ChatCompletionChunk]:
    return [chunk async for chunk in await client.chat.completions.create(**QUESTION, stream=True, **extra)]


async def exchange(url: str, body: bytes, version: str = "1.1") -> tuple[str, bytes]:
    """One request over a bare socket: head and body of what comes back, as they came."""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    head = f"POST /v1/chat/completions HTTP/{version}\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    came = await reader.read()
    writer.close()
    await writer.wait_closed()
    start, _, rest = came.partition(b"\r\n\r\n")
    return start.decode().lower(), rest


def test_a_list_is_consumed_in_order_and_its_last_reply_repeats():
    async def run(fake: FakeOpenAI, way: str) -> list[str | None]:
        async with connect(fake, way) as client:
            return [await text_of(client, seed=seed) for seed in range(3)]

    by_socket, in_process = FakeOpenAI([Text("one"), Text("two")]), FakeOpenAI([Text("one"), Text("two")])
    assert asyncio.run(run(by_socket, "http")) == ["one", "two", "two"]
    assert asyncio.run(run(in_process, "in process")) == ["one", "two", "two"]
    assert [r.body for r in by_socket.requests] == [r.body for r in in_process.requests]


def test_requests_are_recorded_with_their_bodies_and_numbers():
    async def run(client: openai.AsyncOpenAI) -> list[str | None]:
        return [await text_of(client, seed=seed) for seed in (5, 6)]

    fake = FakeOpenAI(lambda request: Text(f"request {request.number}"))
    assert asyncio.run(run(fake.client())) == ["request 0", "request 1"]
    assert [(request.number, request.body["seed"]) for request in fake.requests] == [(0, 5), (1, 6)]
    assert fake.requests[0].messages == QUESTION["messages"]
    assert fake.requests[0].text == "two words"


def test_models_are_listed_and_other_paths_are_unknown():
    with FakeOpenAI(GOOD, model="tiny") as fake:
        with urllib.request.urlopen(f"{fake.url}/models?api-version=1", timeout=5) as response:
            assert [model["id"] for model in json.load(response)["data"]] == ["tiny"]
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{fake.url}/embeddings", timeout=5)
    assert fake.requests == []


@pytest.mark.parametrize("way", ["http", AIOHTTP])
def test_after_the_block_nobody_listens_even_on_a_connection_that_was_kept_alive(way):
    async def run() -> None:
        async with connect(fake := FakeOpenAI(GOOD), way) as client:
            await text_of(client)
            fake.__exit__(None, None, None)
            with pytest.raises(openai.APIConnectionError):
                await text_of(client)

    asyncio.run(run())


@on_every_transport
def test_peak_counts_the_requests_in_flight(way):
    async def run(fake: FakeOpenAI) -> None:
        async with connect(fake, way) as client:
            await asyncio.gather(*(text_of(client) for _ in range(4)))
            await text_of(client)

    fake = FakeOpenAI(Text("x", delay=0.1))
    asyncio.run(run(fake))
    assert fake.peak == 4


def test_sometimes_depends_on_seed_and_number_alone():
    def fates(seed: int, share: float = 0.3) -> list[bool]:
        choose = sometimes(Empty(), share, seed, otherwise=[GOOD])
        return [isinstance(choose(ChatRequest(number, {})), Empty) for number in range(1000)]

    assert fates(1) == fates(1)
    assert fates(1) != fates(2)
    assert 250 < sum(fates(1)) < 350
    assert sum(fates(1, share=0.0)) == 0
    assert sum(fates(1, share=1.0)) == 1000
    choose = sometimes(ServerError(), 0.3, 1, otherwise=GOOD)
    backwards = [isinstance(choose(ChatRequest(number, {})), ServerError) for number in reversed(range(1000))]
    assert backwards[::-1] == fates(1)


def test_an_exception_in_the_script_is_not_lost():
    def broken(request: ChatRequest) -> Text:
        raise ZeroDivisionError("script")

    fake = FakeOpenAI(broken)
    with pytest.raises(openai.BadRequestError, match="ZeroDivisionError"):
        asyncio.run(text_of(fake.client()))
    assert isinstance(fake.errors[0], ZeroDivisionError)


def test_the_fake_judge_asks_the_endpoint_it_is_given():
    fake = FakeOpenAI(GOOD)
    assert asyncio.run(fake_judge(fake, model="tiny").ask(Critique, "", {})).critique == "Look again."
    assert [request.body["model"] for request in fake.requests] == ["tiny"]


def test_a_script_without_replies_is_refused():
    with pytest.raises(ValueError, match="at least one reply"):
        FakeOpenAI([])


def test_the_scripted_policy_answers_at_every_seat_and_remembers_what_it_heard():
    async def shout(messages):
        return messages[-1]["content"].upper()

    players = scripted_players(shout)()
    said = asyncio.run(players.policy("a").say([{"role": "user", "content": "hi"}], base=[]))
    assert said == "HI"
    assert asyncio.run(scripted_players("same")("feedback").policy().say([])) == "same"
    assert players.seats["a"].heard == [([{"role": "user", "content": "hi"}], [])]


@on_every_transport
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
def test_the_sdk_raises_what_the_fault_stands_for_and_the_server_lives_on(way, fault, expected, code):
    async def run() -> list[openai.APIError]:
        errors = []
        fake = FakeOpenAI([GOOD, fault, GOOD, fault, GOOD])
        async with connect(fake, way, timeout=0.2 if isinstance(fault, Hang) else 10.0) as client:
            good = await text_of(client)  # so that the faults meet a connection that was kept alive
            for ask in (text_of, streamed):
                with pytest.raises(expected) as caught:
                    await ask(client)
                errors.append(caught.value)
                assert await text_of(client) == good
        return errors

    for error in asyncio.run(run()):
        # The SDK's aiohttp transport takes every broken connection for a timeout, a kind of connection error.
        assert type(error) is expected or way == "aiohttp"
        assert error.code == code
        if isinstance(fault, RateLimit):
            assert error.response.headers["retry-after"] == "7"


@on_every_transport
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
def test_a_stream_tells_the_same_as_the_plain_answer(way, reply, text, refusal, finish):
    async def run() -> None:
        async with connect(FakeOpenAI(reply), way) as client:
            plain = (await client.chat.completions.create(**QUESTION)).choices[0]
            assert (plain.message.content or "", plain.message.refusal or "") == (text, refusal)
            assert plain.finish_reason == finish
            parts = [chunk.choices[0] for chunk in await streamed(client)]
            assert "".join(part.delta.content or "" for part in parts) == text
            assert "".join(part.delta.refusal or "" for part in parts) == refusal
            assert [part.finish_reason for part in parts] == [None] * (len(parts) - 1) + [finish]

    asyncio.run(run())


@on_every_transport
def test_a_stream_has_the_form_of_openai(way):
    async def run() -> None:
        async with connect(FakeOpenAI(Text("four words of text", cached_tokens=1)), way) as client:
            *parts, last = await streamed(client, stream_options={"include_usage": True})
            assert parts[0].choices[0].delta.role == "assistant" and parts[0].choices[0].delta.content == ""
            assert sum(bool(part.choices[0].delta.content) for part in parts) > 1
            assert {part.object for part in (*parts, last)} == {"chat.completion.chunk"}
            assert len({part.id for part in (*parts, last)}) == 1
            assert last.choices == [] and all(part.usage is None for part in parts)
            assert (last.usage.total_tokens, last.usage.prompt_tokens_details.cached_tokens) == (6, 1)
            assert all(part.choices and part.usage is None for part in await streamed(client))  # not asked for

    asyncio.run(run())


@pytest.mark.parametrize(("version", "framing"), [("1.1", "transfer-encoding: chunked"), ("1.0", "content-length: ")])
def test_a_stream_on_the_wire(version, framing):
    with FakeOpenAI([GOOD, NotJson()]) as fake:
        body = json.dumps({**QUESTION, "stream": True, "stream_options": {"include_usage": True}}).encode()
        head, events = asyncio.run(exchange(fake.url, body, version))
        assert "content-type: text/event-stream" in head and framing in head
        assert events.count(b"data: {") >= 4 and b"data: [DONE]\n\n" in events
        assert b'"usage": null' in events  # as OpenAI has it in all chunks but the last
        assert asyncio.run(exchange(fake.url, body, version))[1] == b"<html><body>Welcome</body></html>"


@on_every_transport
def test_a_slow_body_outlasts_the_read_timeout_and_ends_at_a_deadline_only(way):
    async def run() -> None:
        slow, endless = SlowStream(GOOD, 0.4), SlowStream(GOOD, 30)
        fake = FakeOpenAI([slow, slow, endless, endless, GOOD])
        async with connect(fake, way, timeout=0.2) as client:
            start = time.monotonic()
            assert all(await asyncio.gather(text_of(client), streamed(client)))
            assert time.monotonic() - start > 0.35
            waits = [asyncio.wait_for(ask(client), 0.15) for ask in (text_of, streamed)]
            ends = await asyncio.gather(*waits, return_exceptions=True)
            assert [type(end) for end in ends] == [TimeoutError, TimeoutError]
            await asyncio.gather(text_of(client), text_of(client))
        assert fake.peak == 2 or way != "in process"  # who gave up is no longer in flight; a server learns it later

    asyncio.run(run())


def test_in_process_a_stream_is_in_flight_until_it_is_closed():
    async def run() -> None:
        fake = FakeOpenAI([SlowStream(GOOD, 0.4), Text("x", delay=0.05)])
        async with connect(fake, "in process") as client:
            async with await client.chat.completions.create(**QUESTION, stream=True) as stream:
                await anext(aiter(stream))
                await text_of(client)
            assert fake.peak == 2
            await asyncio.gather(text_of(client), text_of(client))
            assert fake.peak == 2

    asyncio.run(run())


def test_in_process_a_body_slower_than_the_read_timeout_meets_it():
    with pytest.raises(openai.APITimeoutError):
        asyncio.run(text_of(FakeOpenAI(SlowStream(Text("x"), 3000)).client(timeout=0.1)))


def test_a_closing_server_breaks_off_what_it_is_sending():
    async def run() -> None:
        fake = FakeOpenAI(SlowStream(GOOD, 30))
        async with connect(fake, "http") as client:
            asking = asyncio.create_task(text_of(client))
            await asyncio.sleep(0.2)
            fake.__exit__(None, None, None)
            with pytest.raises(openai.APIConnectionError):
                await asyncio.wait_for(asking, 2)

    asyncio.run(run())


def test_a_response_format_that_is_not_supported_costs_no_reply():
    async def run() -> None:
        fake = FakeOpenAI([Text("one"), Text("two")], supports=("json_object",))
        async with connect(fake, "in process") as client:
            for wrong in ("json_schema", "grammar"):
                with pytest.raises(openai.BadRequestError, match="'response_format.type' must be 'json_object' or"):
                    await text_of(client, response_format={"type": wrong})
            assert await text_of(client, response_format={"type": "json_object"}) == "one"
            assert await text_of(client) == "two"
        assert [request.number for request in fake.requests] == [0, 1]
        refused = [(request.number, request.body["response_format"]["type"]) for request in fake.refused]
        assert refused == [(0, "json_schema"), (1, "grammar")]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("settings", "known"),
    [({}, ["json_schema", "json_object", "text"]), ({"supports": ()}, ["text"]), ({"supports": ("text",)}, ["text"])],
)
def test_a_server_knows_both_json_formats_or_what_it_is_told(settings, known):
    async def run(client: openai.AsyncOpenAI) -> None:
        for kind in ("json_schema", "json_object", "text"):
            with nullcontext() if kind in known else pytest.raises(openai.BadRequestError, match="must be 'text'"):
                await text_of(client, response_format={"type": kind})

    fake = FakeOpenAI(GOOD, **settings)
    asyncio.run(run(fake.client()))
    assert [request.body["response_format"]["type"] for request in fake.requests] == known


def test_a_misspelt_response_format_is_found():
    with pytest.raises(ValueError, match="'json-schema' is none of"):
        FakeOpenAI(GOOD, supports=("json-schema",))


@pytest.mark.parametrize("reply", [Text('"a b"', cached_tokens=1), Json("a b", cached_tokens=1, reasoning_tokens=40)])
def test_usage_tells_cached_and_reasoning_tokens(reply: Reply):
    usage = asyncio.run(FakeOpenAI(reply).client().chat.completions.create(**QUESTION)).usage
    reasoning = reply.reasoning_tokens
    assert usage.prompt_tokens_details.cached_tokens == 1
    assert usage.completion_tokens_details.reasoning_tokens == reasoning
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (2, 2 + reasoning, 4 + reasoning)


@pytest.mark.parametrize("way", ["http", AIOHTTP])
def test_at_the_refused_url_nobody_listens_and_nobody_else_may(way):
    async def run() -> None:
        async with over_http(way, refused_url()) as client:
            await text_of(client)

    with pytest.raises(openai.APIConnectionError):
        asyncio.run(run())
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", urlsplit(refused_url()).port))


@pytest.mark.parametrize("reply", [GOOD, SlowStream(GOOD, 0.06), ServerError()])
@pytest.mark.parametrize("stream", [False, True])
def test_a_connection_is_kept_alive(reply, stream):
    with FakeOpenAI(reply) as fake:
        connection = http.client.HTTPConnection(urlsplit(fake.url).netloc, timeout=5)
        sockets = set()
        for _ in range(2):
            connection.request("POST", "/v1/chat/completions", json.dumps({**QUESTION, "stream": stream}))
            assert connection.getresponse().read()
            sockets.add(connection.sock)
        connection.close()
    assert len(sockets) == 1 and None not in sockets


def test_three_hundred_connections_are_answered_side_by_side():
    async def ask(url: str) -> list[tuple[str, str]]:
        return await asyncio.gather(*(exchange(url, json.dumps(QUESTION).encode()) for _ in range(300)))

    with FakeOpenAI(Text("x", delay=1.0)) as fake:
        answers = asyncio.run(ask(fake.url))
    assert sum(head.startswith("http/1.1 200") for head, _ in answers) == 300
    assert fake.peak > 150  # a connection that finds the queue full tries again after a second


@needs_aiohttp
def test_three_hundred_requests_of_the_sdk_over_aiohttp():
    async def run(fake: FakeOpenAI) -> list[str | None]:
        async with connect(fake, "aiohttp", timeout=30) as client:
            return await asyncio.gather(*(text_of(client) for _ in range(300)))

    fake = FakeOpenAI(lambda request: Text(str(request.number), delay=1.0))
    assert sorted(map(int, asyncio.run(run(fake)))) == list(range(300))
    assert fake.peak > 150  # of 300, for a busy machine sends the last when the first are answered


@pytest.mark.parametrize("body", [b"", b"{", b"[1]"])
def test_a_body_that_is_no_json_object_is_a_bad_request(body):
    with FakeOpenAI(GOOD) as fake:
        head, answer = asyncio.run(exchange(fake.url, body))
    assert head.startswith("http/1.1 400") and b"not a JSON object" in answer
    assert fake.requests == []


def test_a_client_that_resets_the_connection_leaves_no_traceback(capfd):
    with FakeOpenAI(GOOD) as fake:
        for _ in range(3):
            rude = socket.create_connection(("127.0.0.1", urlsplit(fake.url).port))
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() resets
            time.sleep(0.05)  # its thread reads by now
            rude.close()
        time.sleep(0.1)
        assert asyncio.run(exchange(fake.url, json.dumps(QUESTION).encode()))[0].startswith("http/1.1 200")
    assert capfd.readouterr().err == ""


def test_everything_public_is_exported():
    names = set(soul.testing.__all__)
    assert {"FakeOpenAI", "ScriptedSeat", "fake_judge", "refused_url", "scripted_players", "sometimes"} <= names
    assert all(hasattr(soul.testing, name) for name in names)
    replies = vars(soul.testing.replies).values()
    ours = {kind.__name__ for kind in replies if isinstance(kind, type) and issubclass(kind, Reply)}
    assert "SlowStream" in ours and ours <= names
