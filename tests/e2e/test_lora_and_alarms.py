"""LoRA on real components, and what happens when the judge or the rollout engine goes away.

First run: the judge dies after step 1; the run saves a checkpoint of step 2 and stops. Second run, the same command
with a healthy judge: resumes from it, validates with the resumed adapter, trains on; then its rollout engine is killed
and the watchdog ends the run with the cause. Last, `eval.sh local` evaluates the checkpoint.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from agents.examples.__main__ import write
from agents.examples.endpoint import answer
from agents.testing import ChatRequest, FakeOpenAI, Json, Reply, ServerError
from tests.e2e.run import ROOT, SENTINEL_KEY, Run, greedy_answers

pytestmark = pytest.mark.slow

SETS = ("stories", "opinions")  # a rule scores the ones, the judge the others
GOOD = Json({"critique": "Ask what the character saw last.", "ready": True})


class Judge:
    """Answers until the run has written its first step."""

    def __init__(self, run: Run) -> None:
        self.metrics = run.dir / "metrics.jsonl"

    def __call__(self, request: ChatRequest) -> Reply:
        return ServerError(status=503) if self.metrics.exists() else GOOD


@pytest.fixture(scope="module")
def run(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("lora")
    stories = pq.read_table(world / "heldback.parquet").slice(0, 8)
    pq.write_table(stories, folder / "stories.parquet")
    write(["humanual-opinion"], 4, folder / "opinions.parquet")
    run = Run(
        folder, world / "train.parquet", " ".join(f"{folder}/{name}.parquet" for name in SETS), world / "warm", ""
    )
    run.overrides = [
        "trainer.total_training_steps=40",
        "trainer.save_freq=100",
        "trainer.test_freq=-1",
        "trainer.val_before_train=false",
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


def test_resume_generates_with_the_adapter_and_a_dead_engine_ends_the_run(run: Run) -> None:
    with FakeOpenAI(answer) as judge:
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
    traces = [trace for trace in run.traces("val_000002") if trace["task"] == "hitom"]
    prompts = [t["draft"]["seats"]["policy"][0]["content"] for t in traces]
    answers = [t["draft"]["seats"]["policy"][-1]["content"] for t in traces]
    assert answers == greedy_answers(run.dir / "global_step_2", prompts, 32)


def test_an_evaluation_of_the_checkpoint_and_of_its_adapter_is_the_validation(run: Run, tmp_path: Path) -> None:
    """Same rows, same weights, greedy: what the trainer validated, `eval.sh local` finds; merged, and as an adapter."""
    folder = run.dir / "global_step_2"
    base = json.loads((folder / "lora_adapter" / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert base == str(run.model)
    known = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "JUDGE_"))}
    with FakeOpenAI(answer) as judge:
        environment = {
            **known,
            "PLATFORM": "cpu",
            "ACTOR_MODEL_PATH": f"{folder} {folder}/lora_adapter",
            "TASKS": str(run.val),
            "OUTPUT_DIR": str(tmp_path),
            "EXPERIMENT_NAME": "same",
            "OPENAI_BASE_URL": judge.url,
            "OPENAI_API_KEY": SENTINEL_KEY,
        }
        words = ["policy.temperature=0", "policy.max_output_tokens=32", "--max-prompt-tokens", "600"]
        command = ["bash", str(ROOT / "recipe/ditto/eval.sh"), "local", *words, "--", "--max-model-len", "1024"]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=420)
    validated = {(t["task"], t["row"]): t["draft"] for t in run.traces("val_000002")}
    assert len(validated) == 12
    metrics = run.metrics()[2]
    evaluations = sorted(path.parent for path in tmp_path.glob("same-*/results.json"))
    assert len(evaluations) == 2
    for evaluation in evaluations:
        samples = [json.loads(line) for line in (evaluation / "samples.jsonl").open()]
        found = {(sample["task"], sample["row"]): sample["draft"] for sample in samples}
        assert {key: words_of(draft) for key, draft in found.items()} == {
            key: words_of(draft) for key, draft in validated.items()
        }
        assert {key: draft["reward"] for key, draft in found.items()} == {
            key: draft["reward"] for key, draft in validated.items()
        }
        sets = json.loads((evaluation / "results.json").read_text())["sets"]
        assert sets["stories"]["mean"] == pytest.approx(metrics["val/hitom/reward"])
        assert sets["opinions"]["mean"] == pytest.approx(metrics["val/humanual-opinion/reward"])
    assert "run-global_step_2-lora_adapter" in (tmp_path / "same-models.md").read_text()
    running = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert not [line for line in running if " serve " in line and str(folder) in line], "a server was left behind"


def words_of(draft: dict[str, Any]) -> str:
    return str(draft["seats"]["policy"][-1]["content"])
