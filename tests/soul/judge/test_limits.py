"""Where calls wait for an endpoint: who may be sent is sent in time, once and for all, whatever happens around him.

Promise under test: what is in flight never exceeds the cap, and the cap is used to the full; requests and tokens per
minute hold over every window; no caller is forgotten, and a cancelled one leaves nothing behind; an outage or a spent
budget reaches all who wait; a probe after a pause is sent alone.

Most tests run on a loop whose clock jumps to the next event, so they measure time exactly and on any machine.
"""

import asyncio
import gc
import random
from collections import Counter

import pytest

from soul.errors import JudgeFailure
from soul.judge.call.endpoint import Endpoint
from soul.judge.circuit_breaker import BreakerSettings
from soul.judge.limits import Budget, Limits, shared_limits
from tests.soul.judge.jumping_time import simulate

pytestmark = pytest.mark.smoke


class Crowd:
    """Calls at one endpoint, and how many of them are in flight."""

    def __init__(self, loop, cap, breaker=None, budget_usd=None, seed=0, **limits):
        self.loop, self.cap, self.rng = loop, cap, random.Random(seed)
        endpoint = Endpoint(model="m", base_url="http://u", concurrency=cap, **limits)
        self.limits = Limits(endpoint, BreakerSettings(**(breaker or {})), loop.time)
        self.budget = Budget(budget_usd)
        self.flying, self.peak, self.outcomes, self.starts = 0, 0, Counter(), []

    async def call(self, seconds, outcome="ok", tokens=100.0, used=None, cost=0.0):
        try:
            await self.limits.enter(tokens, self.budget)
        except JudgeFailure as failure:
            self.outcomes[failure.cause] += 1
            raise
        self.starts.append(self.loop.time())
        self.flying += 1
        self.peak = max(self.peak, self.flying)
        assert self.flying <= self.cap
        ended = None
        try:
            await asyncio.sleep(seconds)
            ended = outcome() if callable(outcome) else outcome
            self.outcomes[ended] += 1
        finally:
            self.flying -= 1
            self.budget.spent_usd += cost
            self.limits.leave(ended, tokens, tokens if used is None else used, f"{ended} happened")

    async def at_rest(self):
        """Nothing is held, and the next ones get everything."""
        assert self.flying == 0 == self.limits._in_flight and not self.limits._waiters
        self.peak = 0
        await asyncio.gather(*(self.call(1.0) for _ in range(self.cap)))
        assert self.peak == self.cap


# --- nobody is forgotten


@pytest.mark.parametrize("cap", [1, 4, 7])
@pytest.mark.parametrize("longest", [0.004, 0.06, 1.5])
def test_hundreds_of_calls_in_any_pattern_get_through(cap, longest):
    async def main(loop):
        crowd, tasks = Crowd(loop, cap, seed=cap), []
        rng = crowd.rng
        while len(tasks) < 600:
            for _ in range(rng.choice([1, 1, 2, 7, 40])):
                seconds = rng.choice([0.0, rng.uniform(0, longest), rng.expovariate(3 / longest)])
                tasks.append(asyncio.create_task(crowd.call(seconds)))
            await asyncio.sleep(rng.choice([0.0, 0.0, longest / 10, longest, 3 * longest]))
        await asyncio.gather(*tasks)
        assert crowd.outcomes == {"ok": len(tasks)}
        await crowd.at_rest()

    simulate(main)


def test_callers_are_let_in_in_the_order_they_came_and_those_sent_before_go_first():
    async def main(loop):
        crowd, order = Crowd(loop, 2), []

        async def one(number, again):
            await crowd.limits.enter(1.0, again=again)
            order.append(number)
            await asyncio.sleep(crowd.rng.random())
            crowd.limits.leave("ok", 1.0, 1.0)

        await asyncio.gather(*(one(number, number >= 40) for number in range(50)))
        assert order == [0, 1, *range(40, 50), *range(2, 40)]

    simulate(main)


@pytest.mark.parametrize("seconds,cap", [(0.02, 8), (0.05, 32), (1.0, 64)])
def test_a_backlog_is_worked_off_at_the_full_cap(seconds, cap):
    async def main(loop):
        crowd, calls = Crowd(loop, cap), 60 * cap
        await asyncio.gather(*(crowd.call(seconds) for _ in range(calls)))
        assert loop.time() <= 1.01 * calls * seconds / cap and crowd.peak == cap

    simulate(main)


@pytest.mark.parametrize("seed", range(4))
def test_cancelled_callers_leave_nothing_behind(seed):
    async def main(loop):
        crowd, tasks = Crowd(loop, 3, seed=seed), []
        rng = crowd.rng
        for _ in range(300):
            task = asyncio.create_task(crowd.call(rng.choice([0.0, 0.01, 0.3])))
            tasks.append(task)
            if rng.random() < 0.5:
                loop.call_later(rng.choice([0.0, 0.001, rng.uniform(0, 0.5)]), task.cancel)
            if rng.random() < 0.2:
                await asyncio.sleep(rng.choice([0.0, 0.01, 0.2]))
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(result) for result in results} == {type(None), asyncio.CancelledError}
        await crowd.at_rest()

    simulate(main)


def test_one_who_is_cancelled_in_the_moment_he_is_let_in_gives_his_place_to_the_next():
    async def main(loop):
        crowd = Crowd(loop, 1)
        await crowd.limits.enter(10.0)
        unlucky, next_one = (asyncio.create_task(crowd.call(0.0)) for _ in range(2))
        await asyncio.sleep(0.01)
        crowd.limits.leave("ok", 10.0, 10.0)  # lets the unlucky one in
        unlucky.cancel()
        await asyncio.wait_for(next_one, 0.1)
        assert unlucky.cancelled()
        await crowd.at_rest()

    simulate(main)


# --- rates


def test_requests_per_minute_hold_over_every_window_and_are_used():
    async def main(loop):
        crowd = Crowd(loop, 40, requests_per_minute=240.0)  # 4 a second
        await asyncio.gather(*(crowd.call(0.1) for _ in range(120)))
        for at in crowd.starts:
            assert sum(at <= other < at + 10.0 for other in crowd.starts) <= 40 + 4
        assert loop.time() < 1.05 * 120 / 4

    simulate(main)


def test_tokens_per_minute_hold_over_every_window_also_where_calls_use_less_or_more_than_announced():
    async def main(loop):
        crowd = Crowd(loop, 40, tokens_per_minute=6000.0)  # 100 a second
        tasks = [asyncio.create_task(crowd.call(0.1, used=crowd.rng.choice([50.0, 150.0]))) for _ in range(400)]
        await asyncio.sleep(180)
        for at in crowd.starts:
            assert 100.0 * sum(at <= other < at + 60 for other in crowd.starts) <= 1.2 * 6000
        assert len(crowd.starts) > 160
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    simulate(main)


# --- what stops


@pytest.mark.parametrize(
    "cause,given,outcome,words",
    [
        ("outage", {"breaker": {"min_requests": 6, "max_pauses": 0}}, "timeout", "m at http://u is down: 100% of"),
        ("outage", {"breaker": {"min_requests": 6, "max_pauses": 0}}, "auth", "auth happened"),
        ("budget", {"budget_usd": 3.0}, "ok", "judge.budget_usd=$3.00"),
    ],
)
def test_a_stop_reaches_all_who_wait_and_all_who_come(cause, given, outcome, words):
    async def main(loop):
        crowd = Crowd(loop, 4, **given)
        results = await asyncio.gather(*(crowd.call(1.0, outcome, cost=0.5) for _ in range(90)), return_exceptions=True)
        assert loop.time() < 4
        failures = [result for result in results if result is not None]
        assert len(failures) >= 90 - 6 - 2 * crowd.cap
        for failure in failures:
            assert isinstance(failure, JudgeFailure) and failure.cause == cause and words in failure.detail
        with pytest.raises(JudgeFailure):
            await crowd.call(1.0)

    simulate(main)


def test_calls_outlive_an_outage_that_ends_and_each_pause_is_probed_by_one_request():
    async def main(loop):
        crowd = Crowd(loop, 4, {"min_requests": 5, "pause_s": 10, "max_pauses": 4})

        def outcome():
            return "ok" if loop.time() > 100 else "server_error"

        async def persistent():
            while crowd.outcomes["ok"] < 1000:
                await crowd.call(1.0, outcome)

        await asyncio.gather(*(persistent() for _ in range(15)))
        # The first failures and what was in flight beside them, then one probe a pause (10, 20, 40, 80 s).
        assert 5 <= crowd.outcomes["server_error"] <= 5 + crowd.cap + 4
        assert crowd.limits.outage is None and loop.time() < 100 + 80 + 1.05 * 1000 / 4 + 10

    simulate(main)


def test_what_was_sent_before_a_pause_is_not_taken_for_the_probe():
    async def main(loop):
        crowd = Crowd(loop, 12, {"min_requests": 10, "pause_s": 30, "max_pauses": 1})
        old = asyncio.create_task(crowd.call(40.0, "timeout"))  # ends after the pause
        failed = [crowd.call(1.0, "timeout") for _ in range(11)]
        await asyncio.gather(*failed, return_exceptions=True)
        assert crowd.limits.breaker.state == "open"
        probe = asyncio.create_task(crowd.call(1.0))
        await asyncio.sleep(35.0)
        assert crowd.flying == 1 and crowd.limits.breaker.state == "probing"  # the old one must end first
        await asyncio.gather(old, probe)
        assert crowd.limits.outage is None and crowd.limits.breaker.state == "closed"

    simulate(main)


# --- sharing


def test_limits_are_shared_by_address_key_model_and_limits_for_as_long_as_somebody_holds_them():
    settings = {"model": "m", "base_url": "http://shared"}
    limits = shared_limits(Endpoint(**settings, temperature=0.5))
    assert shared_limits(Endpoint(**settings, reasoning_effort="low")) is limits
    others = [{"model": "n"}, {"base_url": "http://other"}, {"api_key_env": "OTHER_KEY"}, {"concurrency": 3}]
    others += [{"requests_per_minute": 3}, {"tokens_per_minute": 3}]
    for other in others:
        assert shared_limits(Endpoint(**{**settings, **other})) is not limits
    limits.throttle.waves = 9
    del limits
    gc.collect()
    assert shared_limits(Endpoint(**settings)).throttle.waves == 0
