"""Calls that wait for two seconds say so, in one line for all calls that wait for the same thing.

Promise under test: the line names the reason and the longest possible wait: another process's answer, a rate limit,
the cap, the pause of a breaker, Retry-After. 500 calls give one line, and a call that waits for less than two seconds
gives none.
"""

import asyncio
import re

import pytest
from pydantic import BaseModel

from soul.judge import Judge
from soul.judge.cache import Cache
from soul.judge.throttle.circuit_breaker import BreakerSettings
from soul.judge.throttle.wait_notice import PATIENCE_S, REPEAT_S, FailureNotice, Reason, WaitNotice
from soul.testing import FakeOpenAI, Json, RateLimit
from tests.soul.judge.throttle.jumping_time import simulate
from tests.soul.judge.throttle.test_local_gate import Fleet


class Score(BaseModel):
    score: int


def lines(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "soul.judge.throttle.wait_notice"]


def waits(seconds, count, explain=None, after=0.0):
    """So many calls that wait for so long at one place; the times at which it spoke."""
    spoke = []

    async def main(loop):
        def explained(number, left):
            spoke.append(loop.time())
            return (explain or (lambda n, left: Reason("kind", f"{n} wait")))(number, left)

        notice = WaitNotice(explained)

        async def call():
            await asyncio.sleep(after)
            with notice.waiting(lambda: 9.0):
                await asyncio.sleep(seconds)

        await asyncio.gather(*(call() for _ in range(count)))
        await asyncio.sleep(10)  # a timer that is left over must not speak

    simulate(main, seconds=1e6)
    return spoke


def test_500_calls_that_wait_give_one_line_at_a_time_and_the_first_after_two_seconds(caplog):
    spoke = waits(30, 500)
    assert lines(caplog) == 3 * ["500 wait"] and spoke[0] == PATIENCE_S


def test_a_wait_of_less_than_two_seconds_gives_no_line(caplog):
    assert waits(1.9, 500) == [] == lines(caplog)


def test_a_call_that_comes_later_has_its_own_two_seconds():
    async def main(loop):
        spoke = []
        notice = WaitNotice(lambda n, left: spoke.append((loop.time(), n)))

        async def call(start, seconds):
            await asyncio.sleep(start)
            with notice.waiting():
                await asyncio.sleep(seconds)

        await asyncio.gather(call(0, 1.5), call(1.0, 1.5), call(1.4, 3.0))
        return spoke

    assert simulate(main) == [(3.4, 1)]


def test_a_reason_that_lasts_is_repeated_every_ten_seconds(caplog):
    waits(PATIENCE_S + 4 * REPEAT_S + 1, 500)
    assert lines(caplog) == ["500 wait"] * 5 and REPEAT_S == 10


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


def test_a_failure_while_no_call_waits_counts_no_waiting_calls(caplog):
    FailureNotice("m at u", lambda: 0.0).add("timeout", "m at u: no answer", 0)
    assert lines(caplog) == ["requests to m at u fail (timeout 1); the last failure: no answer"]


def test_another_reason_is_said_at_once(caplog):
    reasons = iter(["cap", "cap", "pause", "cap"])
    waits(8.5, 1, lambda n, left: Reason(kind := next(reasons), kind))
    assert lines(caplog) == ["cap", "pause"]


def test_nothing_is_said_where_there_is_nothing_to_say(caplog):
    assert len(waits(30, 1, lambda n, left: None)) > 1 and lines(caplog) == []


# --- the gate


def gated(calls=8, seconds=10.0, outcome="ok", **fleet):
    async def main(loop):
        line = Fleet(loop, **fleet)
        await asyncio.gather(*(line.call(0, seconds, outcome) for _ in range(calls)), return_exceptions=True)

    simulate(main)


def test_the_cap(caplog):
    gated(calls=500, cap=2, timeout_s=60, seconds=0.1)  # the last one waits for 25 s
    line, *repeated = lines(caplog)
    assert repeated
    assert re.fullmatch(
        r"\d+ calls wait for m at u: at most 2 requests at a time \(concurrency\), with a timeout of 60 s each", line
    )


def test_the_rate_of_requests_and_of_tokens(caplog):
    gated(calls=20, cap=50, seconds=0.1, requests_per_minute=60)
    gated(calls=20, cap=50, seconds=0.1, tokens_per_minute=6000)  # of 100 tokens each
    requests, _, tokens, _ = lines(caplog)
    assert re.fullmatch(
        r"1\d calls wait for m at u: the limit is requests_per_minute=60; the calls .* need 1\d s", requests
    )
    assert re.fullmatch(
        r"1\d calls wait for m at u: the limit is tokens_per_minute=6000; the calls .* need 1\d s", tokens
    )


def test_the_pause_of_a_breaker(caplog):
    breaker = BreakerSettings(min_requests=4, pause_s=20, max_pauses=1)
    gated(calls=40, cap=4, seconds=0.5, outcome="server_error", breaker=breaker)
    line, *_ = lines(caplog)
    assert re.fullmatch(
        r"\d+ calls wait for m at u: paused, next request in (1\d|20) s at most; 100% of \d+ requests failed "
        r"\(server_error \d+\); last cause: server_error happened",
        line,
    )


def test_limits_that_do_not_answer(caplog):
    def silent(limits):
        async def sync(report):
            await asyncio.sleep(30)
            return limits.sync(report)

        return sync

    gated(calls=3, cap=4, port=silent, seconds=0.1)
    assert lines(caplog)[0] == "3 calls wait for the run's limits of endpoint to answer"


# --- real requests


@pytest.fixture
def soon(monkeypatch):
    """Two seconds are a tenth of one here."""
    monkeypatch.setattr("soul.judge.throttle.wait_notice.PATIENCE_S", 0.1)


def test_retry_after(caplog, soon):
    async def main():
        fake = FakeOpenAI([RateLimit(retry_after=1.0), Json({"score": 7})])
        judge = Judge.connect(fake.endpoint(structured="json_schema"), fake.client())
        return await judge.ask(Score, "Score.", {})

    assert asyncio.run(main()).score == 7
    text = "1 call waits for fake at http://fake.invalid/v1: it answers 429 (rate limit); next request in "
    assert lines(caplog)[0].startswith(text)


def test_another_process_that_asks_the_same(caplog, soon, tmp_path):
    async def main():
        fake = FakeOpenAI(Json({"score": 7}))
        judge = Judge.connect(fake.endpoint(structured="json_schema"), fake.client())
        judge.cache, other = Cache(tmp_path / "answers.sqlite"), Cache(tmp_path / "answers.sqlite")
        questions = [{"n": number} for number in range(50)]
        for data in questions:
            assert other.claim(judge._key(Score, "Score.", data, 0), 200) == "mine"
        asked = asyncio.gather(*(judge.scope().ask(Score, "Score.", data) for data in questions))
        while not lines(caplog):
            await asyncio.sleep(0.01)
        assert not fake.requests
        other.close()
        return len(await asyncio.wait_for(asked, 30))

    assert asyncio.run(main()) == 50
    line = lines(caplog)[0]
    assert re.fullmatch(
        r"50 calls wait for answers of fake at .* that another process is fetching, (199|200) s at most", line
    )
