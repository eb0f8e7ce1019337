"""What other tools get as the target of a sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from agents import tasks
from agents.task import Row, Task


def expected(task: Task[Any], row: Row) -> str:
    """The right answer; where no single one is right, what a person answered (`Task.human_answer`); else ""."""
    return task.target(row) or task.human_answer(row) or ""


def expected_and_given(samples: list[Mapping[str, Any]]) -> tuple[str, list[str | None]]:
    """The target of a row, and the answer that was read from each of its samples.

    Args:
        samples: lines of the journal, of one row.

    Returns:
        "" and None each where the task is not installed here, or no longer takes the record.
    """
    nothing: tuple[str, list[str | None]] = "", [None] * len(samples)
    if samples[0]["task"] not in tasks.names():
        return nothing
    task = tasks.load(samples[0]["task"])
    try:
        row = task.row_type.model_validate(samples[0]["record"])
    except ValidationError:
        return nothing
    drafts = [sample["draft"] for sample in samples]
    given = [task.given(row, task.saved_episode(draft)) if draft["seats"] is not None else None for draft in drafts]
    return expected(task, row), given
