"""Rows of a few groups: drafts, refined answers in the base context and in contexts with feedback."""

import random

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu

VOCAB = 40


def rows_of_groups(groups: int = 2, drafts: int = 3, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    """Prompt and response of each row; shuffled. Among them equal rows, and a row that is the beginning of another."""
    chance = random.Random(seed)

    def tokens(count: int) -> list[int]:
        return [chance.randrange(2, VOCAB) for _ in range(count)]

    system, rows = tokens(5), []
    for _ in range(groups):
        prompt, question = system + tokens(20), tokens(3)
        for _ in range(drafts):
            draft, refined = tokens(chance.randint(1, 9)), tokens(chance.randint(2, 9))
            rows += [
                (prompt + question, draft),
                (prompt + question, refined),
                (prompt + tokens(4) + question, refined),
            ]
        rows += [rows[-2], (prompt + question, rows[-2][1][:1])]
    rows += [([1], [1])] * 3  # padding
    chance.shuffle(rows)
    return rows


def columns(rows: list[tuple[list[int], list[int]]], dimensions: int = 1) -> TensorDict:
    """The columns that the engine reads; vision models count in several dimensions."""

    def nested(tensors: list[Tensor]) -> Tensor:
        return torch.nested.as_nested_tensor(tensors, layout=torch.jagged)

    ids = [torch.tensor(prompt + response) for prompt, response in rows]
    positions = nested([torch.arange(len(row)) for row in ids])
    if dimensions > 1:
        positions = torch.nested.nested_tensor_from_jagged(
            positions.values().expand(dimensions, -1).contiguous(), positions.offsets(), jagged_dim=2
        )
    return tu.get_tensordict(
        {
            "input_ids": nested(ids),
            "position_ids": positions,
            "prompts": nested([torch.tensor(prompt) for prompt, _ in rows]),
            "responses": nested([torch.tensor(response) for _, response in rows]),
        },
        dict(use_remove_padding=True, temperature=0.7, calculate_entropy=True),
    )
