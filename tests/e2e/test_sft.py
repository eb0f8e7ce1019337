"""Supervised training as a user starts it: real torchrun, FSDP2, vLLM; killed and resumed, on one process and on two.

The corpus is the demo's stories, answered right, in two sources of which one counts twice.
"""

import gzip
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from soul import examples
from soul.rows.task_files import read_rows
from tests.e2e.run import ROOT, SENTINEL_KEY, greedy_answers
from tests.metric_names import undocumented

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]  # busy machines: the waits of a test end first

STEPS = 12
SMALL = [
    "data.default_train_role=assistant",
    "data.train_batch_size=16",
    "data.max_prompt_length=500",
    "data.max_response_length=100",
    "data.max_token_len_per_gpu=2048",
    "optim.lr=3e-3",
    "optim.lr_warmup_steps=2",
]


@pytest.fixture(scope="module")
def corpus(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """DATA_DIR with a training shard of two sources and a validation shard."""
    folder = tmp_path_factory.mktemp("corpus")
    example = examples.load("hitom")
    rows = []
    for row in read_rows([str(world / "train.parquet")])[:150]:
        said = {"role": "assistant", "content": example.player("oracle", row.row)([])}
        source = "even" if row.number % 2 == 0 else "odd"
        rows.append({"data_source": source, "messages": [*row.task.prompt(row.row), said]})
    pq.write_table(pa.Table.from_pylist(rows[:110]), folder / "train_shard_0.parquet", row_group_size=25)
    with gzip.open(folder / "more rows.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows[110:130])
    pq.write_table(pa.Table.from_pylist(rows[130:]), folder / "val_shard_0.parquet")
    return folder


def start(corpus: Path, model: Path, out: Path, name: str, *words: str, **variables: str) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        "PLATFORM": "cpu",
        "HF_HUB_OFFLINE": "1",
        "DATA_DIR": str(corpus),
        "TRAIN_FILES": f"{corpus}/train_shard_*.parquet '{corpus}/more rows.jsonl.gz':2",
        "OUTPUT_DIR": str(out),
        "EXPERIMENT_NAME": name,
        "ACTOR_MODEL_PATH": str(model),
        "TOTAL_TRAINING_STEPS": str(STEPS),
        "TEST_FREQ": "6",
        "SAVE_FREQ": "4",
        "N_GPUS": "1",
        "OPENAI_API_KEY": SENTINEL_KEY,
        **variables,
    }
    out.mkdir(exist_ok=True)
    command = ["bash", str(ROOT / "run_sft.sh"), *SMALL, *words]
    with (out / f"{name}.log").open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True)


def metrics(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").open()]


def close(one: list[dict[str, float]], other: list[dict[str, float]]) -> bool:
    """The same numbers step by step; ranks and micro-batches only change the order of sums."""
    keys = ("step", "train/loss", "train/grad_norm", "train/lr", "train/trained_tokens", "val/loss", "val/loss/even")
    return all(
        a.get(key) == (b.get(key) if key not in a else pytest.approx(b[key], rel=2e-4))
        for a, b in zip(one, other, strict=True)
        for key in keys
    )


@pytest.fixture(scope="module")
def straight(corpus: Path, world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run on one process."""
    out = tmp_path_factory.mktemp("sft")
    assert start(corpus, world / "base", out, "straight").wait(300) == 0, (out / "straight.log").read_text()[-3000:]
    return out / "straight"


def test_it_learns_and_leaves_a_model_path(straight: Path, corpus: Path) -> None:
    lines = metrics(straight)
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert lines[-1]["train/loss"] < 0.5 * lines[0]["train/loss"]
    assert not undocumented({name for line in lines for name in line})
    tested = [line for line in lines if "val/loss" in line]
    assert [line["step"] for line in tested] == [6, 12] and tested[1]["val/loss"] < tested[0]["val/loss"]
    assert {"val/loss/even", "val/loss/odd"} <= tested[0].keys()
    row = pq.read_table(corpus / "val_shard_0.parquet").to_pylist()[0]
    (answer,) = greedy_answers(straight / f"global_step_{STEPS}", [row["messages"][0]["content"]], 24)
    assert "<answer>" in answer  # the form is learnt
    log = straight.with_suffix(".log").read_text(errors="replace")
    assert SENTINEL_KEY not in log
    assert "fused_kernels_backend is chunked" in log  # the head that GPUs train with


def test_killed_twice_and_moved_from_two_processes_to_one_it_ends_as_one_that_was_not(
    straight: Path, corpus: Path, world: Path, tmp_path: Path
) -> None:
    """Packed, other micro-batches; killed with -9 after step 5, resumed from
    step 4, killed after step 9, resumed from step 8 on one process: the same numbers."""
    words = ["data.max_token_len_per_gpu=1500", "model.use_remove_padding=true", f"data.cache_dir={tmp_path}/cache"]
    folder, log = tmp_path / "again", tmp_path / "again.log"

    def go_on(ranks: int) -> subprocess.Popen[bytes]:
        return start(corpus, world / "base", tmp_path, "again", *words, N_GPUS=str(ranks))

    for killed_after in (5, 9):
        run = go_on(2)
        deadline = time.monotonic() + 300
        while not ((folder / "metrics.jsonl").exists() and len(metrics(folder)) >= killed_after):
            assert run.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.05)
        for process in [*psutil.Process(run.pid).children(recursive=True), psutil.Process(run.pid)]:
            process.send_signal(signal.SIGKILL)
        run.wait(30)
    assert go_on(1).wait(300) == 0, log.read_text()[-3000:]
    assert "resumes after step 4" in log.read_text() and "resumes after step 8" in log.read_text()
    assert close(metrics(folder), metrics(straight))
    assert not list((folder / ".partial").glob("*"))


def test_an_expert_is_distilled_into_a_lora_student(world: Path, tmp_path: Path) -> None:
    """`distill.sh` whole: answers, student, evaluation. Meanwhile the student's checkpoint is evaluated by vLLM."""
    stories = tmp_path / "stories.parquet"
    pq.write_table(pq.read_table(world / "heldback.parquet").slice(0, 16), stories)
    student = [*SMALL, "data.train_batch_size=8", "model.lora_rank=8", "model.lora_alpha=16", "optim.lr=1e-2"]
    student += ["trainer.total_training_steps=4", "trainer.save_freq=4"]
    student += ['trainer.rl_test_arguments=["policy.temperature=0","policy.max_output_tokens=32"]']
    environment = {
        **os.environ,
        "PLATFORM": "cpu",
        "HF_HUB_OFFLINE": "1",
        "EXPERTS": f"hitom:{world}/train.parquet={world}/warm",
        "ACTOR_MODEL_PATH": str(world / "warm"),
        "TASKS": str(stories),
        "OUTPUT_DIR": str(tmp_path),
        "EXPERIMENT_NAME": "distilled",
        "SAMPLES": "4",
        "ROWS": "40",
        "N_GPUS": "1",
        "SFT_ARGS": " ".join(student),
        "RL_TEST_FILES": str(stories),
        "RL_TEST_FREQ": "3",  # after step 3, before training goes on, and at the end
        "OPENAI_API_KEY": SENTINEL_KEY,
    }
    command = ["bash", str(ROOT / "recipe" / "ditto" / "distill.sh"), "policy.max_output_tokens=32"]
    with (tmp_path / "log.txt").open("wb") as log:
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=log, check=False, timeout=1200)
    assert done.returncode == 0, (tmp_path / "log.txt").read_text(errors="replace")[-3000:]
    out = tmp_path / "distilled"
    kept = pq.read_table(out / "data" / "train.parquet").to_pylist()
    assert len(kept) >= 8 and {row["reward"] for row in kept} == {1.0}
    for line in metrics(out / "student"):
        if line["step"] < 3:
            assert "val/rl_test_failed" not in line
        else:
            assert line["val/rl_test_failed"] == 0 and 0 <= line["val-core/stories/reward/mean@1"] <= 1
    for step in (3, 4):
        (results,) = (out / "student" / "rl_test").glob(f"step_{step:06d}-*/results.json")
        assert json.loads(results.read_text())["sets"]["stories"]["samples"] == 16
    left = {path.name for path in tmp_path.iterdir()} - {"distilled", "stories.parquet", "log.txt"}
    assert left <= {"hf_home", "wandb"}, left  # what the launchers set below OUTPUT_DIR
    folder = out / "student" / "global_step_4"
    adapter = json.loads((folder / "lora_adapter" / "adapter_config.json").read_text())
    assert adapter["r"] == 8 and adapter["base_model_name_or_path"] == str(world / "warm")
    table = (out / "eval-models.md").read_text()
    assert "warm" in table and "student" in table and "stories" in table
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and SENTINEL_KEY.encode() in p.read_bytes()]


def test_a_vision_language_model_is_trained_on_text(corpus: Path, world: Path, tmp_path: Path) -> None:
    """The recipe's architecture (Qwen3-VL), packed: a model path of its own class, with the loss of transformers."""
    from transformers import AutoModelForImageTextToText, AutoTokenizer

    model = vision_language_model(world / "base", tmp_path / "model")
    words = ["model.use_remove_padding=true", "trainer.total_training_steps=2", "trainer.test_freq=2"]
    words += ["trainer.save_freq=-1"]  # the end is saved all the same
    template = "{{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}" + AutoTokenizer.from_pretrained(model).chat_template
    (tmp_path / "brief.jinja").write_text(template)
    words += [f"model.chat_template={tmp_path}/brief.jinja"]
    assert start(corpus, model, tmp_path, "vl", *words).wait(300) == 0, (tmp_path / "vl.log").read_text()[-3000:]
    folder = tmp_path / "vl" / "global_step_2"
    trained, report = AutoModelForImageTextToText.from_pretrained(folder, output_loading_info=True)
    assert AutoTokenizer.from_pretrained(folder).chat_template == template  # what serves it renders as the training did
    assert type(trained).__name__ == "Qwen3VLForConditionalGeneration" and not report["missing_keys"]
    rows = pq.read_table(corpus / "val_shard_0.parquet").to_pylist()
    expected = mean_loss(trained.float(), AutoTokenizer.from_pretrained(folder), [row["messages"] for row in rows])
    assert metrics(tmp_path / "vl")[-1]["val/loss"] == pytest.approx(expected, rel=1e-4)


def mean_loss(model: Any, tokenizer: Any, conversations: list[list[dict[str, str]]]) -> float:
    """Mean cross-entropy of the answers' tokens and their ends, a conversation at a time."""
    import torch

    losses = []
    for messages in conversations:
        prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
        text = prompt + messages[-1]["content"] + tokenizer.eos_token  # what a template adds behind it is not trained
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        first = len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, first - 1 : -1]
        losses.append(torch.nn.functional.cross_entropy(logits.double(), ids[0, first:], reduction="none"))
    return float(torch.cat(losses).mean())


def vision_language_model(tokenizer: Path, folder: Path) -> Path:
    """A random Qwen3-VL of half a million parameters with the demo's tokenizer."""
    import torch
    from transformers import AutoTokenizer, Qwen3VLConfig, Qwen3VLForConditionalGeneration

    tokens = AutoTokenizer.from_pretrained(tokenizer)
    words = -(-len(tokens) // 64) * 64
    text = {
        "vocab_size": words,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 32,
        "max_position_embeddings": 8192,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [6, 5, 5],
            "mrope_interleaved": True,
        },
    }
    vision = {"depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": 128}
    signs = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")
    torch.manual_seed(0)
    config = Qwen3VLConfig(
        text_config=text,
        vision_config={**vision, "deepstack_visual_indexes": [0]},
        tie_word_embeddings=False,
        **{name: words - number for number, name in enumerate(signs, 1)},
    )
    model = Qwen3VLForConditionalGeneration(config).float()
    model.generation_config.eos_token_id = tokens.eos_token_id
    model.save_pretrained(folder)
    tokens.save_pretrained(folder)
    return folder
