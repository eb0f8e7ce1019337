"""The training and validation set: validated task rows, with their length checked on the prompt the policy will see.

verl's own dataset measures the parquet's `prompt` column, which the tasks do not use; the original silently cut the
instructions off rows that were too long. Here a row is measured as rendered, with the real tokenizer.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

import torch
from omegaconf import DictConfig, ListConfig
from torch.utils.data import Dataset

from agents.errors import BadRow
from agents.rows import TaskRow, parse_row, read_rows

logger = logging.getLogger(__name__)


def prompt_tokens(row: TaskRow, tokenizer: Any, template: dict[str, Any]) -> int:
    """Tokens of the row's base prompt, generation prompt included."""
    ids = tokenizer.apply_chat_template(
        row.task.prompt(row.row), add_generation_prompt=True, tokenize=True, return_dict=False, **template
    )
    return len(ids)


def check_lengths(
    rows: Sequence[TaskRow], tokenizer: Any, limit: int, template: dict[str, Any], drop: bool
) -> tuple[list[TaskRow], list[int]]:
    """The rows whose prompt fits, and their lengths in tokens.

    Raises:
        BadRow: a row is too long and `drop` is off.
    """
    kept, lengths = [], []
    for row in rows:
        length = prompt_tokens(row, tokenizer, template)
        if length > limit:
            if not drop:
                raise BadRow(
                    f"{row.where}: the prompt of this {row.task.name} row has {length} tokens, more than "
                    f"data.max_prompt_length={limit}. Raise data.max_prompt_length (and the rollout's max_model_len), "
                    "or set data.filter_overlong_prompts=true to leave such rows out."
                )
            continue
        kept.append(row)
        lengths.append(length)
    if not kept:
        raise BadRow(f"{rows[0].file}: no row fits into data.max_prompt_length={limit} tokens.")
    if len(kept) < len(rows):
        logger.warning("left out %d of %d rows longer than %d tokens", len(rows) - len(kept), len(rows), limit)
    return kept, lengths


class SoulDataset(Dataset):
    """Rows of one or several task files, for verl's dataloader (`data.custom_cls`).

    Attributes:
        split: "train", or "val" for the set that is played without feedback; the trainer sets it.
    """

    split = "train"

    def __init__(
        self,
        data_files: str | Sequence[str],
        tokenizer: Any,
        config: DictConfig,
        processor: Any = None,
        max_samples: int = -1,
    ) -> None:
        files = list(data_files) if isinstance(data_files, list | tuple | ListConfig) else [str(data_files)]
        rows, _ = check_lengths(
            read_rows(files),
            tokenizer,
            config.max_prompt_length,
            dict(config.get("apply_chat_template_kwargs") or {}),
            config.filter_overlong_prompts,
        )
        self.rows = rows[:max_samples] if max_samples > 0 else rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, item: int) -> dict[str, Any]:
        row = self.rows[item]
        return {
            "data_source": row.task.name,
            "raw_prompt": row.task.prompt(row.row),
            # One JSON string: a struct would be unified over tasks and come back with nulls.
            "row": json.dumps({"file": row.file, "number": row.number, "record": row.row.model_dump(mode="json")}),
            "index": row.row.index,
            "split": self.split,
            "reward_model": {"style": "soul"},  # verl's validation reads this field
            "dummy_tensor": torch.tensor([0], dtype=torch.uint8),  # verl wants one tensor per row
        }


def restore_row(data_source: str, packed: str) -> TaskRow:
    """The row that `SoulDataset` packed."""
    fields = json.loads(packed)
    return parse_row(data_source, fields["record"], fields["file"], fields["number"])
