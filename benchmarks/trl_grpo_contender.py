"""TRL's side of benchmarks/grpo_vs_trl.py: GRPO steps of its GRPOTrainer. Runs in TRL's interpreter.

    python trl_grpo_contender.py FOLDER SEQUENCES_PER_MICRO_BATCH

Writes result.json: wall seconds of each phase and step, and the mean number of tokens of a prompt.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


def rewards(completion_ids: list[list[int]], **_: Any) -> list[float]:
    """How many tokens of each answer are even numbers: only a wide spread matters."""
    return [float(sum(token % 2 == 0 for token in ids)) for ids in completion_ids]


class Timed(GRPOTrainer):
    """Measures what it samples in."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.sampling: list[float] = []
        self.prompt_tokens: list[int] = []
        super().__init__(*args, **kwargs)

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        output = super()._generate(*args, **kwargs)
        self.sampling.append(time.perf_counter() - start)
        self.prompt_tokens += [len(prompt) for prompt in output[0]]
        return output


class Clock(TrainerCallback):
    """Records when each step begins and ends."""

    def __init__(self) -> None:
        self.begins: list[float] = []
        self.ends: list[float] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.begins.append(time.perf_counter())

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.ends.append(time.perf_counter())


def main(folder: Path, size: int) -> None:
    """Train the steps of work.json."""
    work = json.loads((folder / "work.json").read_text())
    sequences = work["prompts"] * work["group"]
    config = GRPOConfig(
        output_dir=str(folder / "trl"),
        per_device_train_batch_size=min(size, sequences),
        gradient_accumulation_steps=sequences // min(size, sequences),
        num_generations=work["group"],
        max_completion_length=work["response"],
        generation_kwargs={"min_new_tokens": work["response"]},
        temperature=1.0,
        top_k=0,
        beta=0.0,
        loss_type="dapo",  # a mean over all tokens of the step, as ours
        scale_rewards="group",
        epsilon=0.2,
        epsilon_high=0.28,
        learning_rate=work["learning_rate"],
        lr_scheduler_type="constant",
        max_steps=work["steps"],
        shuffle_dataset=False,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
        seed=1,
    )
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32, attn_implementation="sdpa")
    tokenizer, clock = AutoTokenizer.from_pretrained(folder / "model"), Clock()
    data = Dataset.from_list([{"prompt": text} for text in work["texts"]])
    trainer = Timed(model, rewards, args=config, train_dataset=data, processing_class=tokenizer, callbacks=[clock])
    trainer.train()
    steps = [end - begin for begin, end in zip(clock.begins, clock.ends, strict=True)]
    update = [step - sampling for step, sampling in zip(steps, trainer.sampling, strict=True)]
    seconds = {"sampling": trainer.sampling, "update": update, "step": steps}
    mean = sum(trainer.prompt_tokens) / len(trainer.prompt_tokens)
    (folder / "result.json").write_text(json.dumps({"seconds": seconds, "prompt_tokens": mean}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
