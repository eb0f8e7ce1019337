"""The limits are the run's: four worker processes (Ray actors) share one cap, one rate and one budget.

The endpoint is a real HTTP server in this process; it counts what is in flight at the same time, whoever sent it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import ray

from agents.judge import GatewaySettings
from agents.testing import FakeOpenAI, Json
from ditto import judge_limits

WORKERS, CALLS = 4, 25


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


@ray.remote(num_cpus=1)
class Worker:
    """An agent-loop worker's part: a gateway of its own, on the run's limits."""

    def __init__(self, settings_json: str, number: int) -> None:
        from agents.judge import Gateway

        self.number = number
        settings = GatewaySettings.model_validate_json(settings_json)
        self.gateway = Gateway.connect(settings, judge_limits.port())

    async def ask(self, calls: int) -> dict[str, int]:
        """How many calls ended how."""
        import asyncio

        from pydantic import BaseModel

        from agents.errors import JudgeFailure

        class Score(BaseModel):
            score: int

        async def one(number: int) -> str:
            try:
                await self.gateway.judge.ask(Score, "Score.", {"worker": self.number, "call": number})
            except JudgeFailure as failure:
                return failure.cause
            return "ok"

        return dict(Counter(await asyncio.gather(*(one(number) for number in range(calls)))))


def run(fake: FakeOpenAI, calls: int = CALLS, **judge: Any) -> tuple[Counter[str], Any]:
    """All workers ask at the same time; outcomes over all of them, and the limits' state."""
    section = {"model": "fake", "base_url": fake.url, "api_key_env": "none", "structured": "json_schema", **judge}
    settings = GatewaySettings.of({"judge": section})
    limits = judge_limits.start(settings, spent_usd=0.0)
    workers = [Worker.remote(settings.model_dump_json(), number) for number in range(WORKERS)]
    try:
        outcomes: Counter[str] = Counter()
        for found in ray.get([worker.ask.remote(calls) for worker in workers]):
            outcomes.update(found)
        return outcomes, ray.get(limits.state.remote())
    finally:
        for actor in (*workers, limits):
            ray.kill(actor)


@pytest.mark.parametrize("cap", [2, 6])
def test_the_cap_holds_over_all_workers_and_is_used(cap: int) -> None:
    with FakeOpenAI(Json({"score": 1}, delay=0.05)) as fake:
        outcomes, _ = run(fake, concurrency=cap)
    assert outcomes == {"ok": WORKERS * CALLS}
    assert fake.peak == cap


def test_the_rate_holds_over_all_workers() -> None:
    with FakeOpenAI(Json({"score": 1})) as fake:
        start = time.monotonic()
        outcomes, _ = run(fake, calls=5, requests_per_minute=240)  # 4 a second
        elapsed = time.monotonic() - start
    assert outcomes == {"ok": WORKERS * 5}
    # The bucket holds one second's worth: 20 requests at 4 a second take at least 4 seconds.
    assert elapsed > 3.9


def test_the_budget_holds_over_all_workers() -> None:
    with FakeOpenAI(Json({"score": 1}, delay=0.02)) as fake:
        # The fake counts words as tokens; the price makes a call cost several cents.
        outcomes, state = run(fake, concurrency=4, price_in=1000.0, price_out=1000.0, budget_usd=1.0)
    assert outcomes["ok"] + outcomes["budget"] == WORKERS * CALLS
    assert outcomes["budget"] > 0 and len(fake.requests) == outcomes["ok"]
    cost = state.spent_usd / outcomes["ok"]
    # What is in flight when the last report comes in may overshoot: a heartbeat's worth of calls at most.
    assert 1.0 <= state.spent_usd
    assert outcomes["ok"] < WORKERS * CALLS and cost > 0.02
