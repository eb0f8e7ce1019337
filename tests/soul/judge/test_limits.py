"""Where calls wait for an endpoint: who may be sent is sent in time, once and for all, whatever happens around him.

Promise under test: what is in flight never exceeds the cap, and the cap is used to the full; requests and tokens per
minute hold over every window; no caller is forgotten, and a cancelled one leaves nothing behind; an outage or a spent
budget reaches all who wait; a probe after a pause is sent alone; what calls wait for is logged.

Most tests run on a loop whose clock jumps to the next event, so they measure time exactly and on any machine.
"""

import asyncio
import random
from collections import Counter

import pytest

from soul.errors import CONTENT, JudgeFailure
from soul.judge.call.endpoint import Endpoint
from soul.judge.limits import (
    HOLD_S,
    JITTER,
    ROUNDED_S,
    Budget,
    CircuitBreaker,
    Limits,
    Throttle,
    shared_limits,
)
from tests.soul.judge.jumping_time import simulate

pytestmark = pytest.mark.smoke


class Crowd:
    """Calls at one endpoint, and how many of them are in flight."""

    def __init__(self, loop, cap, breaker=None, budget_usd=None, **limits):
        self.loop, self.cap, self.rng = loop, cap, random.Random(0)
        endpoint = Endpoint(model="m", base_url="http://u", concurrency=cap, **limits)
        self.limits = Limits(endpoint, CircuitBreaker(**(breaker or {})), loop.time)
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


@pytest.mark.parametrize("cap, longest", [(1, 0.06), (4, 1.5)])
def test_hundreds_of_calls_in_any_pattern_get_through(cap, longest):
    async def main(loop):
        crowd, tasks = Crowd(loop, cap), []
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


def test_cancelled_callers_leave_nothing_behind():
    async def main(loop):
        crowd, tasks = Crowd(loop, 3), []
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


# --- what an endpoint that answers 429 takes


def refuse(throttle, at, count, in_flight, wave=0, retry_after=None):
    """So many refusals at this time; the last one leaves so many requests in flight."""
    for left in range(in_flight + count - 1, in_flight - 1, -1):
        throttle.refused(at, left, wave, retry_after)


def test_the_first_wave_finds_what_the_endpoint_holds_and_a_later_one_halves_the_cap_at_most():
    throttle = Throttle(64, random.Random(0))
    refuse(throttle, 10.0, 56, 8, retry_after=3.0)
    assert throttle.cap == 8 and throttle.waves == 1
    assert 13.0 - ROUNDED_S <= throttle.until <= 13.0 + 3.0 * JITTER
    throttle = Throttle(64)
    refuse(throttle, 0.0, 24, 40)
    refuse(throttle, 5.0, 40, 0, wave=1)
    refuse(throttle, 5.1, 9, 0, wave=1)  # sent before that was known: the same wave
    assert throttle.cap == 20 and throttle.waves == 2


def test_a_single_refusal_at_the_cap_lowers_it_by_one_without_a_pause_and_it_grows_again_with_answers():
    throttle = Throttle(64)
    throttle._cap = 9.0
    throttle.answered(0.0)
    throttle.waves = 1
    throttle.refused(1.0, 8, 1)
    assert throttle.cap == 8 and throttle.until < 1.0
    for _ in range(400):
        throttle.answered(1.0 + HOLD_S / 2)  # not yet: it is held
    assert throttle.cap == 8
    for _ in range(9):
        throttle.answered(1.0 + HOLD_S)
    assert throttle.cap == 9


# --- the circuit breaker


def opened(outcomes, probes=0, **given_):
    """A breaker after these outcomes, and so many failed probes."""
    made = CircuitBreaker(**{"min_requests": 10, "max_pauses": 2, **given_})
    for outcome, count in outcomes.items():
        for _ in range(count):
            made.record(0.0, outcome, "HTTP 500")
    for _ in range(probes):
        made.state = "probing"
        made.record(made.until, "timeout", "")
    return made


@pytest.mark.parametrize(
    "outcomes,state",
    [
        ({"server_error": 9}, "closed"),  # too few to tell
        ({"server_error": 5, "ok": 5}, "closed"),  # the share itself is not above the share
        ({"server_error": 6, "ok": 5}, "open"),
        ({"auth": 6, "not_found": 2, "bad_request": 1, "ok": 5}, "tripped"),
        ({"server_error": 1, "auth": 10}, "open"),  # one of them may heal
        ({"server_error": 5, "refusal": 6}, "closed"),  # an answer came: the endpoint is well
        ({"rate_limit": 1000, "server_error": 9}, "closed"),  # they are not counted at all
        (Counter(sorted(CONTENT) * 50), "closed"),
    ],
)
def test_a_breaker_opens_by_share_and_trips_where_no_waiting_heals(outcomes, state):
    assert opened(outcomes).state == state


@pytest.mark.parametrize(
    "outcome,state", [("ok", "closed"), ("invalid", "closed"), ("auth", "open"), ("rate_limit", "probing")]
)
def test_a_probe_decides(outcome, state):
    made = opened({"server_error": 10})
    made.record(1.0, outcome, "")  # of before the pause
    assert made.state == "open" and made.until == 30.0
    made.state = "probing"
    made.record(30.0, outcome, "")
    assert made.state == state
    for _ in range(9):
        made.record(31.0, "server_error", "")  # a success clears the slate: the ten from before are forgotten
    assert state != "closed" or made.state == "closed"


def test_pauses_double_and_then_it_trips_for_good():
    made = opened({"server_error": 10}, probes=1)
    assert made.state == "open" and made.until == 30.0 + 60.0
    made = opened({"server_error": 10}, probes=2)
    made.record(1e6, "ok", "")
    assert made.state == "tripped"


def test_the_window_slides_and_the_summary_says_share_causes_and_the_last_failure():
    made = opened({"ok": 1000}, share=0.9)
    for second in range(61, 661, 7):  # never ten within a minute
        made.record(float(second), "server_error", "m at u: HTTP 503")
        assert made.state == "closed"
    made.record(660.0, "timeout", "")
    assert made.summary() == "100% of 10 requests failed (server_error 9, timeout 1); last cause: m at u: HTTP 503"
    assert made.state == "open"


# --- what stops


@pytest.mark.parametrize(
    "cause,given,outcome,words",
    [
        ("outage", {"breaker": {"min_requests": 6, "max_pauses": 0}}, "auth", "auth happened"),
        ("outage", {"timeout_s": 0.2}, "rate_limit", "m at http://u is down: it has answered nothing but 429"),
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
        assert crowd.flying == 1  # the old one must end first
        await asyncio.gather(old, probe)
        assert crowd.limits.outage is None and crowd.limits.breaker.state == "closed"

    simulate(main)


# --- what they wait for


def test_500_calls_that_wait_give_one_line_every_ten_seconds_and_short_waits_none(caplog):
    async def main(loop):
        crowd = Crowd(loop, 250)
        await asyncio.gather(*(crowd.call(1.9) for _ in range(500)))
        assert not caplog.records
        await asyncio.gather(*(crowd.call(33.0) for _ in range(750)))

    simulate(main)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(" for ")[0] for line in lines] == ["500 calls wait"] * 4 + ["250 calls wait"] * 3


def test_limits_are_shared_by_address_key_model_and_limits():
    settings = {"model": "m", "base_url": "http://shared"}
    limits = shared_limits(Endpoint(**settings, temperature=0.5))
    assert shared_limits(Endpoint(**settings, reasoning_effort="low")) is limits
    others = [{"model": "n"}, {"base_url": "http://other"}, {"api_key_env": "OTHER_KEY"}, {"concurrency": 3}]
    for other in [*others, {"requests_per_minute": 3}, {"tokens_per_minute": 3}]:
        assert shared_limits(Endpoint(**{**settings, **other})) is not limits
