"""Limits and keys are the run's: four worker processes (Ray actors) share one cap, one rate and one budget, and use the
driver's keys, whatever the environment of their node holds.

The endpoint is a real HTTP server in this process; it counts what is in flight at the same time, whoever sent it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from ditto.judging import limits as judge_limits
from ditto.judging.watch import BudgetSpent, InvalidDrafts, JudgeOutage, JudgeWatch
from ditto.settings import Settings
from soul.judge import GatewaySettings, Usage
from soul.judge.gateway import limits_by_key
from soul.judge.ledger import Ledger
from soul.judge.throttle.shared_limits import Report
from soul.record import AttemptRecord, Failure, SessionRecord
from soul.testing import FakeOpenAI, Json
from tests.ditto.test_settings import config

WORKERS, CALLS = 4, 25
KEY = "sk-sentinel-of-the-driver"
OF_A_NODE = {
    "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    "OPENAI_API_KEY": "sk-of-the-node",
    "ANOTHER_KEY": "sk-of-the-node",
    "OPENAI_CUSTOM_HEADERS": "authorization: Bearer sk-of-the-node",  # the SDK would send it in place of our key
    "JUDGE_MODEL_NAME": "the-node's",
}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


@ray.remote(num_cpus=1)
class Worker:
    """An agent-loop worker's part: a gateway of its own, on the run's limits."""

    async def ask(self, settings_json: str, number: int, calls: int) -> dict[str, int]:
        """How many calls ended how."""
        import asyncio

        from pydantic import BaseModel

        from soul.errors import JudgeFailure
        from soul.judge import Gateway

        settings = GatewaySettings.model_validate_json(settings_json)
        await judge_limits.take_variables(settings)
        gateway = Gateway.connect(settings, judge_limits.port())

        class Score(BaseModel):
            score: int

        async def one(call: int) -> str:
            try:
                await gateway.judge.ask(Score, "Score.", {"worker": number, "call": call})
            except JudgeFailure as failure:
                return failure.cause
            return "ok"

        try:
            return dict(Counter(await asyncio.gather(*(one(call) for call in range(calls)))))
        finally:
            await gateway.close()


@pytest.fixture(scope="module")
def workers(cluster: None) -> list[Any]:
    return [Worker.options(runtime_env={"env_vars": OF_A_NODE}).remote() for _ in range(WORKERS)]


def run(workers: list[Any], fake: FakeOpenAI, calls: int = CALLS, **judge: Any) -> tuple[Counter[str], Any]:
    """All workers ask at the same time; outcomes over all of them, and the limits' state."""
    section = {"model": "fake", "base_url": fake.url, "api_key_env": "none", "structured": "json_schema", **judge}
    settings = GatewaySettings.from_sections({"judge": section})
    limits = judge_limits.start(settings, spent_usd=0.0)
    settings_json = settings.model_dump_json()
    try:
        outcomes: Counter[str] = Counter()
        for found in ray.get([worker.ask.remote(settings_json, n, calls) for n, worker in enumerate(workers)]):
            outcomes.update(found)
        return outcomes, ray.get(limits.state.remote())
    finally:
        ray.kill(limits)


@pytest.mark.parametrize("cap", [2, 6])
def test_the_cap_holds_over_all_workers_and_is_used(workers: list[Any], cap: int) -> None:
    with FakeOpenAI(Json({"score": 1}, delay=0.05)) as fake:
        outcomes, _ = run(workers, fake, concurrency=cap)
    assert outcomes == {"ok": WORKERS * CALLS}
    assert fake.peak == cap


def test_the_rate_holds_over_all_workers(workers: list[Any]) -> None:
    with FakeOpenAI(Json({"score": 1})) as fake:
        start = time.monotonic()
        outcomes, _ = run(workers, fake, calls=5, requests_per_minute=240)  # 4 a second
        elapsed = time.monotonic() - start
    assert outcomes == {"ok": WORKERS * 5}
    # The bucket holds one second's worth: 20 requests at 4 a second take at least 4 seconds.
    assert elapsed > 3.9


def test_the_budget_holds_over_all_workers(workers: list[Any]) -> None:
    with FakeOpenAI(Json({"score": 1}, delay=0.02)) as fake:
        # The fake counts words as tokens; the price makes a call cost several cents.
        outcomes, state = run(workers, fake, concurrency=4, price_in=1000.0, price_out=1000.0, budget_usd=1.0)
    assert outcomes["ok"] + outcomes["budget"] == WORKERS * CALLS
    assert outcomes["budget"] > 0 and len(fake.requests) == outcomes["ok"]
    cost = state.spent_usd / outcomes["ok"]
    # What is in flight when the last report comes in may overshoot: a heartbeat's worth of calls at most.
    assert 1.0 <= state.spent_usd
    assert outcomes["ok"] < WORKERS * CALLS and cost > 0.02


@pytest.mark.parametrize("named", ["OPENAI_API_KEY", "ANOTHER_KEY"])
def test_workers_have_the_drivers_key_and_no_other(workers: list[Any], named: str, monkeypatch: Any) -> None:
    for name in OF_A_NODE:
        monkeypatch.delenv(name, raising=False)
    with FakeOpenAI(Json({"score": 1})) as fake:
        monkeypatch.setenv(named, KEY)
        outcomes, _ = run(workers, fake, calls=2, api_key_env=named)
        assert outcomes == {"ok": 2 * WORKERS}
        assert {request.headers["authorization"] for request in fake.requests} == {f"Bearer {KEY}"}
        assert {request.body["model"] for request in fake.requests} == {"fake"}
        monkeypatch.delenv(named)
        outcomes, _ = run(workers, fake, calls=2, api_key_env=named)
        assert outcomes == {"auth": 2 * WORKERS} and len(fake.requests) == 2 * WORKERS, "a node's own key was used"


# --- what the trainer makes of it


def trace(reward: float | None = 1.0, cause: str = "server_error", cost: float = 0.0) -> SessionRecord:
    """A session that kept or lost its judge, and what it cost."""
    failure = None if reward is not None else Failure("judge", cause, f"{cause} at the end")  # type: ignore[arg-type]
    usage = {"judge": Usage(calls=1, requests=1, cost_usd=cost)}
    return SessionRecord(
        task="hitom", number=0, row=0, draft=AttemptRecord(failure=failure, reward=reward), usage=usage
    )


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[..., JudgeWatch]]:
    """Makes a started JudgeWatch with these settings of the judge."""
    running: list[Any] = []

    def make(**judge: Any) -> JudgeWatch:
        if running:  # a run that is resumed has another actor
            ray.kill(running.pop())
        section = {"model": "m", "base_url": "http://j", **judge}
        made = JudgeWatch(Settings.from_config(config(run__dir=str(tmp_path), judge=section)))
        running.append(judge_limits.start(made.settings.gateway, spent_usd=0.0))
        made.start()
        return made

    yield make
    ray.kill(running.pop())


def test_a_share_of_lost_sessions_above_the_limit_stops_the_run(watch: Callable[..., JudgeWatch]) -> None:
    judges = watch(max_failure_rate=0.25)
    numbers = judges.after_step(1, [trace(), trace(), trace(), trace(None)])
    assert judges.stop is None and numbers["judge/failure_share"] == 0.25
    judges.after_step(2, [trace(), trace(None, "refusal"), trace(None)])
    assert isinstance(judges.stop, JudgeOutage)
    for part in (
        "Step 2",
        "67% of 3 sessions",
        "refusal 1, server_error 1",
        "m at http://j",
        "server_error at the end",
    ):
        assert part in str(judges.stop)


def test_a_validation_without_verdicts_stops_the_run_before_its_first_step(watch: Callable[..., JudgeWatch]) -> None:
    judges = watch()
    with pytest.raises(
        JudgeOutage, match=r"Validation before the first step: .* 67% of 3 .*server_error at the end"
    ) as e:
        judges.after_validation([trace(), trace(None), trace(None)])
    assert e.value.exit_code == 1
    judges.after_validation([trace(None, "budget"), trace(None)])  # the budget ends a run in its own way
    judges.after_step(1, [trace()])
    judges.after_validation([trace(None)])
    assert isinstance(judges.stop, JudgeOutage) and "Validation: " in str(judges.stop)  # saved first, then raised


def test_a_tripped_breaker_stops_the_run_whatever_the_share(watch: Callable[..., JudgeWatch]) -> None:
    judges = watch(breaker={"min_requests": 5, "max_pauses": 0})
    (line,) = limits_by_key(judges.settings.gateway)
    report = Report(line, "worker", outcomes={"ok": 1, "timeout": 5}, last_failure="nobody answers")
    ray.get(judges._limits.sync.remote(report))
    judges.after_step(3, [trace() for _ in range(8)])
    assert isinstance(judges.stop, JudgeOutage)
    for part in ("Step 3", "m at http://j", "83% of 6 requests failed (timeout 5)", "nobody answers"):
        assert part in str(judges.stop)


def test_the_budget_stops_the_run_before_a_step_that_would_not_fit(
    watch: Callable[..., JudgeWatch], tmp_path: Path
) -> None:
    prices = {"price_in": 1, "price_out": 1}
    judges = watch(budget_usd=1.0, **prices)
    judges.after_step(1, [trace(cost=0.1), trace(cost=0.2)])
    assert judges.stop is None
    judges.after_validation([trace(cost=0.05)])
    judges.after_step(2, [trace(cost=0.25)])
    assert judges.stop is None  # 0.60 are spent, and a step costs 0.25
    judges = watch(budget_usd=1.0, **prices)  # a crash; the bill goes on
    judges.after_step(3, [trace(cost=0.25)])
    assert isinstance(judges.stop, BudgetSpent) and "$0.85 of judge.budget_usd=$1.00" in str(judges.stop)
    assert Ledger.load(tmp_path / "usage.json").total().cost_usd == pytest.approx(0.85)


def test_the_cost_of_a_validation_is_not_that_of_a_step(watch: Callable[..., JudgeWatch]) -> None:
    judges = watch(budget_usd=4.0, price_in=1, price_out=1)
    judges.after_validation([trace(cost=2.0)])
    for step in (1, 2):
        judges.after_step(step, [trace(cost=0.5)])
        assert judges.stop is None
    judges.after_step(3, [trace(cost=0.5)])
    assert isinstance(judges.stop, BudgetSpent) and "a step costs about $0.50" in str(judges.stop)


def test_a_validation_that_the_budget_cuts_off_ends_the_run_and_is_repeated(watch: Callable[..., JudgeWatch]) -> None:
    judges = watch(budget_usd=4.0, price_in=1, price_out=1)
    judges.after_step(1, [trace(cost=0.5)])
    judges.after_validation([trace(cost=3.5), trace(None, "budget")])
    assert isinstance(judges.stop, BudgetSpent) and "repeated on resume" in str(judges.stop)


def test_sessions_that_the_budget_cut_off_are_no_outage(watch: Callable[..., JudgeWatch]) -> None:
    judges = watch(budget_usd=1.0, price_in=1, price_out=1)
    judges.after_step(1, [trace(cost=1.0), trace(None, "budget"), trace(None, "budget")])
    assert isinstance(judges.stop, BudgetSpent)


@pytest.mark.parametrize("cause", ["task_error", "policy", "too_long", "deadline"])
def test_drafts_that_fail_for_whatever_cause_stop_the_run(cause: str, watch: Callable[..., JudgeWatch]) -> None:
    judges = watch()
    judges.after_step(1, [trace(), trace(None, cause)])
    assert judges.stop is None  # half of them, which run.max_invalid_share allows
    with pytest.raises(
        InvalidDrafts, match=f"^Validation: .*67% of 3 drafts failed .judge/{cause} 2.*{cause} at the end"
    ):
        judges.after_validation([trace(), trace(None, cause), trace(None, cause)])
        assert judges.stop is not None  # saved first, then raised
        raise judges.stop
    fresh = watch()
    with pytest.raises(InvalidDrafts, match="before the first step"):
        fresh.after_validation([trace(None, cause)])
