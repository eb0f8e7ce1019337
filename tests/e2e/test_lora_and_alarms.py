"""LoRA on real components, and what happens when the judge or the rollout engine goes away.

First run: the judge dies after step 1; the run saves a checkpoint of step 2 and stops. Second run, the same command
with a healthy judge: resumes from it, validates with the resumed adapter, trains on; then its rollout engine is killed
and the watchdog ends the run with the cause.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agents.testing import ChatRequest, FakeOpenAI, Json, Reply, ServerError
from tests.e2e.run import ROOT, Run, greedy_answers

pytestmark = pytest.mark.slow

GOOD = Json({"critique": "Ask what the character saw last.", "ready": True})


class Judge:
    """Answers until the run has written its first step."""

    def __init__(self, run: Run) -> None:
        self.metrics = run.dir / "metrics.jsonl"

    def __call__(self, request: ChatRequest) -> Reply:
        return ServerError(status=503) if self.metrics.exists() else GOOD


@pytest.fixture(scope="module")
def run(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    run = Run(
        tmp_path_factory.mktemp("lora"), world / "train.parquet", world / "heldback.parquet", world / "warm", "unset"
    )
    run.overrides = [
        "trainer.total_training_steps=40",
        "trainer.save_freq=100",
        "trainer.test_freq=-1",
        "trainer.val_before_train=false",
        "data.val_max_samples=8",
        "actor_rollout_ref.actor.optim.lr=1e-2",
        "judge.max_attempts=1",
        "judge.max_reasks=0",
    ]
    return run


def test_an_outage_of_the_judge_saves_and_stops(run: Run) -> None:
    with FakeOpenAI(Judge(run)) as judge:
        run.judge_url = judge.url
        run.start()
        assert run.wait(420) not in (0, None)
        log = run.log.read_text(errors="replace")
    # A session whose policy says nothing asks no judge, so it need not be all of them.
    assert re.search(r"JudgeOutage: Step 2: the judge failed in \d+% of 8 sessions", log)
    assert run.judge_url in log and "server_error" in log
    assert run.tracked_step() == 2


def test_the_checkpoint_is_a_merged_model_with_its_adapter_beside(run: Run, world: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder = run.dir / "global_step_2"
    merged = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    base = AutoModelForCausalLM.from_pretrained(world / "warm", dtype=torch.float32)
    ids = torch.arange(3, 40)[None]
    before = base(ids).logits
    adapted = PeftModel.from_pretrained(base, folder / "lora_adapter")(ids).logits
    assert json.loads((folder / "lora_adapter" / "adapter_config.json").read_text())["r"] == 32
    torch.testing.assert_close(merged(ids).logits, adapted, atol=1e-4, rtol=1e-4)
    assert (adapted - before).abs().max() > 1e-3, "the adapter was not trained"


def test_vllm_takes_the_checkpoint_as_a_model_path(run: Run, tmp_path: Path) -> None:
    """The merged folder of the LoRA run plays three turns on a vLLM engine of its own."""
    environment = {**os.environ, "VERL_PLATFORM": "cpu", "OMP_NUM_THREADS": "1", "TORCH_COMPILE_DISABLE": "1"}
    environment |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "HF_HUB_OFFLINE": "1"}
    command = [
        sys.executable,
        "-m",
        "tests.e2e.three_turns",
        str(run.dir / "global_step_2"),
        str(tmp_path / "played.json"),
    ]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300, env=environment)
    assert len(json.loads((tmp_path / "played.json").read_text())["calls"]) == 6


def test_resume_generates_with_the_adapter_and_a_dead_engine_ends_the_run(run: Run) -> None:
    with FakeOpenAI(GOOD) as judge:
        run.judge_url = judge.url
        run.start("trainer.val_before_train=true")
        run.until(lambda: (run.dir / "traces" / "step_000004.jsonl").exists(), 420, "step 4")
        engines = [p for p in run.descendants() if "EngineCore" in " ".join([p.name(), *p.cmdline()])]
        assert engines, [p.name() for p in run.descendants()]
        engines[0].kill()
        code = run.wait(120)
    assert code != 0
    cause = json.loads((run.dir / "failure.json").read_text())["cause"]
    assert "rollout server 0 died" in cause, cause
    traces = run.traces("val_000002")
    prompts = [t["draft"]["seats"]["policy"][0]["content"] for t in traces]
    answers = [t["draft"]["seats"]["policy"][-1]["content"] for t in traces]
    assert answers == greedy_answers(run.dir / "global_step_2", prompts, 32)
