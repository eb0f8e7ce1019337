"""How long a row's prompt is for the policy, and what happens to rows that are too long. Needs no torch.

verl measures the parquet's `prompt` column, which the tasks do not use; the original silently cut the instructions off
rows that were too long. Here a row is measured as the task renders it, with the real tokenizer, and shortened in the
fields that its task names (agents/soul/rows/truncation.py).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from soul.errors import BadRow
from soul.rows.task_files import TaskRow
from soul.rows.truncation import truncate_row
from soul.task import Row, Task

logger = logging.getLogger(__name__)


def prompt_tokens(task: Task[Any], row: Row, tokenizer: Any, template: dict[str, Any]) -> int:
    """Tokens of the row's base prompt, generation prompt included."""
    ids = tokenizer.apply_chat_template(
        task.prompt(row), add_generation_prompt=True, tokenize=True, return_dict=False, **template
    )
    return len(ids)


def check_lengths(
    rows: Sequence[TaskRow], tokenizer: Any, limit: int, template: dict[str, Any], drop: bool
) -> tuple[list[TaskRow], list[int]]:
    """The rows whose prompt fits, shortened where their task allows it, and their lengths in tokens.

    Raises:
        BadRow: a row is too long and `drop` is off.
    """
    kept: list[TaskRow] = []
    lengths: list[int] = []
    cut: Counter[str] = Counter()
    for row in rows:
        measure = partial(prompt_tokens, row.task, tokenizer=tokenizer, template=template)
        shortened = truncate_row(row.task, row.row, measure, limit)
        if shortened is not None:
            cut.update(f"{row.task.name}.{field}" for field in shortened.fields)
            kept.append(replace(row, row=shortened.row))
            lengths.append(shortened.length)
        elif not drop:
            raise BadRow(
                f"{row.where}: the prompt of this {row.task.name} row has {measure(row.row)} tokens, more than "
                f"data.max_prompt_length={limit}. Raise data.max_prompt_length (and the rollout's max_model_len), "
                "or set data.filter_overlong_prompts=true to leave such rows out."
            )
    if not kept:
        raise BadRow(f"{rows[0].file}: no row fits into data.max_prompt_length={limit} tokens.")
    if cut:
        fields = ", ".join(f"{field} in {count} rows" for field, count in cut.most_common())
        logger.warning("shortened to fit into %d tokens: %s", limit, fields)
    if len(kept) < len(rows):
        logger.warning("left out %d of %d rows longer than %d tokens", len(rows) - len(kept), len(rows), limit)
    return kept, lengths
