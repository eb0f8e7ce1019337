"""examples/trl_ditto.py: TRL's trainer gets the gradient that the one-file example computes from the same samples.

verl imports TRL's value heads where TRL is installed, and fails with TRL 1.x, which has none. So TRL lies beside the
environment: the last test installs it into a folder, and runs the others with it.
"""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, TrainerCallback

from recipe.demo import tiny_model
from soul.function_task import PromptRow, function_task
from soul.rows.task_files import TaskRow

try:
    import trl
except ImportError:
    trl = None

needs_trl = pytest.mark.skipif(trl is None, reason="the last test runs it")
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def reward(row: PromptRow, text: str) -> float:
    return sum(map(ord, text)) % 7 / 6


def critique(row: PromptRow, text: str) -> str:
    return f"Say it in fewer than {len(text)} letters."


class Gradients(TrainerCallback):  # type: ignore[misc]
    """Keep each step's gradients."""

    found: dict[str, torch.Tensor]

    def on_pre_optimizer_step(self, *_: Any, model: torch.nn.Module, **__: Any) -> None:
        self.found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@needs_trl
def test_the_gradient_of_a_step(tmp_path: Path) -> None:
    one_file, trl_ditto = example("one_file"), example("trl_ditto")
    tiny_model.build(tmp_path / "model", ["a corpus of a few words"] * 10)
    task = function_task("letters", reward, critique)()
    rows = [
        TaskRow(task, PromptRow.model_validate({"index": n, "prompt": f"Say {n}."}), f"row {n}", n) for n in range(2)
    ]
    args = trl.GRPOConfig(
        output_dir=str(tmp_path / "out"),
        max_steps=1,
        num_generations=9,
        per_device_train_batch_size=9,
        gradient_accumulation_steps=2,  # two prompts of three sessions, in shuffled micro-batches
        max_completion_length=12,
        max_grad_norm=1e9,
        bf16=False,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    kept = Gradients()
    trainer = trl_ditto.DittoTrainer(str(tmp_path / "model"), rows, args, options={"feedback_coef": 0.7})
    batches: list[dict[str, Any]] = []
    make: Callable[..., dict[str, Any]] = trainer._generate_and_score_completions

    def keep(inputs: Any) -> dict[str, Any]:
        batches.append(make(inputs))
        return batches[-1]

    trainer._generate_and_score_completions = keep
    trainer.add_callback(kept)
    trainer.train()

    (made,) = batches
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    attempts: dict[tuple[str, bool], Any] = {}
    sequences = []
    for number, described in enumerate(trainer.sequences):
        refined = described.kind != "draft"
        score = described.refined_reward if refined else described.draft_reward
        attempt = attempts.setdefault(
            (described.session, refined), one_file.Attempt(int(described.prompt), refined, score)
        )
        prompt = made["prompt_ids"][number][made["prompt_mask"][number].bool()]
        response = made["completion_ids"][number][made["completion_mask"][number].bool()]
        everything = torch.ones(len(response), dtype=torch.bool)
        sequence = one_file.Sequence_(attempt, described.kind == "refined_feedback", prompt, response, everything)
        sequence.old = one_file.log_probs(model, sequence).detach()
        sequences.append(sequence)
    assert len(sequences) == 18 and len({a.reward for a in attempts.values()}) > 1
    loss = one_file.backward(model, sequences, feedback_coef=0.7)
    assert sum(entry["loss"] for entry in trainer.state.log_history if "loss" in entry) == pytest.approx(loss, abs=1e-5)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            assert (kept.found[name] - parameter.grad).norm() <= 1e-4 * parameter.grad.norm() + 1e-9, name


@needs_trl
def test_a_group_of_part_of_a_session_is_refused(tmp_path: Path) -> None:
    args = trl.GRPOConfig(output_dir=str(tmp_path), num_generations=8, bf16=False, use_cpu=True, report_to=[])
    with pytest.raises(ValueError, match="multiple of 3"):
        example("trl_ditto").DittoTrainer("unused", [], args)


@pytest.mark.network
@pytest.mark.skipif(trl is not None, reason="trl is installed")
def test_with_trl_beside_the_environment(tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "pip", "install", "--quiet", "--no-deps", "--target", tmp_path, "trl==1.16.0"], check=True)
    known = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "", __file__]
    done = subprocess.run(command, env=known, cwd=EXAMPLES.parent, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0 and "2 passed, 1 skipped" in done.stdout, done.stdout[-5000:]
