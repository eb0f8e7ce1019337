"""How long a row's prompt is for the policy, and what happens to rows that are too long. Needs no torch.

verl measures the parquet's `prompt` column, which the tasks do not use; the original silently cut the instructions off
rows that were too long. Here a row is measured as the task renders it, with the real tokenizer.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from agents.errors import BadRow
from agents.rows import TaskRow

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
