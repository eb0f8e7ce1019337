"""Accuracy of models in Hugging Face folders on a file of HiToM rows, sampled at temperature 1 and greedy.

This uses plain transformers without an inference engine: the demo compares its models in a few seconds. Prompt and
verdict are the task's own. For real evaluations use `soul.evaluate`.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from soul.files.whole_file import write_whole
from soul.judge import Endpoint, Judge
from soul.message import Message
from soul.rows.task_files import TaskRow, read_rows
from soul.task_types import Episode

MAX_NEW_TOKENS = 24
BATCH = 128
SAMPLES = 4  # per row


@torch.no_grad()
def generate(model: Any, tokenizer: Any, prompts: Sequence[str], sample: bool) -> list[str]:
    """Generate one answer per prompt. `prompts` are rendered with the chat template, generation prompt included."""
    answers: list[str] = []
    for start in range(0, len(prompts), BATCH):
        texts = {"padding": True, "padding_side": "left", "add_special_tokens": False, "return_token_type_ids": False}
        batch = tokenizer(list(prompts[start : start + BATCH]), return_tensors="pt", **texts)
        choice = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0} if sample else {"do_sample": False}
        out = model.generate(**batch, **choice, max_new_tokens=MAX_NEW_TOKENS)
        answers += tokenizer.batch_decode(out[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return answers


def rewards(rows: Sequence[TaskRow], answers: Sequence[str]) -> list[float]:
    """The task's own reward for each answer."""

    async def score() -> list[float]:
        # These tasks score by rule and never call the judge, so its address is a dead one.
        judge = Judge.connect(Endpoint(base_url="http://127.0.0.1:9/v1", api_key_env=None))
        verdicts = []
        for row, answer in zip(rows, answers, strict=True):
            reply: Message = {"role": "assistant", "content": answer}
            episode = Episode({"policy": [*row.task.prompt(row.row), reply]})
            verdicts.append(await row.task.judge(row.row, episode, judge))
        return [verdict.reward for verdict in verdicts]

    return asyncio.run(score())


def evaluate(model_dir: str | Path, rows: Sequence[TaskRow], samples: int = SAMPLES, seed: int = 0) -> dict[str, float]:
    """The `sampled` and `greedy` accuracy of a model, `sampled_se` (standard error over rows), `rows` and `samples`."""
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
    torch.manual_seed(seed)
    prompts = [
        tokenizer.apply_chat_template(r.task.prompt(r.row), tokenize=False, add_generation_prompt=True) for r in rows
    ]
    greedy = rewards(rows, generate(model, tokenizer, prompts, sample=False))
    drawn = [rewards(rows, generate(model, tokenizer, prompts, sample=True)) for _ in range(samples)]
    per_row = torch.tensor(drawn).mean(0)
    return {
        "sampled": float(per_row.mean()),
        "sampled_se": float(per_row.std() / len(rows) ** 0.5),
        "greedy": sum(greedy) / len(greedy),
        "rows": len(rows),
        "samples": samples,
    }


def compare(file: Path, models: Mapping[str, Path], out: Path) -> dict[str, dict[str, float]]:
    """Evaluate models (name -> folder) on a file of rows; print their accuracies, write them as JSON, return them."""
    rows = read_rows([str(file)])
    results = {}
    for name, folder in models.items():
        accuracy = results[name] = evaluate(folder, rows)
        sampled = f"{accuracy['sampled']:.3f} +- {accuracy['sampled_se']:.3f}"
        print(f"{name}: sampled {sampled}  greedy {accuracy['greedy']:.3f}")
    write_whole(out, json.dumps(results, indent=1) + "\n")
    return results
