"""A tiny model for the smoke test of any one-turn task on a CPU: it knows the form of the answers and nothing else.

    python -m recipe.demo.smoke_model --rows train.parquet --out outputs/smoke

The tokenizer is trained on the rows' own prompts, the weights are random, and a short supervised training on random
options teaches the `<answer>` tag. So the model is right about as often as chance, rewards have spread, and a training
run on real records exercises every part of the machinery. It is no baseline for anything.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

from transformers.utils import logging as hf_logging

from agents.choice import parse_options
from agents.rows import TaskRow, read_rows
from agents.task import Message
from recipe.demo import tiny_model, warm_start

TEACHING_PROMPT_CHARS = 600  # the form does not depend on the prompt: a short one teaches it faster


def possible_answers(row: TaskRow) -> list[str]:
    """What could stand in the answer tag of this row: option letters, or the candidates themselves."""
    record = row.row.model_dump()
    if record.get("answer_choices"):
        return [chr(ord("A") + i) for i in range(len(record["answer_choices"]))]
    if record.get("cands"):
        return list(record["cands"])
    return list(parse_options(record.get("choices", "")))


def make(files: Sequence[str], out: Path, steps: int, seed: int = 0) -> Path:
    """Build the model and teach it the form of the answers.

    Raises:
        ValueError: a row offers nothing to answer with.
    """
    rows = read_rows(files)
    answers = [possible_answers(row) for row in rows]
    for row, offered in zip(rows, answers, strict=True):
        if not offered:
            raise ValueError(f"{row.where}: no options are known for this row of {row.task.name}")
    prompts = [row.task.prompt(row.row)[0]["content"] for row in rows]
    corpus = [*prompts[:500], *(f"<answer>{a}</answer>" for offered in answers[:500] for a in offered)]
    tiny_model.build(out, corpus, seed)

    def draw(rng: random.Random) -> tuple[list[Message], str]:
        i = rng.randrange(len(rows))
        messages: list[Message] = [{"role": "user", "content": prompts[i][-TEACHING_PROMPT_CHARS:]}]
        return messages, f"<answer>{rng.choice(answers[i])}</answer>"

    warm_start.train(out, out, draw, warm_start.WarmStart(steps=steps, seed=seed))
    return out


def main(argv: Sequence[str] | None = None) -> None:
    """Make the folder."""
    parser = argparse.ArgumentParser(
        prog="python -m recipe.demo.smoke_model", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--rows", nargs="+", required=True, help="task files of one-turn tasks")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args(argv)
    hf_logging.disable_progress_bar()
    make(args.rows, args.out, args.steps)


if __name__ == "__main__":
    main()
