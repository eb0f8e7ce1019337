"""The plan of a run: which roles are checked, what a step will cost, and which limit bounds it."""

from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from ditto.judging import plan as judge_plan
from ditto.judging.plan import calls_per_step, canary_calls, describe
from ditto.objectives import OBJECTIVES
from ditto.settings import BadConfig, Settings
from soul.errors import BadSettings
from soul.judge import GatewaySettings, Usage
from soul.judge.ledger import Ledger
from soul.judge.load import Load
from soul.judge.preflight import BadJudge
from soul.one_turn import OneTurnTask
from soul.testing import FakeOpenAI, Json, Text, Unauthorized
from tests.ditto.test_settings import config


def judged(name: str = "sotopia") -> Any:
    """A row whose task asks a judge once an episode and a partner three times."""
    calls = {"judge": 1.0, "partner": 3.0}
    return SimpleNamespace(task=SimpleNamespace(name=name, calls_per_episode=calls, calls_per_feedback=0.0))


GRPO, DITTO = OBJECTIVES["grpo"], OBJECTIVES["ditto"]
RULED: Any = SimpleNamespace(task=OneTurnTask)


def test_sessions_are_shared_out_over_the_tasks_of_the_rows() -> None:
    rows = [judged(), RULED, RULED, RULED]
    assert calls_per_step(rows, objective=DITTO, sessions=40) == {"judge": 20, "partner": 60, "feedback": 30}


def test_the_canary_is_planned_as_a_share_of_the_drafts_verdicts() -> None:
    rows = [judged(), RULED]
    sections = {"judge": {"model": "gpt", "canary": {"model": "bird", "price_in": 2.0, "price_out": 0.0}}}
    gateway = GatewaySettings.from_sections(sections)
    assert canary_calls(rows, 512, gateway) == {"judge.canary": pytest.approx(0.1 * 512 / 2)}
    assert gateway.asked("judge.canary") == (gateway.canary,)
    assert canary_calls(rows, 512, GatewaySettings.from_sections({"judge": {"model": "gpt"}})) == {}
    drift = GatewaySettings.from_sections({"judge": {"model": "gpt", "drift_every": 5}})
    assert canary_calls(rows, 512, drift) == {}
    for wanted, name in ((gateway, "judge.canary"), (drift, "judge.drift_every")):
        with pytest.raises(BadConfig, match=f"{name}: .* nothing to compare"):
            canary_calls([RULED], 512, wanted)


def checked(asked: dict[str, float], **sections: Any) -> tuple[list[Load], Any]:
    whole = config()
    for name, section in sections.items():
        OmegaConf.update(whole, name, section)
    return judge_plan.plan(Settings.from_config(whole), asked, 100.0, whole), whole  # type: ignore[arg-type]


def test_only_roles_that_will_be_asked_are_checked_and_their_form_is_kept() -> None:
    with FakeOpenAI(lambda r: Json({"ready": True}), supports=("json_object",)) as fake:
        section = {"base_url": fake.url, "api_key_env": "none"}
        plans, whole = checked({"judge": 8.0}, judge=section, partner={"model": "never-asked"})
    assert [plan.section for plan in plans] == ["judge"] and plans[0].latency_s is not None
    assert {request.body["model"] for request in fake.requests} == {"gpt-5-nano"}
    assert whole.judge.structured == "json_object"  # no worker has to find it out again


def test_a_partner_that_cannot_be_used_is_named_by_its_role() -> None:
    with FakeOpenAI(Json({"ready": True})) as good, FakeOpenAI(Unauthorized()) as bad:
        partner = {"base_url": bad.url, "api_key_env": "none"}
        judge = {"base_url": good.url, "api_key_env": "none"}
        with pytest.raises(BadJudge, match="Cannot use the partner \\(auth\\)"):
            checked({"judge": 1.0, "partner": 1.0}, judge=judge, partner=partner)


def test_every_member_of_a_jury_is_checked() -> None:
    with FakeOpenAI(lambda r: Json({"ready": True}) if r.body["model"] == "a" else Text("no JSON")) as fake:
        judge = {"base_url": fake.url, "api_key_env": "none", "jury": ["a", "b"]}
        with pytest.raises(BadJudge, match="b at "):
            checked({"judge": 1.0}, judge=judge)


def test_a_budget_that_is_spent_is_named_before_the_run(tmp_path: Any) -> None:
    ledger = Ledger()
    ledger.add("hitom", {"judge": Usage(calls=1, cost_usd=2.5)})
    ledger.save(tmp_path / "usage.json")
    section = {"price_in": 1, "price_out": 1, "budget_usd": 2.0}
    with pytest.raises(BadConfig, match=r"judge.budget_usd=2.00 is spent: .*usage.json records \$2.50"):
        checked({}, judge=section, run={"dir": str(tmp_path)})


def test_a_task_with_its_own_judge_is_planned_and_checked_apart() -> None:
    asked = calls_per_step([judged("coser"), judged()], objective=GRPO, sessions=20, own_judge=["coser"])
    assert asked == {"judge.by_task.coser": 10, "judge": 10, "partner": 60}
    with FakeOpenAI(lambda request: Json({"ready": True}), supports=("json_object",)) as fake:
        section = {"base_url": fake.url, "api_key_env": "none", "by_task": {"coser": {"model": "gpt-5.4"}}}
        plans, whole = checked({"judge.by_task.coser": 10, "judge": 10}, judge=section)
    assert [(plan.section, plan.endpoint.model) for plan in plans] == [
        ("judge.by_task.coser", "gpt-5.4"),
        ("judge", "gpt-5-nano"),
    ]
    assert {request.body["model"] for request in fake.requests} == {"gpt-5.4", "gpt-5-nano"}
    assert whole.judge.by_task.coser.structured == whole.judge.structured == "json_object"


def test_a_budget_needs_the_price_of_a_tasks_judge_only_where_it_is_asked() -> None:
    priced = {"budget_usd": 5.0, "price_in": 0.1, "price_out": 0.2, "by_task": {"coser": {"model": "gpt-5.4"}}}
    with FakeOpenAI(lambda request: Json({"ready": True})) as fake:
        section = {"base_url": fake.url, "api_key_env": "none", **priced}
        assert len(checked({"judge": 10}, judge=section)[0]) == 1
        with pytest.raises(BadSettings, match="Without a price: gpt-5.4"):
            checked({"judge.by_task.coser": 10}, judge=section)


def test_what_a_step_costs_and_what_bounds_it() -> None:
    tokens = 1000 * (3000 + judge_plan.TOKENS_OUT)

    def described(**judge: Any) -> str:
        endpoint = GatewaySettings.from_sections({"judge": judge}).judge
        return " ".join(describe([Load("judge", endpoint, 1000, 3e6, 1000 * judge_plan.TOKENS_OUT, 2.0)], steps=10))

    assert "price unknown" in described(model="mine") and "at least 31.2 s because of 2.00 s per call" in described()
    assert f"at least {60 * tokens / 2e6:.1f} s" in described(tokens_per_minute=2e6)
    assert "judge.requests_per_minute=500" in described(requests_per_minute=500)
    priced = (3000 * 0.05 + judge_plan.TOKENS_OUT * 0.4) / 1e3
    assert f"${priced:,.3f}" in described(price_in=0.05, price_out=0.4) and f"${priced:,.3f}" in described()
