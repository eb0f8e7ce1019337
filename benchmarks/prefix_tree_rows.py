"""Groups of real prompts as training rows: what `benchmarks/prefix_tree.py` gives to both engines.

Prompts come from a task's own rows and its own `prompt`, without and with feedback, through the model's tokenizer and
chat template. Answers have the lengths of the row's reference (in CoSER the book's conversation, in which a character's
own lines are sampled and the others' are context), varied by a quarter; their tokens are random, because only lengths
matter here. A feedback is 45 random words of the prompt, which is about 60 tokens.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data import coser, fantom
from soul import tasks

FEEDBACK_WORDS = 45


@dataclass(frozen=True)
class TrainingRow:
    """A sequence: its kind, its ids, and 1 for every response token that the policy sampled."""

    kind: str
    prompt: list[int]
    response: list[int]
    mask: list[int]


def read_records(task: str, folder: Path) -> list[dict[str, Any]]:
    """The rows of the public files of a task in `folder`/`task`."""
    if task == "coser":
        return coser.convert(sorted((folder / task).glob("test_set*.json"))).records
    return fantom.convert(sorted((folder / task).glob("FANToM_*.csv")))


def groups(task_name: str, folder: Path, prompts: int, drafts: int, model: Path) -> list[TrainingRow]:
    """The rows of `prompts` groups: for each `drafts` drafts and as many refined answers in both contexts."""
    from transformers import AutoTokenizer

    task, chance = tasks.load(task_name), random.Random(0)
    records = read_records(task_name, folder)
    rows: list[Any] = [task.row_type.model_validate(r) for r in chance.sample(records, prompts)]
    tokenizer = AutoTokenizer.from_pretrained(model)
    words = " ".join(message["content"] for message in task.prompt(rows[0])).split()

    def prompt(row: Any, feedback: str | None = None) -> list[int]:
        text = tokenizer.apply_chat_template(task.prompt(row, feedback), tokenize=False, add_generation_prompt=True)
        ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
        return ids

    def sampled(lengths: Sequence[tuple[int, bool]]) -> tuple[list[int], list[int]]:
        response: list[int] = []
        mask: list[int] = []
        for length, own in lengths:
            size = max(1, round(length * chance.uniform(0.75, 1.25)))
            response += [chance.randrange(len(tokenizer)) for _ in range(size)]
            mask += [int(own)] * size
        return response, mask

    training: list[TrainingRow] = []
    for row in rows:
        base = prompt(row)
        turns = [(len(tokenizer(text).input_ids), own) for text, own in _turns(task_name, task, row)]
        for _ in range(drafts):
            feedback = " ".join(chance.choices(words, k=FEEDBACK_WORDS))
            training.append(TrainingRow("draft", base, *sampled(turns)))
            refined = sampled(turns)
            training.append(TrainingRow("refined_base", base, *refined))
            training.append(TrainingRow("refined_feedback", prompt(row, feedback), *refined))
    return training


def _turns(task_name: str, task: Any, row: Any) -> list[tuple[str, bool]]:
    """The turns of a response, and whether the policy says them."""
    if task_name != "coser":
        return [(task.reference(row), True)]
    seat = next(line.speaker for line in row.reference)
    turns = [(line.text, line.speaker == seat) for line in row.reference]
    while not turns[-1][1]:  # a sequence ends with a turn of its own
        turns.pop()
    return turns
