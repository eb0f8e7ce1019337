"""An endpoint that breaks every rule costs a typed failure, in time, and never an invented verdict.

No token count evades a budget, and what may have cost money is never free. Whatever is set as a site's proxy
(http_proxy), this machine is asked directly.
"""

import asyncio
import gzip
import json
import re
import time
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from soul.errors import TRANSIENT, BadSettings, JudgeFailure
from soul.judge import ChatModel, Endpoint, Gateway, GatewaySettings, Judge
from soul.judge.call.http import is_this_machine, read_completion
from soul.judge.ledger import money
from soul.one_turn import Critique
from soul.testing import FakeOpenAI, Text
from soul.testing.replies import ChatRequest

pytestmark = pytest.mark.usefixtures("no_backoff")

VERDICT = '{"critique": "Look again."}'
OK, CONNECTION, INVALID, TIMEOUT = "ok", "connection", "invalid", "timeout"


# --- a server of raw bytes


@asynccontextmanager
async def serving(answers):
    """The base URL of each answer, and how often each was asked for. Bytes are sent before the server hangs up; None is
    silence."""
    asked = Counter()

    async def serve(reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            await reader.readexactly(int(re.search(r"content-length: (\d+)", head, re.IGNORECASE)[1]))
            kind = int(head.split("/")[1])
            asked[list(answers)[kind]] += 1
            if (answer := list(answers.values())[kind]) is None:
                await reader.read()  # until the client hangs up
            else:
                writer.write(answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has hung up, which is its right
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    port = listener.sockets[0].getsockname()[1]
    try:
        yield {name: f"http://127.0.0.1:{port}/{place}/v1" for place, name in enumerate(answers)}, asked
    finally:
        listener.close()


def completion(text=VERDICT, **changes):
    """A chat completion as bytes; `changes` replaces its fields."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 40, "completion_tokens": 8}
    return json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage, **changes}).encode()


def http(body=None, status="200 OK", *fields):
    """A whole response. `body` None is the good completion; bytes are sent as they are."""
    content = completion() if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"HTTP/1.1 {status}", "Content-Type: application/json", *fields, f"Content-Length: {len(content)}"]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + content


GOOD = completion()
DEEP = b"[" * 100_000 + b"]" * 100_000
# what -> (the answer, outcomes that are right)
KINDS = {
    "good": (http(), OK),
    "nothing": (b"", CONNECTION),
    "no status line": (GOOD, CONNECTION),
    "an SSH server": (b"SSH-2.0-OpenSSH_9.6\r\n", CONNECTION),
    "a header of 1 MB": (http(None, "200 OK", f"X: {'y' * 1_000_000}"), CONNECTION),
    "length too large": (http()[:-9], CONNECTION),
    "broken in an error": (http({}, "500 X")[:-1], (CONNECTION, "server_error")),
    "100 first": (b"HTTP/1.1 100 Continue\r\n\r\n" + http(), OK),
    "two answers": (http() + http(completion('{"critique": "FORGED"}')), (OK, CONNECTION)),
    "gzip": (http(gzip.compress(GOOD), "200 OK", "Content-Encoding: gzip"), OK),
    "silence": (None, TIMEOUT),
    "201": (http(None, "201 Created"), OK),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", INVALID),
    **{
        f"status {code}": (http({"error": {"message": "no"}}, f"{code} X"), cause)
        for cause, codes in {
            "auth": (401, 402, 403),
            "not_found": (404, 301),
            "bad_request": (400, 405, 422),
            "server_error": (408, 409, 425, 500, 503, 529),
        }.items()
        for code in codes
    },
    "exhausted quota": (http({"error": {"code": "insufficient_quota"}}, "429 X"), "auth"),
    "a moderation": (http({"error": {"message": "Your input was flagged for violence"}}, "403 X"), "refusal"),
    "a flagged account": (http({"error": {"message": "Your account was flagged"}}, "403 X"), "auth"),
    "error code is a list": (http({"error": {"code": ["x"], "message": [1]}}, "400 X"), "bad_request"),
    "error is text": (http({"error": "no"}, "400 X"), "bad_request"),
    "error is a page": (http(b"<html><body>502</body></html>", "502 X"), "server_error"),
    "error of invalid UTF-8": (http(b"\xff\xfe", "500 X"), "server_error"),
    "deep error": (http(DEEP, "500 X"), "server_error"),
    "empty": (http(b""), INVALID),
    "a page": (http(b"<!doctype html><html>Sign in</html>"), INVALID),
    "garbage behind": (http(GOOD + b"garbage"), INVALID),
    "truncated JSON": (http(GOOD[:-20]), INVALID),
    "invalid UTF-8": (http(GOOD.replace(b"Look", b"\xff\xfe")), INVALID),
    "a byte order mark": (http(b"\xef\xbb\xbf" + GOOD), OK),
    "deep objects": (http(DEEP), INVALID),
    "NaN": (http(GOOD[:-1] + b', "created": NaN}'), (OK, INVALID)),
    "an error": (http({"error": {"code": 502, "message": "upstream overloaded"}}), "server_error"),
    "the model broke off": (http(completion(choices=[{"finish_reason": "error"}])), "server_error"),
}
for _name, _value in {"null": None, "a number": 7, "a list": []}.items():
    KINDS |= {
        f"the answer is {_name}": (http(json.dumps(_value).encode()), INVALID),
        f"choices is {_name}": (http(completion(choices=_value)), INVALID),
        f"the choice is {_name}": (http(completion(choices=[_value])), INVALID),
        f"message is {_name}": (http(completion(choices=[{"message": _value}])), (INVALID, "empty")),
        f"content is {_name}": (http(completion(_value)), (INVALID, "empty")),
        f"usage is {_name}": (http(completion(usage=_value)), OK),
        f"a part is {_name}": (http(completion([_value, {"type": "text", "text": VERDICT}])), OK),
    }


async def outcome_of(url, right):
    """The outcome of asking for this kind of answer; what is untyped ends the test."""
    settings = {"timeout_s": 0.4 if right == TIMEOUT else 12.0, "max_attempts": 2, "max_reasks": 0, "model": "m"}
    judge = Judge.connect(Endpoint(structured="prompt", api_key_env=None, base_url=url, **settings))
    try:
        return "ok" if (await judge.ask(Critique, "Be brief.", {"n": 1})).critique != "FORGED" else "another verdict"
    except JudgeFailure as failure:
        return failure.cause
    finally:
        await judge.close()


@pytest.mark.timeout(120)
def test_every_kind_of_answer_ends_as_a_typed_outcome_in_time():
    async def run():
        async with serving({name: answer for name, (answer, _) in KINDS.items()}) as (urls, asked):
            rights = [right for _, right in KINDS.values()]
            found = await asyncio.gather(*map(outcome_of, urls.values(), rights))
            return dict(zip(KINDS, found, strict=True)), asked

    start = time.monotonic()
    found, asked = asyncio.run(run())
    rights = {name: right if isinstance(right, tuple) else (right,) for name, (_, right) in KINDS.items()}
    wrong = {name: found[name] for name in KINDS if found[name] not in rights[name]}
    assert not wrong and time.monotonic() - start < 60
    assert {name: asked[name] for name in KINDS} == {name: 2 if found[name] in TRANSIENT else 1 for name in KINDS}


def test_a_second_answer_that_nobody_asked_for_is_not_taken_for_the_next_one():
    async def serve(reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(int(re.search(rb"content-length: (\d+)", head, re.IGNORECASE)[1]))
                writer.write(http())
                await asyncio.sleep(0.02)  # the client has put the connection back by now
                writer.write(http(completion('{"critique": "FORGED"}')))
        except (ConnectionError, asyncio.IncompleteReadError):
            writer.close()  # the client has hung up

    async def run():
        listener = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
        judge = Judge.connect(Endpoint(model="m", structured="prompt", api_key_env=None, base_url=url))
        said = []
        for n in range(5):
            said.append((await judge.ask(Critique, "Be brief.", {"n": n})).critique)
            await asyncio.sleep(0.1)
        await judge.close()
        listener.close()
        return said

    assert asyncio.run(run()) == ["Look again."] * 5


def test_a_redirect_is_not_followed_and_names_the_setting():
    async def run():
        async with serving({"elsewhere": http()}) as (urls, reached):
            redirect = http({}, "307 Elsewhere", f"Location: {urls['elsewhere']}/chat/completions")
            async with serving({"x": redirect}) as (here, _):
                judge = Judge.connect(Endpoint(structured="prompt", api_key_env=None, base_url=here["x"]))
                with pytest.raises(JudgeFailure, match="base_url") as caught:
                    await judge.ask(Critique, "Be brief.", {})
                await judge.close()
                return caught.value.cause, reached.total()

    assert asyncio.run(run()) == ("not_found", 0)


# --- what an endpoint says it took


@pytest.mark.parametrize("count", [-1, True, 1000.0, "1000", None, [], {}, float("nan")])
def test_a_count_that_cannot_be_is_unknown(count):
    tokens = read_completion(completion(usage={"prompt_tokens": count, "completion_tokens": 50})).tokens
    assert (tokens.prompt, tokens.completion) == (None, 50)


@pytest.mark.parametrize(
    "answer, cause, cost",
    [
        (None, TIMEOUT, True),  # a request that was sent costs its prompt at least
        (http()[:-9], CONNECTION, True),
        (b"", CONNECTION, True),
        (http(b"<html>"), INVALID, True),
        (None, None, True),  # the caller gives up
        *((http({}, f"{status} X"), cause, False) for status, cause in ((400, "bad_request"), (401, "auth"))),
        *((http({}, f"{status} X"), cause, False) for status, cause in ((429, "rate_limit"), (500, "server_error"))),
    ],
)
def test_what_may_have_cost_money_is_not_free_and_what_the_endpoint_reports_is(answer, cause, cost):
    async def run():
        async with serving({"x": answer}) as (urls, _):
            judge = {"model": "m", "api_key_env": "none", "structured": "prompt", "base_url": urls["x"]}
            judge |= {"price_in": 1000.0, "price_out": 2000.0, "max_attempts": 1, "max_reasks": 0}
            judge |= {"timeout_s": 0.4 if cause in (TIMEOUT, "rate_limit") else 60.0}
            gateway, found = Gateway.connect(GatewaySettings.from_sections({"judge": judge})), None
            try:
                async with asyncio.timeout(None if cause else 1.0):
                    await gateway.judge.ask(Critique, "Be brief.", {"attempt": "words " * 200})
            except JudgeFailure as failure:
                found = failure.cause
            except TimeoutError:
                pass
            await gateway.close()
            return gateway.judge.usage, found

    usage, found = asyncio.run(run())
    assert found == cause and usage.unpriced == cost
    assert 0.3 < usage.cost_usd < 0.6 if cost else usage.cost_usd == 0.0  # 1,400 characters at a dollar for 4,000
    assert not cost or money(usage) == f"at least ${usage.cost_usd:,.2f}"


# --- a site's proxy


def test_this_machine_is_asked_directly_and_others_through_the_proxy(monkeypatch):
    for name in ("no_proxy", "NO_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)

    async def said(url):
        model = ChatModel.connect(Endpoint(model="m", base_url=url, api_key_env="none", max_attempts=1))
        try:
            return await model.say([{"role": "user", "content": "hi"}])
        finally:
            await model.close()

    with FakeOpenAI(Text("from the proxy")) as proxy, FakeOpenAI(Text("from the server")) as fake:
        proxy._respond = lambda *_: Text("from the proxy").answer(ChatRequest(0, {}))  # whatever the address
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        for host in ("127.0.0.1", "localhost"):
            assert asyncio.run(said(fake.url.replace("127.0.0.1", host))) == "from the server"
        assert asyncio.run(said("http://judge.invalid/v1")) == "from the proxy"
    assert [is_this_machine(host) for host in ("127.0.0.9", "::1", "10.0.0.1", "")] == [True, True, False, False]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OPENAI_ORG_ID", "a\nb"),
        ("OPENAI_PROJECT_ID", "é"),
        ("SSL_CERT_FILE", "/nope.pem"),
        ("https_proxy", "nonsense://x y"),
        ("https_proxy", "127.0.0.1:3128"),
        ("https_proxy", "socks5://user:secret@127.0.0.1:1080"),
    ],
)
def test_a_variable_that_no_request_can_be_sent_with_is_named_with_its_value(variable, value, monkeypatch):
    monkeypatch.setenv(variable, value)
    with pytest.raises(BadSettings) as refused:
        Endpoint(model="m", base_url="https://judge.invalid/v1", api_key_env="none").connection()
    said = str(refused.value)
    assert variable in said and repr(value.rpartition("@")[2])[1:-1] in said and "secret" not in said
