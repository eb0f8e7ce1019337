"""Calls that wait for two seconds say so, in one line for all calls that wait for the same thing.

Promise under test: the line names the reason: a rate limit, the cap, the pause of a breaker, Retry-After. 500 calls
give one line, and a call that waits for less than two seconds gives none.
"""

import asyncio

import pytest

from soul.judge.wait_notice import REPEAT_S, FailureNotice, WaitNotice
from tests.soul.judge.jumping_time import simulate
from tests.soul.judge.test_limits import Crowd


def lines(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "soul.judge.wait_notice"]


def test_500_calls_that_wait_give_one_line_every_ten_seconds_and_short_waits_none(caplog):
    async def main(loop):
        crowd = Crowd(loop, 250)
        await asyncio.gather(*(crowd.call(1.9) for _ in range(500)))
        assert lines(caplog) == []
        await asyncio.gather(*(crowd.call(33.0) for _ in range(750)))

    simulate(main)
    assert [line.split(" for ")[0] for line in lines(caplog)] == ["500 calls wait"] * 4 + ["250 calls wait"] * 3


def test_another_reason_is_logged_at_once(caplog):
    notice = WaitNotice()
    for now, kind in ((0.0, "a"), (1.0, "b"), (9.0, "a"), (REPEAT_S, "a")):
        notice.log(now, kind, kind)
    assert lines(caplog) == ["a", "b", "a"]


def test_failures_are_counted_in_one_line_every_ten_seconds(caplog):
    now = 0.0
    notice = FailureNotice("m at u", lambda: now)
    for quarter in range(100):  # of a second
        now = quarter / 4
        notice.add("server_error" if now < 5 else "timeout", "m at u: status 503", 7)
    first, second, third = lines(caplog)
    assert first.startswith("requests to m at u fail (server_error 1), 7 calls wait to be sent again; the last failure")
    assert "(timeout 21, server_error 19)" in second and "(timeout 40)" in third
    assert third.endswith("the last failure: status 503")


# --- what they wait for


@pytest.mark.parametrize(
    "given, outcome, line",
    [
        ({}, "ok", "at most 1 requests at a time (concurrency), with a timeout of 60 s each"),
        ({"requests_per_minute": 6}, "ok", "the limit is requests_per_minute=6; the calls that wait now need "),
        ({"tokens_per_minute": 60}, "ok", "the limit is tokens_per_minute=60; the calls that wait now need "),
        ({"breaker": {"min_requests": 1}}, "timeout", "paused, next request in 28 s; 100% of 1 requests failed"),
        ({"breaker": {"min_requests": 1}}, "rate_limit", "it answers 429 (rate limit); next request in "),
    ],
)
def test_the_line_names_the_endpoint_and_the_limit(given, outcome, line, caplog):
    async def main(loop):
        crowd = Crowd(loop, 1, **given)
        if outcome == "rate_limit":
            await crowd.limits.enter(100.0)
            crowd.limits.leave("rate_limit", 100.0, 0.0, retry_after_s=60.0)
        elif "requests" in line or outcome != "ok":
            await crowd.call(0.0 if given else 9.0, outcome)
        tasks = [asyncio.create_task(crowd.call(0.01 if given else 9.0)) for _ in range(5)]
        await asyncio.sleep(3.5)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    simulate(main)
    first = lines(caplog)[0]
    assert " calls wait for m at http://u: " in first and line in first
