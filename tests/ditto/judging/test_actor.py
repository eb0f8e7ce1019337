"""One actor asks the judges for a run: four worker processes share its cap, rate, budget, cache and keys.

The endpoint is a real HTTP server in this process; it counts what is in flight at the same time, whoever sent it.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from ditto.judging import actor as judge_actor
from ditto.judging.watch import BudgetSpent, InvalidDrafts, JudgeOutage, JudgeWatch
from ditto.run.alarms import raise_alarms
from ditto.settings import Settings
from soul.judge import GatewaySettings, Usage
from soul.judge.ledger import Ledger
from soul.record import AttemptRecord, Failure, SessionRecord
from soul.testing import FakeOpenAI, Json, Refusal, Unauthorized
from soul.testing.replies import ChatRequest, Reply
from tests.ditto.test_settings import config

pytestmark = pytest.mark.e2e  # real Ray actors

WORKERS, CALLS = 4, 25
KEY = "sk-sentinel-of-the-driver"
OF_A_NODE = {
    "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    "OPENAI_API_KEY": "sk-of-the-node",
    "ANOTHER_KEY": "sk-of-the-node",
    "JUDGE_MODEL_NAME": "the-node's",
}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


@ray.remote(num_cpus=1)
class Worker:
    """An agent-loop worker's part: a gateway whose requests the run's actor sends."""

    async def ask(self, settings_json: str, number: int, calls: int) -> dict[str, int]:
        """How many calls ended how."""
        import asyncio

        from pydantic import BaseModel

        from soul.errors import JudgeFailure

        gateway = judge_actor.remote_gateway(GatewaySettings.model_validate_json(settings_json))

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


def stop(actor: Any) -> None:
    """End an actor, and wait until its name is free."""
    ray.kill(actor)
    while judge_actor.NAME in ray.util.list_named_actors():
        time.sleep(0.01)


def run(
    workers: list[Any], fake: FakeOpenAI, calls: int = CALLS, cache_dir: Path | None = None, **judge: Any
) -> tuple[Counter[str], Any]:
    """All workers ask at the same time; outcomes over all of them, and the limits' state."""
    section = {"model": "fake", "base_url": fake.url, "api_key_env": "none", "structured": "json_schema", **judge}
    settings = GatewaySettings.from_sections({"judge": section})
    actor = judge_actor.start(settings, cache_dir=cache_dir)
    settings_json = settings.model_dump_json()
    try:
        outcomes: Counter[str] = Counter()
        for found in ray.get([worker.ask.remote(settings_json, n, calls) for n, worker in enumerate(workers)]):
            outcomes.update(found)
        return outcomes, judge_actor.state()
    finally:
        stop(actor)


def test_the_cap_and_the_budget_hold_over_all_workers(workers: list[Any]) -> None:
    with FakeOpenAI(Json({"score": 1}, delay=0.02)) as fake:
        # The fake counts words as tokens; the price makes a call cost several cents.
        outcomes, state = run(workers, fake, concurrency=4, price_in=1000.0, price_out=1000.0, budget_usd=1.0)
    assert outcomes["ok"] + outcomes["budget"] == WORKERS * CALLS
    assert outcomes["budget"] > 0 and len(fake.requests) == outcomes["ok"]
    assert fake.peak == 4 and state.spent_usd >= 1.0


def test_equal_questions_of_all_workers_cost_one_call_and_a_restart_pays_none_again(
    workers: list[Any], tmp_path: Path
) -> None:
    with FakeOpenAI(Json({"score": 1}, delay=0.05)) as fake:
        for _ in range(2):
            outcomes, _ = run([workers[0], workers[0]], fake, cache_dir=tmp_path)
            assert outcomes == {"ok": 2 * CALLS}
        # The two calls of the one worker have other numbers: 0 and 1.
        assert len(fake.requests) == 2 * CALLS


def test_a_session_that_gives_up_counts_what_its_request_cost_and_frees_its_place(tmp_path: Path) -> None:
    import asyncio

    from soul.testing import Hang

    async def give_up(text: str) -> Usage:
        gateway = judge_actor.remote_gateway(GatewaySettings.model_validate_json(text))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(gateway.partner.chat([{"role": "user", "content": "Hello"}]), 1.0)
        return gateway.partner.usage

    with FakeOpenAI(lambda request: Hang(60) if request.number == 0 else Json({"n": 1})) as fake:
        judge = {"model": "fake", "base_url": fake.url, "api_key_env": "none", "price_in": 1e3, "price_out": 1e3}
        settings = GatewaySettings.from_sections({"judge": {**judge, "concurrency": 1}})
        actor = judge_actor.start(settings)
        try:
            usage = asyncio.run(give_up(settings.model_dump_json()))
            assert usage.requests == usage.unpriced == 1 and usage.cost_usd == judge_actor.state().spent_usd > 0
            gateway = judge_actor.remote_gateway(settings)
            assert asyncio.run(gateway.partner.chat([{"role": "user", "content": "Hello"}])) == '{"n": 1}'
        finally:
            stop(actor)


def test_calls_in_flight_fail_with_the_cause_when_the_actor_dies_and_the_run_stops(
    workers: list[Any], tmp_path: Path
) -> None:
    section = {"model": "m", "api_key_env": "none", "structured": "json_schema"}
    with FakeOpenAI(Json({"score": 1}, delay=5.0)) as fake:
        made = Settings.from_config(config(run__dir=str(tmp_path), judge={**section, "base_url": fake.url}))
        actor, judges = judge_actor.start(made.gateway), JudgeWatch(made)
        asked = workers[0].ask.remote(made.gateway.model_dump_json(), 0, 3)
        while len(fake.requests) < 3:
            time.sleep(0.01)
        stop(actor)
        assert ray.get(asked) == {"outage": 3}
    judges.after_step(4, [trace(), trace(None, "outage")])
    assert isinstance(judges.stop, JudgeOutage)
    assert "Step 4: the run's judge actor has died" in str(judges.stop) and "checkpoint" in str(judges.stop)


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
            stop(running.pop())
        section = {"model": "m", "base_url": "http://j", **judge}
        made = JudgeWatch(Settings.from_config(config(run__dir=str(tmp_path), judge=section)))
        running.append(judge_actor.start(made.settings.gateway))
        return made

    yield make
    stop(running.pop())


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


def test_a_tripped_breaker_stops_the_run_whatever_the_share(
    watch: Callable[..., JudgeWatch], workers: list[Any]
) -> None:
    with FakeOpenAI(Unauthorized()) as fake:  # no pause helps against a wrong key, so it trips at once
        judges = watch(base_url=fake.url, api_key_env="none", max_attempts=1)
        ray.get(workers[0].ask.remote(judges.settings.gateway.model_dump_json(), 0, 20))
    judges.after_step(3, [trace() for _ in range(8)])
    assert isinstance(judges.stop, JudgeOutage)
    for part in ("Step 3", "m at http://127.0.0.1", "is down: 100% of 20 requests failed (auth 20)"):
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


@pytest.mark.parametrize("cause", ["task_error", "policy"])
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


def test_a_judge_that_changes_during_a_run_raises_the_alarm_with_both_verdicts(
    watch: Callable[..., JudgeWatch], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fell, refuses = 0, False

    def grade(request: ChatRequest) -> Reply:
        if refuses and "kettle" in request.text:
            return Refusal()
        return Json({"reason": f"{fell} points fell.", "score": 2 + len(request.data["reply"]) % 7 - fell})

    sotopia = trace()
    sotopia.task = "sotopia"
    asked, found = [], {}
    with FakeOpenAI(grade) as fake:
        judge = {"base_url": fake.url, "api_key_env": "none", "price_in": 1.0, "price_out": 1.0, "max_reasks": 0}
        judges = watch(drift_every=2, **judge)
        for step in range(1, 7):
            fell, refuses = 2 * (step in (3, 4)), step == 6
            if step == 5:
                judges = watch(drift_every=2, **judge)  # resumed: the first grades are those of the first start
            found[step] = judges.after_step(step, [trace(), sotopia])
            asked.append(len(fake.requests))
        assert judge_actor.state().spent_usd > 0
    assert asked == [12, 24, 24, 36, 36, 48]
    changes = {
        step: numbers["ditto/drift/change"] for step, numbers in found.items() if "ditto/drift/change" in numbers
    }
    assert changes == {1: 0.0, 2: 0.0, 4: -2.0, 6: 0.0} and found[6]["ditto/drift/failed/refusal"] == 3 / 12
    raised = {step: raise_alarms(step, "grpo", numbers, {})["alarm/judge_drift"] for step, numbers in found.items()}
    assert [step for step, alarm in raised.items() if alarm] == [4]
    said = [record.getMessage() for record in caplog.records if "Step 4" in record.getMessage()]
    assert "0 points fell." in said[0] and "2 points fell." in said[0]
    checks = json.loads((tmp_path / "judge_drift.json").read_text())["checks"]
    assert [check["step"] for check in checks] == [1, 2, 4, 6] and checks[2]["text"] in said[0]
    usage = Ledger.load(tmp_path / "usage.json").by_role()["drift"]
    assert usage.calls == usage.requests == 48 and usage.failures == {"refusal": 3}
    assert usage.cost_usd > 0 and not usage.cache_hits


def test_no_drift_is_checked_without_a_judge_or_the_setting(watch: Callable[..., JudgeWatch]) -> None:
    for settings in ({}, {"drift_every": 1}):
        numbers = watch(**settings).after_step(1, [trace()])
        assert not [name for name in numbers if "drift" in name]
