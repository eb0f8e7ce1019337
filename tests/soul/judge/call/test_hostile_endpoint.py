"""An endpoint that breaks every rule costs a typed failure, in time, and never an invented verdict.

`hostile_kinds` is the table of answers; each is asked for through a whole judge.
"""

import asyncio
import logging
import time
from collections import Counter
from pathlib import Path

import pytest

import soul.judge.client
from soul.errors import TRANSIENT, JudgeFailure
from soul.judge import Endpoint, Judge
from soul.one_turn import Critique
from tests.soul.judge.call.hostile_kinds import KINDS
from tests.soul.judge.call.hostile_server import FORGED, Connection, HostileServer, completion, http, serving

SHORT = {"timeout_s": 0.4}  # of what hangs, or is to be asked for again later
LONG = {"timeout_s": 12.0}  # of all else: the machine may have other work
LIMIT_MB = 1.0


@pytest.fixture
def limits(monkeypatch):
    monkeypatch.setattr(soul.judge.client, "backoff_s", lambda attempt: 0.001)
    monkeypatch.setattr("soul.judge.call.endpoint.MAX_ANSWER_BYTES", int(LIMIT_MB * 1e6))


def endpoint(server: HostileServer, kind: str, **settings) -> Endpoint:
    given = {**LONG, "max_attempts": 2, "max_reasks": 0, "model": "m"}
    given |= {"structured": "prompt", "api_key_env": None, "base_url": server.url(kind)}
    return Endpoint(**{**given, **settings})


async def ask(judge: Judge) -> str:
    return (await judge.ask(Critique, "Be brief.", {"attempt": "Hello, how are you today?"})).critique


async def outcome_of(server: HostileServer, code: str, right: tuple[str, ...]) -> str:
    """What is wrong about the outcome of this kind of answer, in words; empty if nothing is."""
    judge = Judge.connect(endpoint(server, code, **(SHORT if "timeout" in right else LONG)))
    start, detail = time.monotonic(), ""
    try:
        result = "ok" if await ask(judge) != "FORGED" else "another verdict"
    except JudgeFailure as failure:
        result, detail = failure.cause, failure.detail
    except Exception as error:  # noqa: BLE001 - the point of the test: it is reported with its kind
        result = f"untyped {type(error).__module__}.{type(error).__name__}: {error}"
    finally:
        await judge.close()
    if result not in right:
        return f"{result}, not {' or '.join(right)} ({detail[:100]})"
    if (seconds := time.monotonic() - start) > (20.0 if "timeout" in right else 59.0):
        return f"took {seconds:.1f} s"
    if "timeout" not in right and server.requests[code] != (2 if result in TRANSIENT else 1):
        return f"{result} after {server.requests[code]} requests"
    return ""


@pytest.mark.timeout(120)
def test_every_kind_of_answer_ends_as_a_typed_outcome_in_time(limits, caplog):
    caplog.set_level(logging.CRITICAL)
    codes = {f"kind{number}": kind for number, kind in enumerate(KINDS)}

    async def run():
        busy = asyncio.Semaphore(200)  # each has a socket or two, on both sides
        async with serving({code: KINDS[kind][0] for code, kind in codes.items()}) as server:

            async def one(code):
                async with busy:
                    return await outcome_of(server, code, KINDS[codes[code]][1])

            wrong = await asyncio.gather(*map(one, codes))
            return dict(zip(codes.values(), wrong, strict=True)), server.sent

    wrong, sent = asyncio.run(run())
    assert not any(wrong.values()), "\n".join(f"{kind}: {found}" for kind, found in wrong.items() if found)
    # Reading an endless answer stops at the limit. The server sends that, and what the kernel buffers, at most twice.
    buffers = sum(int(Path(f"/proc/sys/net/ipv4/tcp_{side}mem").read_text().split()[2]) for side in "rw")
    assert max(sent.values()) < 2 * (LIMIT_MB * 1e6 + buffers)


# --- one answer for one question


@pytest.mark.parametrize("pause_s", [0.0, 0.05], ids=["at once", "later"])
def test_an_answer_that_nobody_asked_for_is_nobodys(limits, pause_s):
    """Two answers to one request: the second one must not become the answer of the next question."""

    async def two(connection: Connection) -> None:
        number = connection.server.requests[connection.kind]
        answer = http(completion(f'{{"critique": "answer {number}"}}'))
        forged = http(completion(FORGED))
        if pause_s:
            await connection.send(answer)
            await asyncio.sleep(pause_s)
            await connection.send(forged)
        else:
            await connection.send(answer + forged)

    async def run():
        async with serving({"x": two}) as server:
            judge = Judge.connect(endpoint(server, "x"))
            heard = []
            for number in range(4):
                verdict = await judge.ask(Critique, "Be brief.", {"n": number})
                await asyncio.sleep(2 * pause_s)
                heard.append(verdict.critique)
            await judge.close()
            return heard

    assert all(text.startswith("answer ") for text in asyncio.run(run()))


def test_a_redirect_is_not_followed_and_names_the_setting(limits, monkeypatch):
    monkeypatch.setenv("SOUL_TEST_KEY", "sk-sentinel-0123456789")

    async def elsewhere(connection: Connection) -> None:
        raise AssertionError("the prompt and the key went to another host")

    async def run():
        async with serving({"v1": elsewhere}) as other:

            async def redirect(connection: Connection) -> None:
                where = f"http://localhost:{other.port}/v1/chat/completions"
                await connection.send(http({}, "307 Elsewhere", f"Location: {where}"))

            async with serving({"x": redirect}) as server:
                judge = Judge.connect(endpoint(server, "x", api_key_env="SOUL_TEST_KEY"))
                with pytest.raises(JudgeFailure, match="base_url") as caught:
                    await ask(judge)
                await judge.close()
                return caught.value.cause, other.requests, server.requests["x"]

    assert asyncio.run(run()) == ("not_found", Counter(), 1)
