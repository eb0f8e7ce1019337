"""At an endpoint that admits 8 at a time or 20 a second, nothing is lost and hardly any time.

Promise under test: 400 calls at each of five limits (in flight or a rate; Retry-After in seconds, as a date, or none)
get through in little more than the shortest possible time, although the limits are not known; the same if two or three
processes share one key; and where everything is refused, every call ends.

Real limits on a clock that jumps, with the limiter of `benchmarks.server` behind them.
"""

import asyncio
import random
from collections import Counter
from email.utils import parsedate_to_datetime

import pytest

from benchmarks.server import Limit, Limiter
from soul.errors import JudgeFailure
from soul.judge.call.endpoint import Endpoint
from soul.judge.limits import SHORT_S, Limits
from tests.soul.judge.jumping_time import simulate

FIVE = {
    "8 in flight, seconds": (Limit("in_flight", 8, "seconds"), 0.2),
    "8 in flight, no header": (Limit("in_flight", 8), 0.2),
    "20 a second, seconds": (Limit("bucket", 20, "seconds"), 0.02),
    "20 a second, no header": (Limit("sliding", 20), 0.02),
    "20 a second, date": (Limit("fixed", 20, "date"), 0.02),
}


def play(limit, latency, calls=400, processes=1, timeout_s=1e6, seed=1, apart_s=0.0):
    """The seconds until the last answer, and the outcomes. Each process has limits of its own."""
    rng = random.Random(seed)

    async def main(loop):
        endpoint = Endpoint(model="m", base_url="http://u", timeout_s=timeout_s)
        doors = [Limits(endpoint, clock=loop.time) for _ in range(processes)]
        for door in doors:
            door.throttle._rng = rng
        limiter, outcomes = Limiter(limit), Counter()

        async def call(number):
            door, again, end = doors[number % processes], False, None
            await asyncio.sleep(apart_s * (number % processes))
            while True:
                try:
                    async with asyncio.timeout_at(end):  # as EndpointClient does
                        waves = await door.enter(100.0, None, again)
                except (JudgeFailure, TimeoutError) as failure:
                    outcomes[getattr(failure, "cause", "rate_limit")] += 1
                    return
                await asyncio.sleep(rng.uniform(0.001, 0.003))
                wait_s = limiter.admit(loop.time())
                if wait_s is None:
                    await asyncio.sleep(latency)
                    limiter.in_flight -= 1
                    outcomes["ok"] += 1
                    door.leave("ok", 100.0, 100.0, waves=waves)
                    return
                asked = limiter.headers(wait_s, loop.time()).get("retry-after")
                if asked is not None:
                    asked = float(asked) if asked.isdigit() else parsedate_to_datetime(asked).timestamp() - loop.time()
                again, end = True, end or loop.time() + endpoint.deadline_s
                outcomes["refused"] += 1
                door.leave("rate_limit", 100.0, 0.0, waves=waves, retry_after_s=asked)
                await asyncio.sleep(SHORT_S if asked is None else asked)

        await asyncio.gather(*map(call, range(calls)))
        return loop.time(), outcomes

    return simulate(main)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("limit, latency", FIVE.values(), ids=FIVE.keys())
def test_nothing_is_lost_at_five_limits_and_hardly_any_time(limit, latency, seed):
    seconds, outcomes = play(limit, latency, seed=seed)
    assert outcomes["ok"] == 400 and seconds <= 1.2 * limit.best_s(400, latency)
    assert outcomes["refused"] <= 200


@pytest.mark.parametrize("processes, apart_s", [(2, 0.0), (2, 0.7), (3, 0.3)])
@pytest.mark.parametrize("limit, latency", FIVE.values(), ids=FIVE.keys())
def test_processes_with_one_key_lose_nothing_and_take_half_as_long_again_at_most(limit, latency, processes, apart_s):
    seconds, outcomes = play(limit, latency, processes=processes, apart_s=apart_s)
    assert outcomes["ok"] == 400 and seconds <= 1.5 * limit.best_s(400, latency)


def test_where_everything_is_refused_every_call_ends():
    seconds, outcomes = play(Limit("in_flight", 0), 0.02, calls=100, timeout_s=6.0, seed=3)
    assert outcomes["rate_limit"] + outcomes["outage"] == 100 and outcomes["outage"] > 30
    assert 30.0 <= seconds <= 40.0
