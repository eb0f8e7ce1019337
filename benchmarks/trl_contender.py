"""TRL's SFTTrainer on the sequences that benchmarks/sft.py wrote. Runs in TRL's interpreter, without our packages.

    python trl_contender.py FOLDER bfd|wrapped TOKENS_PER_STEP LONGEST

The last line of its output is a list: tokens per second of each step after the first.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import SFTConfig, SFTTrainer

MOST_ROWS = 4  # bins of a micro-batch


class Clock(TrainerCallback):
    """Records when each step ends."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.ends.append(time.perf_counter())


def main(folder: str, strategy: str, tokens: int, longest: int) -> None:
    """Train one epoch and print the rates."""
    with open(f"{folder}/sequences.jsonl") as file:
        rows = [json.loads(line) for line in file]
    data = Dataset.from_list([{"input_ids": ids, "completion_mask": mask} for ids, mask in rows])
    rows_at_once = max(1, min(MOST_ROWS, tokens // longest))
    parts = max(1, tokens // (rows_at_once * longest))
    config = SFTConfig(
        output_dir=f"{folder}/trl",
        per_device_train_batch_size=rows_at_once,
        dataloader_drop_last=True,  # a last step of fewer bins would look faster than it is
        gradient_accumulation_steps=parts,
        packing=True,
        packing_strategy=strategy,
        max_length=longest,
        completion_only_loss=True,
        learning_rate=1e-4,
        num_train_epochs=1,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    model = AutoModelForCausalLM.from_pretrained(f"{folder}/model", dtype=torch.float32, attn_implementation="sdpa")
    tokenizer, clock = AutoTokenizer.from_pretrained(f"{folder}/model"), Clock()
    trainer = SFTTrainer(model, args=config, train_dataset=data, processing_class=tokenizer, callbacks=[clock])
    packed = [len(row["input_ids"]) for row in trainer.train_dataset]
    trainer.train()
    of_step = rows_at_once * parts * sum(packed) / len(packed)  # on average: bins are shuffled
    print(json.dumps([of_step / (end - start) for start, end in zip(clock.ends, clock.ends[1:], strict=False)]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
