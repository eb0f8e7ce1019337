"""A real pretrained model: a step of DITTO with LoRA on dialogues, its checkpoint, its evaluation, and a resume.

The README's first block is tested here, too: a file's tests run one after the other, and two runs of this model at once
would need 20 GiB.

SmolLM2-135M-Instruct has what tiny models with random weights lack: another architecture than the recipe's, a chat
template with a system prompt of its own, end tokens that the tokenizer does not name, and answers in words.
"""

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from soul.examples.command import write
from soul.examples.endpoint import answer
from soul.testing import FakeOpenAI
from tests.e2e.printed_blocks import run_block
from tests.e2e.run import DIALOGUES, ROOT, SENTINEL_KEY, Run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]  # busy machines: the waits below end first

ROWS = 2
LR = "actor_rollout_ref.actor.optim.lr"
ONE_STEP = [
    *("trainer.total_training_steps=1", "trainer.save_freq=1", "trainer.test_freq=1", "trainer.val_before_train=false"),
]


@pytest.fixture(scope="module")
def run(real_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run."""
    folder = tmp_path_factory.mktemp("real")
    for name in ("train", "val"):
        write(["mirrorbench"], ROWS, folder / f"{name}.parquet")
    with FakeOpenAI(answer) as judge:
        made = Run(folder / "out", folder / "train.parquet", folder / "val.parquet", real_model, judge.url, ONE_STEP)
        made.task, made.recipe = "mirrorbench", DIALOGUES  # the other side is replayed from the record
        made.start()
        code = made.wait(900)
    assert code == 0, made.tail()
    return made


def test_a_step_trains_dialogues_of_a_real_model(run: Run) -> None:
    metrics = run.metrics()[1]
    assert metrics["actor/updates"] >= 1 and 0 < metrics["actor/grad_norm"] < math.inf
    assert metrics["training/rollout_logprob_diff_mean"] < 1e-3  # float32 on both sides
    drafts = [trace["draft"] for trace in run.traces("step_000001")]
    assert len(drafts) == 4 and all(draft["valid"] for draft in drafts)
    assert max(turns_of(draft) for draft in drafts) > 1


def test_the_prompts_are_those_of_the_checkpoint_as_it_is_served(run: Run) -> None:
    tokenizer = AutoTokenizer.from_pretrained(run.dir / "global_step_1")
    hello = tokenizer.apply_chat_template([{"role": "user", "content": "Hello."}], tokenize=False)
    assert hello == "<|im_start|>system\n<|im_end|>\n<|im_start|>user\nHello.<|im_end|>\n"
    for trace in run.traces("step_000001"):
        (messages,) = trace["draft"]["seats"].values()
        first = next(number for number, message in enumerate(messages) if message["role"] == "assistant")
        ids = tokenizer.apply_chat_template(messages[:first], add_generation_prompt=True, return_dict=False)
        assert trace["sequences"][0]["prompt_tokens"] == len(ids)


def test_the_exported_model_is_the_trained_one(run: Run, real_model: Path) -> None:
    folder = run.dir / "global_step_1"
    merged = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    base = AutoModelForCausalLM.from_pretrained(real_model, dtype=torch.float32)
    ids = AutoTokenizer.from_pretrained(folder)("The florist opens the shop at six.", return_tensors="pt")
    with torch.no_grad():
        before = base(**ids).logits
        adapted = PeftModel.from_pretrained(base, folder / "lora_adapter")(**ids).logits
        after = merged(**ids).logits
    assert (after - adapted).abs().max() < 1e-3 < (after - before).abs().max()


def test_an_evaluation_of_the_checkpoint_is_the_validation_of_the_run(run: Run, tmp_path: Path) -> None:
    """Greedy, so every turn of every dialogue is the same words: the model reads the same context in both."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "JUDGE_"))}
    with FakeOpenAI(answer) as judge:
        environment = {
            **known,
            "PLATFORM": "cpu",
            "ACTOR_MODEL_PATH": str(run.dir / "global_step_1"),
            "TASKS": str(run.val),
            "OUTPUT_DIR": str(tmp_path),
            "EXPERIMENT_NAME": "real",
            "OPENAI_BASE_URL": judge.url,
            "OPENAI_API_KEY": SENTINEL_KEY,
            "HF_HUB_OFFLINE": "1",
        }
        words = ["policy.temperature=0", "policy.max_output_tokens=96", "--max-prompt-tokens", "1536"]
        command = ["bash", str(ROOT / "recipe/ditto/eval.sh"), "local", *words]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=600)
    (file,) = tmp_path.glob("**/samples.jsonl")
    evaluated = {sample["row"]: sample["draft"] for sample in map(json.loads, file.open())}
    validated = {trace["row"]: trace["draft"] for trace in run.traces("val_000001")}
    assert len(evaluated) == ROWS
    assert {row: draft["seats"] for row, draft in evaluated.items()} == {
        row: draft["seats"] for row, draft in validated.items()
    }


@pytest.fixture(scope="module")
def resumed(run: Run) -> Run:
    """The same run after a second step, with a tenth of the learning rate."""
    with FakeOpenAI(answer) as judge:
        run.judge_url = judge.url
        run.start(f"{LR}=1e-4", "trainer.total_training_steps=2", "trainer.test_freq=-1", "data.max_turn_length=16")
        code = run.wait(600)
    assert code == 0, run.tail()
    return run


def test_a_resumed_run_goes_on_from_its_adapter_at_the_new_learning_rate(resumed: Run) -> None:
    """AdamW moves no weight by more than about the learning rate; a new adapter would differ by 0.04."""
    assert f"from the next step on: {LR} was 0.001 and is 0.0001" in resumed.log.read_text(errors="replace")
    first, second = (
        load_file(resumed.dir / f"global_step_{step}" / "lora_adapter" / "adapter_model.safetensors") for step in (1, 2)
    )
    begun = max(weight.abs().max().item() for name, weight in first.items() if "lora_B" in name)  # was 0
    moved = max((second[name] - weight).abs().max().item() for name, weight in first.items())
    assert 5e-4 < begun < 1.1e-3 and 5e-5 < moved < 1.1e-4
    assert resumed.metrics()[2]["actor/lr"] == pytest.approx(1e-4)
    assert resumed.metrics()[2]["training/rollout_logprob_diff_mean"] < 1e-3


def test_a_resume_with_another_lora_alpha_is_refused_before_an_engine_starts(resumed: Run) -> None:
    before = len(resumed.log.read_text(errors="replace"))
    resumed.start("actor_rollout_ref.model.lora_alpha=32", "trainer.total_training_steps=3")
    assert resumed.wait(120) != 0
    said = resumed.log.read_text(errors="replace")[before:]
    assert "lora_alpha=32: the checkpoint" in said and "was trained with lora_alpha=16" in said
    assert "Ray" not in said and resumed.tracked_step() == 2


def turns_of(draft: dict[str, Any]) -> int:
    return sum(message["role"] == "assistant" for messages in draft["seats"].values() for message in messages)


def test_without_gpu_key_and_data_a_real_model_is_trained_evaluated_and_shown(real_model: Path, tmp_path: Path) -> None:
    shown = run_block("nothing", tmp_path, real_model)
    steps = [json.loads(line) for line in (tmp_path / "outputs/ditto-rl-hitom/metrics.jsonl").read_text().splitlines()]
    assert max(step["step"] for step in steps) == 1
    assert (tmp_path / "outputs/ditto-rl-hitom/global_step_1/config.json").is_file()
    assert "ditto-rl-hitom" in shown and len(list((tmp_path / "outputs").glob("*/results.json"))) == 1
