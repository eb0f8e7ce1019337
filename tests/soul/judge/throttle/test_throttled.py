"""At an endpoint that admits 8 at a time or 20 a second, nothing is lost and hardly any time.

Promise under test: 400 calls at each of five limits (in flight or a rate; Retry-After in seconds, as a date, or none)
get through in at most 1.25 times the shortest possible time, although the gate does not know the limit; the same with
two gates; and where everything is refused, every call ends. The log has at most one line a
second about pauses.

Real gates and limits on a clock that jumps, with the limiter of `benchmarks.throttled_server` behind them.
"""

import asyncio
import logging
import random
from collections import Counter
from email.utils import parsedate_to_datetime

import pytest

from benchmarks.throttled_server import Limit, Limiter
from soul.errors import JudgeFailure
from soul.judge.throttle.local_gate import RequestGate, in_process
from soul.judge.throttle.shared_limits import EndpointLimits, SharedLimits
from tests.soul.judge.throttle.jumping_time import simulate
from tests.soul.judge.throttle.test_local_gate import far

FIVE = {
    "8 in flight, seconds": (Limit("in_flight", 8, "seconds"), 0.2),
    "8 in flight, no header": (Limit("in_flight", 8), 0.2),
    "20 a second, seconds": (Limit("bucket", 20, "seconds"), 0.02),
    "20 a second, no header": (Limit("sliding", 20), 0.02),
    "20 a second, date": (Limit("fixed", 20, "date"), 0.02),
}


def play(limit, latency, calls=400, gates=1, patience_s=1e9, seed=1):
    """The seconds until the last answer, refusals, and failures by cause."""
    rng = random.Random(seed)

    async def main(loop):
        limits = SharedLimits({"endpoint": EndpointLimits("m at u", 64)}, clock=loop.time)
        limits._endpoints["endpoint"].throttle._rng = rng
        port = in_process(limits) if gates == 1 else far(limits, rng, 0.001, 0.005)
        doors = [RequestGate("endpoint", str(number), port) for number in range(gates)]
        limiter, outcomes = Limiter(limit), Counter()

        async def call(number):
            gate, again, end = doors[number % gates], False, None
            while True:
                try:
                    async with asyncio.timeout_at(end):  # as Line does
                        waves = await gate.enter(100.0, again, patience_s)
                except (JudgeFailure, TimeoutError) as failure:
                    outcomes[getattr(failure, "cause", "rate_limit")] += 1
                    return
                await asyncio.sleep(rng.uniform(0.001, 0.003))
                wait_s = limiter.admit(loop.time())
                if wait_s is None:
                    await asyncio.sleep(latency)
                    limiter.in_flight -= 1
                    outcomes["ok"] += 1
                    gate.leave("ok", 100.0, 100.0, waves=waves)
                    return
                asked = limiter.headers(wait_s, loop.time()).get("retry-after")
                if asked is not None:
                    asked = float(asked) if asked.isdigit() else parsedate_to_datetime(asked).timestamp() - loop.time()
                again, end = True, end or loop.time() + patience_s
                outcomes["refused"] += 1
                gate.leave("rate_limit", 100.0, 0.0, waves=waves, retry_after_s=asked)

        await asyncio.gather(*map(call, range(calls)))
        return loop.time(), outcomes

    return simulate(main)


@pytest.mark.parametrize("gates", [1, 2])
@pytest.mark.parametrize("limit, latency", FIVE.values(), ids=FIVE.keys())
def test_nothing_is_lost_at_five_limits_and_hardly_any_time(limit, latency, gates, caplog):
    caplog.set_level(logging.INFO)
    seconds, outcomes = play(limit, latency, gates=gates)
    assert outcomes["ok"] == 400
    # A date has whole seconds: each pause lasts up to a second too long.
    assert seconds <= (1.4 if limit.header == "date" else 1.25) * limit.best_s(400, latency)
    assert outcomes["refused"] <= 150
    assert 0 < len([record for record in caplog.records if "paused for" in record.getMessage()]) <= seconds


def test_where_everything_is_refused_every_call_ends():
    seconds, outcomes = play(Limit("in_flight", 0), 0.02, calls=100, patience_s=30.0, seed=3)
    assert outcomes["rate_limit"] == 100 - outcomes["ok"] == 100 and 30.0 <= seconds <= 70.0  # sent late at worst


@pytest.mark.slow
def test_one_hundred_verdicts_over_http_at_8_in_flight():
    from benchmarks.judge import ANSWER
    from benchmarks.throttle import with_ours
    from benchmarks.throttled_server import throttled

    with throttled(Limit("in_flight", 8), 0.05, ANSWER) as (url, counts):
        lost, _ = asyncio.run(with_ours(url, 100, 64))
    assert not lost and counts.admitted == 100 and counts.refused > 0
