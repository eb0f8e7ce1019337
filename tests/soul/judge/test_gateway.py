"""All roles of a run behind one object, over real HTTP.

Promise under test: equal endpoints share one connection and one cap, different ones do not; what is sampled is never
answered from the cache; a session counts for itself, and nothing is counted twice; a role that nobody asks needs no
key.
"""

import asyncio
from collections import Counter
from contextlib import contextmanager

import pytest
from pydantic import BaseModel

import soul.judge.client
from soul.errors import JudgeFailure
from soul.judge import ROLES, Gateway, GatewaySettings
from soul.testing import FakeOpenAI, Json, NotFound

KEY = "sk-sentinel-0123456789abcdef"


class Answer(BaseModel):
    n: int


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setattr(soul.judge.client, "backoff_s", lambda attempt: 0.0)
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY", "JUDGE_MODEL_NAME", "JUDGE_MODEL_REASONING"):
        monkeypatch.delenv(name, raising=False)


def counting(delay=0.0):
    """Answers with the number of the request: two equal answers are one answer."""
    return FakeOpenAI(lambda request: Json({"n": request.number}, delay=delay))


@contextmanager
def connected(fake, cache_dir=None, judge=None, **sections):
    with fake:
        settings = {"base_url": fake.url, "api_key_env": "none", "structured": "json_schema", **(judge or {})}
        yield Gateway.connect(GatewaySettings.from_sections({"judge": settings, **sections}), cache_dir=cache_dir)


def run(gateway, *work):
    """The result of this work; of several pieces at the same time their results."""

    async def closed_at_the_end():
        try:
            return await asyncio.gather(*work) if len(work) > 1 else await work[0]
        finally:
            await gateway.close()

    return asyncio.run(closed_at_the_end())


async def ask(judge, **data):
    return (await judge.ask(Answer, "Count.", data)).n


# --- sharing

HI = [{"role": "user", "content": "hi"}]


async def crowd(gateway, each):
    asked = [ask(judge, n=n) for n in range(each) for judge in (gateway.judge, gateway.feedback, gateway.environment)]
    await asyncio.gather(*asked, *(gateway.partner.chat(HI) for _ in range(each)))


def test_a_task_may_have_a_judge_of_its_own():
    fake = FakeOpenAI(lambda request: Json({"n": {"gpt-5.4": 54, "other": 1}.get(request.body["model"], 0)}))
    own = {"coser": {"model": "gpt-5.4", "concurrency": 2}}
    with connected(fake, judge={"jury": ["other", "third"], "by_task": own}) as gateway:
        coser, sotopia, nobody = gateway.scope("coser"), gateway.scope("sotopia"), gateway.scope()
        assert [judge.endpoint.model for judge in coser.jury] == ["gpt-5.4"] and coser.jury[0] is coser.judge
        assert len(sotopia.jury) == len(nobody.jury) == 2 and sotopia.judge.endpoint.model == "gpt-5-nano"
        assert coser.feedback.endpoint == sotopia.feedback.endpoint  # only the verdict is its own
        assert run(gateway, ask(coser.judge), ask(sotopia.judge), ask(coser.partner)) == [54, 0, 0]
    assert coser.usage()["judge"].calls == 1 and coser.usage()["partner"].calls == 1
    assert gateway.usage() == {}
    assert coser.judge.endpoint_client.limits is not sotopia.judge.endpoint_client.limits  # limits of its own too


def test_all_that_ask_a_model_with_one_key_share_its_cap_gateways_and_temperatures_alike():
    fake = counting(delay=0.05)
    with connected(fake, judge={"concurrency": 2}, partner={"temperature": 0.5}) as gateway:
        other = Gateway.connect(gateway.settings)
        run(gateway, crowd(gateway, 3), crowd(other, 3))
        asyncio.run(other.close())
    assert len(fake.requests) == 24 and fake.peak == 2


def test_a_spent_budget_stops_all_roles_and_the_calls_that_wait():
    prices = {"concurrency": 2, "price_in": 1e6, "price_out": 1e6, "budget_usd": 3.0}
    fake = counting(delay=0.05)
    with connected(fake, judge=prices, partner={"model": "p", "price_in": 0, "price_out": 0}) as gateway:

        async def outcomes():
            asked = [ask(gateway.judge, n=n) for n in range(8)]
            found = await asyncio.gather(*asked, return_exceptions=True)
            with pytest.raises(JudgeFailure, match=r"judge.budget_usd=\$3.00 are spent") as late:
                await gateway.partner.chat(HI)
            return [getattr(each, "cause", "ok") for each in found], late.value.cause

        causes, late = run(gateway, outcomes())
    assert late == "budget" and set(causes) == {"ok", "budget"} and causes.count("ok") == len(fake.requests) <= 4


def test_scopes_share_everything_but_the_counters(tmp_path):
    fake = counting(delay=0.2)
    with connected(fake, tmp_path, {"concurrency": 2}) as gateway:
        one, two = gateway.scope(), gateway.scope()

        async def work():
            first = await ask(one.judge, n=1)
            assert first == await ask(two.judge, n=1)  # from the cache
            together = await asyncio.gather(*(ask(scope.feedback, n=2) for scope in (one, two)))  # asked once
            await asyncio.gather(*(ask(scope.environment, n=0) for scope in (one, two) for _ in range(4)))  # sampled
            return together

        together = run(gateway, work())
    assert len(set(together)) == 1 and fake.peak == 2
    assert len(fake.requests) == 1 + 1 + 8
    assert [gateway.usage(), gateway.scope().usage()] == [{}, {}]
    calls = [{role: usage.calls for role, usage in scope.usage().items()} for scope in (one, two)]
    assert calls == [{"judge": 1, "feedback": 1, "environment": 4}] * 2
    assert [scope.usage()["judge"].cache_hits for scope in (one, two)] == [0, 1]
    assert sum(scope.usage()["feedback"].cache_hits for scope in (one, two)) == 1
    assert all(one.roles[role].endpoint_client is judge.endpoint_client for role, judge in gateway.roles.items())


# --- counting


@pytest.mark.parametrize("jury", [(), ("gpt-5-nano", "a", "b")], ids=["alone", "jury"])
def test_nothing_is_counted_twice_and_nothing_is_lost(jury):
    fake = FakeOpenAI(lambda request: NotFound() if request.number % 5 == 4 else Json({"n": request.number}))
    with connected(fake, judge={"jury": list(jury)}) as gateway:

        async def work(scope):
            judges = [*scope.roles.values(), *scope.jury]
            await asyncio.gather(*(ask(judge, n=n) for n in range(3) for judge in judges), return_exceptions=True)

        scopes = [gateway.scope() for _ in range(2)]
        run(gateway, work(gateway), *map(work, scopes))
    total = Counter()
    for counted in (gateway, *scopes):
        assert counted.usage().keys() == set(ROLES)
        assert counted.usage()["judge"].calls == 3 * (1 + (len(jury) or 1))
        for usage in counted.usage().values():
            total += Counter(calls=usage.calls, requests=usage.requests, failures=sum(usage.failures.values()))
            total += Counter(tokens=usage.prompt_tokens)
    calls = 3 * 3 * (4 + (len(jury) or 1))
    failed = sum(request.number % 5 == 4 for request in fake.requests)
    assert total["calls"] == total["requests"] == calls == len(fake.requests)
    assert total["failures"] == failed > 0
    answered = [request for request in fake.requests if request.number % 5 != 4]
    assert total["tokens"] == sum(len(request.text.split()) for request in answered)


# --- keys, failures, the end


def test_a_role_without_its_key_fails_when_it_is_asked(monkeypatch):
    monkeypatch.delenv("SOUL_PARTNER_KEY", raising=False)
    fake = counting()
    with connected(fake, partner={"model": "p", "api_key_env": "SOUL_PARTNER_KEY"}) as gateway:
        scope = gateway.scope()

        async def work():
            assert await ask(scope.judge, n=0) == 0
            with pytest.raises(JudgeFailure, match="auth.*SOUL_PARTNER_KEY"):
                await scope.partner.chat(HI)
            monkeypatch.setenv("SOUL_PARTNER_KEY", KEY)  # nothing of the failure stays
            await ask(scope.partner, n=0)

        run(gateway, work())
    assert scope.usage()["partner"].failures == {"auth": 1} and scope.usage()["judge"].failures == {}
    assert [request.headers["authorization"] for request in fake.requests] == ["Bearer EMPTY", f"Bearer {KEY}"]
