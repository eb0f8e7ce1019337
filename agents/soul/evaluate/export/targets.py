"""The target of a sample in the formats of other tools."""

from __future__ import annotations

from typing import Any

from soul import tasks
from soul.evaluate.tables.answers import given_answer, saved_row
from soul.record import SessionRecord
from soul.task import Task
from soul.task_types import Row


def expected(task: Task[Any], row: Row) -> str:
    """The right answer; if no single answer is right, a person's answer (`Task.human_answer`); otherwise ""."""
    return task.target(row) or task.human_answer(row) or ""


def expected_and_given(samples: list[SessionRecord]) -> tuple[str, list[str | None]]:
    """The target of a row, and the answer that was read from each of its samples.

    Args:
        samples: all samples of one row.

    Returns:
        If the task is not installed, or no longer accepts the record: "", and None for each sample.
    """
    task = tasks.load(samples[0].task) if samples[0].task in tasks.names() else None
    row = saved_row(task, samples[0]) if task else None
    if task is None or row is None:
        return "", [None] * len(samples)
    return expected(task, row), [given_answer(task, row, sample) for sample in samples]
