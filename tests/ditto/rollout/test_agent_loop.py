"""Which episodes an objective has played, and which sequences it makes of them; the session itself is a stand-in."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

import ditto.rollout.agent_loop as agent_loop
from ditto.batch.sequence_record import SequenceRecord
from ditto.objectives import objective
from ditto.policies import SelfPlaySettings, policies_of
from ditto.rollout.agent_loop import SoulAgentLoop
from ditto.rollout.token_seat import TokenSeat
from ditto.run.live_traces import open_live
from ditto.settings import RunSettings, Settings
from soul import examples
from soul.files.trace_files import trace_files
from soul.policy import Players
from soul.record import read_records
from soul.rows.task_files import TaskRow
from soul.session import Attempt, Session
from soul.task_types import Verdict
from soul.tasks.sotopia import Sotopia

EXAMPLE = examples.load("hitom")
KINDS = {
    "grpo": ["draft"],
    "ditto": ["draft", "refined_base", "refined_feedback"],
    "ditto_no_feedback_loss": ["draft", "refined_base"],
    "ditto_refined_only": ["refined_base"],
    "sdpo_token": ["draft"],
    "on_policy_distillation": ["draft"],
}


def attempt(reward: float | None) -> Attempt:
    """An episode of one seat and one turn; without a reward it failed."""
    seat = object.__new__(TokenSeat)
    tokens: dict[str, Any] = {"prompt_ids": [1, 2, 3], "base_prompt_ids": [1, 2], "response_ids": [4, 5]}
    tokens |= {"response_mask": [1, 1], "response_logprobs": [-0.5, -0.5]}
    seat.sequences = [SequenceRecord("draft", "", "", True, turns=2, tokens=2, **tokens)]
    verdict = None if reward is None else Verdict(reward, {})
    return Attempt(Players(lambda _name: seat, {"policy": seat}), verdict=verdict)


def play(
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    draft: float | None,
    refined: float | None,
    split: str = "train",
    run_dir: str = "unused",
) -> tuple[bool, list[dict[str, Any]]]:
    """Whether the session was asked to refine, and the record of each sequence."""
    asked: list[bool] = []

    async def run_session(*_arguments: Any, refine: bool, contexts: bool, **_: Any) -> Session:
        assert contexts == (name == "sdpo_token"), "only a teacher that reads the feedback needs prompts with it"
        asked.append(refine)
        return Session(
            "hitom", EXAMPLE.row(0), 1, attempt(draft), refined=attempt(refined) if refine and refined else None
        )

    def gateway(*_: str) -> None:
        return None

    monkeypatch.setattr(agent_loop, "run_session", run_session)
    monkeypatch.setattr(agent_loop, "_gateway", gateway)
    monkeypatch.setattr(agent_loop, "restore_row", lambda *_: TaskRow(EXAMPLE.task, EXAMPLE.row(0), "rows.parquet", 0))
    settings = Settings(objective=objective(name), run=RunSettings(dir=run_dir))
    monkeypatch.setattr(Settings, "from_config", classmethod(lambda cls, _config: settings))
    loop = object.__new__(SoulAgentLoop)
    loop.config = SimpleNamespace(data=SimpleNamespace(max_feedback_length=8))
    loop.rollout_config, loop.tokenizer = SimpleNamespace(prompt_length=8), SimpleNamespace(eos_token_id=0)
    fields = {"data_source": "hitom", "row": {}, "split": split, "uid": "p", "session_id": 3, "global_steps": 1}
    outputs = asyncio.run(loop.run({}, **fields))
    return asked[0], [output.extra_fields["ditto"] for output in outputs]


@pytest.mark.parametrize("name", KINDS)
def test_the_sequences_of_an_objective_are_played_and_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refines, records = play(name, monkeypatch, draft=0.25, refined=0.75)
    assert refines == (KINDS[name] != ["draft"])
    assert [record["kind"] for record in records] == KINDS[name]
    assert {(record["task"], record["draft_reward"]) for record in records} == {("hitom", 0.25)}
    rewards = [SequenceRecord(**record).reward for record in records]
    assert rewards == [0.25 if kind == "draft" else 0.75 for kind in KINDS[name]]


def test_validation_plays_drafts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    refines, records = play("rltf_sd", monkeypatch, draft=0.25, refined=0.75, split="val")
    assert not refines and [record["kind"] for record in records] == ["draft"]


def test_a_finished_session_is_appended_to_the_live_traces_but_not_a_validation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    open_live(tmp_path)
    for split in ("train", "val", "train"):
        play("ditto", monkeypatch, draft=0.25, refined=0.75, split=split, run_dir=str(tmp_path))
    (file,) = trace_files(tmp_path / "traces")
    records = [line.record for line in read_records(file.path)]
    assert file.step == 1 and [(record.session, len(record.sequences)) for record in records] == [("p_3", 3)] * 2


def test_each_side_of_a_play_is_its_policys(tmp_path: Path) -> None:
    policies = {"user": {"seats": ["policy"], "objective": "ditto"}, "assistant": {"seats": ["partner"]}}
    config = OmegaConf.create({"policies": policies, "algorithm": {"objective": "grpo"}})
    for turn_steps, step, learners in ((None, 1, ["user", "assistant"]), (1, 2, ["assistant"])):
        schedule = SelfPlaySettings(turn_steps=turn_steps)
        settings = Settings(
            objective=objective("grpo"),
            run=RunSettings(dir=str(tmp_path)),
            policies=policies_of(config),
            self_play=schedule,
        )
        row = TaskRow(Sotopia(seats="both"), examples.load("sotopia").row(0), "rows.parquet", 0)
        asked = agent_loop._sides(settings, row, step, lambda each: each.refines)
        assert asked == ({""} if "user" in learners else set()), "a policy that rests gets no second attempt"
        sides = [Session("sotopia", row.row, step, attempt(0.25), refined=attempt(0.5)) for _ in range(2)]
        sides[1].side, sides[0].others = "partner", [sides[1]]
        loop: Any = object.__new__(SoulAgentLoop)
        loop.settings, loop.config = settings, SimpleNamespace(data=SimpleNamespace(max_feedback_length=8))
        loop.rollout_config, loop.tokenizer = SimpleNamespace(prompt_length=8), SimpleNamespace(eos_token_id=0)
        outputs = [asyncio.run(loop._outputs(side, row, "p", 3, step, validate=False)) for side in sides]
        found = [[output.extra_fields["ditto"] for output in of_side] for of_side in outputs]
        assert [{(r["policy"], r["prompt"], r["session"]) for r in of_side} for of_side in found] == [
            {("user", "p", "p_3")},
            {("assistant", "p:partner", "p_3:partner")},
        ]
        assert [r["kind"] for r in found[0]] == (KINDS["ditto"] if "user" in learners else ["none"])
        assert [r["kind"] for r in found[1]] == ["draft"]
