"""Objectives on real components: Ray, FSDP2 workers, vLLM, a judge behind HTTP.

Whether a loss is right is shown in tests/ditto/objectives; here, that a run plays, trains, reports and resumes with it.
Those here differ most in what a run does. The others are trained by the tests of other subjects:
`test_every_objective_is_trained_somewhere` says where.
"""

import math
from pathlib import Path
from typing import Any

import pytest

from ditto.objectives import OBJECTIVES
from soul.testing import ChatRequest, FakeOpenAI, Json
from tests.e2e.run import Run
from tests.metric_names import undocumented

pytestmark = pytest.mark.e2e

CRITIQUE = {"critique": "You answered where the thing is now. Ask what the character saw last.", "ready": True}
PROMPTS, N = 4, 2


# Objective -> the test in this folder whose run has it, besides the recipe's own, ditto.
TRAINED_BY = {
    "grpo": "test_stopped_runs.py",
    "ditto_no_feedback_loss": "test_stopped_runs.py",
    "sdpo_token_grpo": "test_stopped_runs.py",
    "erl": "test_async.py",
    "critique_grpo": "test_two_nodes.py",
    "ditto_refined_only": "test_built_files.py",
    "sdpo_token": "test_lost_sync.py",
    "rltf_sd": "test_objectives.py",
    "sdpo_logits": "test_objectives.py",
    "sdpo_logits_grpo": "test_objectives.py",
}


def judge(_request: ChatRequest) -> Json:
    return Json(CRITIQUE)


def new_run(folder: Path, world: Path, url: str, objective: str, *overrides: str) -> Run:
    run = Run(folder, world / "train.parquet", world / "heldback.parquet", world / "warm", url)
    run.overrides = [
        f"algorithm.objective={objective}",
        "trainer.save_freq=-1",
        "trainer.test_freq=-1",
        "trainer.val_before_train=false",
        "data.val_max_samples=4",
        *overrides,
    ]
    return run


def of_steps(run: Run) -> list[dict[str, Any]]:
    return [numbers for step, numbers in sorted(run.metrics().items()) if step > 0]


def test_every_objective_is_trained_somewhere() -> None:
    """All but those that distil other checkpoints; tests/ditto/test_worker_runs.py has them, on real workers."""
    assert set(TRAINED_BY) | {"ditto"} == {name for name, each in OBJECTIVES.items() if each.teacher != "experts"}
    for name, file in TRAINED_BY.items():
        text = (Path(__file__).parent / file).read_text(encoding="utf-8")
        assert f'"algorithm.objective={name}"' in text or f'"{name}", "trainer' in text, (name, file)


def test_idle_groups_are_skipped(world: Path, tmp_path: Path) -> None:
    """RLTF-SD has parts for each turn and a distillation, so a group can teach by one of them alone.

    A step has one update here, on two ranks, so no pass computes pi_old: the update reports what that would measure.
    """
    with FakeOpenAI(judge) as endpoint:
        run = new_run(tmp_path, world, endpoint.url, "rltf_sd", "trainer.total_training_steps=2")
        run.overrides += [
            "trainer.n_gpus_per_node=2",
            "actor_rollout_ref.actor.ppo_mini_batch_size=4",
            "actor_rollout_ref.model.lora_rank=0",
            "actor_rollout_ref.rollout.temperature=0.3",  # some groups then have one answer, with and without feedback
            "algorithm.skip_idle=true",
        ]
        run.start()
        assert run.wait(420) == 0, run.tail()
    assert len(of_steps(run)) == 2
    assert sum(numbers["ditto/groups_idle"] for numbers in of_steps(run)) > 0
    assert "<html" in (run.dir / "report.html").read_text() and (run.dir / "traces" / "index.sqlite").exists()
    for step, numbers in enumerate(of_steps(run), start=1):
        assert not undocumented(numbers)
        assert numbers["actor/updates"] == 1
        assert numbers["actor/entropy"] > 0 and numbers["training/rollout_probs_diff_mean"] < 1e-2
        assert {key.split("/")[2] for key in numbers if key.startswith("actor/part/")} == {"draft", "second", "distill"}
        assert all(math.isfinite(value) for value in numbers.values())
        traces = run.traces(f"step_{step:06d}")
        assert len(traces) == PROMPTS * N
        assert all(trace["feedback"] and trace["refined"] for trace in traces)


def test_self_distillation_resumes_with_its_moving_teacher(world: Path, tmp_path: Path) -> None:
    """LoRA: the teacher is a second adapter of a few tensors, saved with the checkpoint and read again."""
    with FakeOpenAI(judge) as endpoint:
        run = new_run(tmp_path, world, endpoint.url, "sdpo_logits", "trainer.save_freq=1", "algorithm.sdpo.top_k=20")
        run.overrides += [
            "trainer.v1.trainer_mode=ditto_colocate_async",
            "actor_rollout_ref.actor.use_kl_loss=true",
            "actor_rollout_ref.actor.kl_loss_coef=0.0",
        ]
        run.start("trainer.total_training_steps=2")
        assert run.wait(420) == 0, run.tail()
        saved = [run.dir / f"global_step_{step}/actor/teacher_world_size_1_rank_0.pt" for step in (1, 2)]
        sizes = [path.stat().st_size for path in saved]
        assert sizes[0] == sizes[1] < 0.5 * (run.dir / "global_step_2" / "model.safetensors").stat().st_size
        assert saved[0].read_bytes() != saved[1].read_bytes()
        changed = ["algorithm.objective=sdpo_logits_grpo", "trainer.resume_changed=true"]
        run.start("trainer.total_training_steps=3", *changed)
        assert run.wait(420) == 0, run.tail()
    assert len(of_steps(run)) == 3
    for numbers in of_steps(run):
        assert numbers["ditto/share_taught"] == 1.0
        assert numbers["actor/part/distill/loss"] > 0
        assert numbers["actor/grad_norm"] > 0
        assert not undocumented(numbers)
    first, *_, last = [numbers["ditto/kl_start"] for numbers in of_steps(run)]
    assert first < 1e-4 < last  # at first only rounding: two forward passes of the same weights
