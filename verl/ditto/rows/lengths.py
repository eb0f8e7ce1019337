"""Measure the policy's prompts in tokens; shorten, drop or refuse rows that are too long. Needs no torch.

verl measures the parquet's `prompt` column, which the tasks do not use, and truncating its tokens would cut off
instructions. Here a row is measured as its task renders it, with the real tokenizer, and shortened only in the fields
that the task names (agents/soul/rows/truncation.py).
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from omegaconf import DictConfig

from soul.errors import BadRow
from soul.rows.task_files import TaskRow
from soul.rows.truncation import truncate_row
from soul.task import Task
from soul.task_types import Row

logger = logging.getLogger(__name__)


def prompt_tokens(task: Task[Any], row: Row, tokenizer: Any, template: dict[str, Any]) -> int:
    """Tokens of the row's base prompt, including the generation prompt; of several sides, of the longest."""
    ids = (
        tokenizer.apply_chat_template(
            task.prompt(of_side), add_generation_prompt=True, tokenize=True, return_dict=False, **template
        )
        for of_side in (row, *task.side_rows(row).values())
    )
    return max(map(len, ids))


def fitting_rows(
    data: DictConfig, rows: Sequence[TaskRow], tokenizer: Any, most: int | None
) -> tuple[list[TaskRow], list[int]]:
    """Keep the rows whose prompt fits, after shortening where the task allows it.

    Args:
        data: the config's section, with `max_prompt_length` and `filter_overlong_prompts`: leave out rows that stay too
            long, instead of raising.
        most: the most rows to keep; None or -1: all.

    Returns:
        The rows, and the lengths of their prompts in tokens.

    Raises:
        BadRow: a row stays too long and is not left out, or no row fits.
    """
    template, limit = dict(data.get("apply_chat_template_kwargs") or {}), data.max_prompt_length
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
        elif not data.filter_overlong_prompts:
            raise BadRow(
                f"{row.where}: the prompt of this {row.task.name} row has {measure(row.row)} tokens, more than "
                f"data.max_prompt_length={limit}. Raise it (and the rollout's max_model_len), or leave out such rows: "
                "data.filter_overlong_prompts=true."
            )
    if not kept:
        raise BadRow(
            f"{rows[0].file}: every prompt is longer than data.max_prompt_length={limit} tokens. Raise "
            "data.max_prompt_length (and the rollout's max_model_len)."
        )
    if cut:
        fields = ", ".join(f"{field} in {count} rows" for field, count in cut.most_common())
        logger.warning("Shortened to fit into %d tokens: %s", limit, fields)
    if len(kept) < len(rows):
        logger.warning(
            "Left out %d of %d rows whose prompts are longer than %d tokens", len(rows) - len(kept), len(rows), limit
        )
    first = most if most and most > 0 else None
    return kept[:first], lengths[:first]
