"""What an endpoint says it took is checked: no count evades a budget, and what may have cost money is never free."""

import asyncio

import pytest

import soul.judge.client
from soul.errors import JudgeFailure
from soul.judge import Gateway, GatewaySettings
from soul.judge.call.http import read_completion
from soul.judge.ledger import money
from soul.one_turn import Critique
from tests.soul.judge.call.hostile_server import Connection, as_body, completion, http, serving

PRICES = {"price_in": 1000.0, "price_out": 2000.0}


@pytest.fixture(autouse=True)
def _no_backoff(monkeypatch):
    monkeypatch.setattr(soul.judge.client, "backoff_s", lambda attempt: 0.001)


@pytest.mark.parametrize("count", [-1, True, 1000.0, "1000", None, [], {}, float("nan")])
def test_a_count_that_cannot_be_is_unknown(count):
    usage = {"prompt_tokens": count, "completion_tokens": 50}
    tokens = read_completion(as_body(completion("x", usage=usage))).tokens
    assert (tokens.prompt, tokens.completion) == (None, 50)


# --- money


def asked(answer, budget=None, times=1, **settings):
    """The judge's usage after some questions to an endpoint with this answer, and the cause of the last failure."""

    async def run():
        async with serving({"x": answer}) as server:
            judge = {"model": "m", "api_key_env": "none", "structured": "prompt", "max_attempts": 1, "max_reasks": 0}
            judge |= {"base_url": server.url("x"), **PRICES, "budget_usd": budget, **settings}
            gateway = Gateway.connect(GatewaySettings.from_sections({"judge": judge}))
            cause = None
            for number in range(times):
                try:
                    await gateway.judge.ask(Critique, "Be brief.", {"n": number, "attempt": "words " * 200})
                except JudgeFailure as failure:
                    cause = failure.cause
                    if cause == "budget":
                        break
            await gateway.close()
            return gateway.judge.usage, cause

    return asyncio.run(run())


async def _silence(connection: Connection) -> None:
    await connection.reader.read()


SENT = {
    "silence": (_silence, "timeout"),
    "a broken answer": (http()[:-9], "connection"),
    "nothing": (b"", "connection"),
    "no JSON": (http(b"<html>"), "invalid"),
}


@pytest.mark.parametrize("answer, cause", SENT.values(), ids=SENT.keys())
def test_a_request_that_was_sent_costs_its_prompt_at_least(answer, cause):
    usage, failed = asked(answer, timeout_s=0.5 if cause == "timeout" else 60.0)
    assert failed == cause
    assert 0.3 < usage.cost_usd < 0.6  # some 1,400 characters at a dollar for 4,000
    assert usage.unpriced == 1 and money(usage) == f"at least ${usage.cost_usd:,.2f}"


@pytest.mark.parametrize("status", ["400 X", "401 X", "429 X", "500 X", "307 X"])
def test_an_error_that_the_endpoint_reports_is_free(status):
    usage, _ = asked(http({}, status), timeout_s=0.3)
    assert usage.cost_usd == 0.0 and usage.unpriced == 0


def test_a_call_that_was_given_up_costs_its_prompt():
    async def run():
        async with serving({"x": _silence}) as server:
            settings = GatewaySettings.from_sections(
                {"judge": {"model": "m", "api_key_env": "none", "base_url": server.url("x"), **PRICES}}
            )
            gateway = Gateway.connect(settings)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.5):
                    await gateway.judge.ask(Critique, "Be brief.", {"attempt": "words " * 200})
            await gateway.close()
            return gateway.judge.usage

    usage = asyncio.run(run())
    assert usage.cost_usd > 0.3 and usage.unpriced == 1
