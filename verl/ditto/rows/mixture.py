"""Which rows of several tasks a run trains on: so many of each task, drawn by a seed (paper, section 5: 1,024 a task).

Rows are drawn per task, so that a task's share does not depend on how many rows its file happens to have, and adding a
task changes nothing about the draw of the others. The dataloader shuffles what comes out. Needs no torch.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field, field_validator

from soul import tasks
from soul.errors import UnknownTask
from soul.rows.task_files import TaskRow


class MixtureSettings(BaseModel):
    """The section `data.mixture`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows_per_task: int | None = Field(default=None, gt=0)  # of the training files; None: all
    val_rows_per_task: int | None = Field(default=None, gt=0)  # of the validation files; None: all
    weights: dict[str, float] = Field(default_factory=dict)  # task -> how often its rows come; 1 where left out
    seed: int = 1

    @field_validator("weights")
    @classmethod
    def _known_and_positive(cls, weights: dict[str, float]) -> dict[str, float]:
        for name, weight in weights.items():
            try:
                tasks.load(name)
            except UnknownTask as error:
                raise ValueError(str(error)) from error
            if not 0 <= weight < float("inf"):
                raise ValueError(f"the weight of {name} is {weight}: use a number from 0 on")
        return weights

    def training_rows(self, rows: Sequence[TaskRow]) -> list[TaskRow]:
        """The rows that are trained on."""
        return draw(rows, self.rows_per_task, self.weights, self.seed)

    def validation_rows(self, rows: Sequence[TaskRow]) -> list[TaskRow]:
        """The rows that are validated on: of each task the same number, whatever it weighs in training."""
        return draw(rows, self.val_rows_per_task, {}, self.seed)


def draw(rows: Sequence[TaskRow], per_task: int | None, weights: Mapping[str, float], seed: int) -> list[TaskRow]:
    """Draw rows of each task without replacement, as long as there are enough.

    Args:
        per_task: how many; a task with fewer rows gives all it has. None: all rows of every task.
        weights: task -> factor on that number. Above what the task has, its rows come again, each as often as the
            others give or take one; with 0 the task is left out.

    Returns:
        Task by task, in the order of the files where all rows of weight 1 are taken.
    """
    of_task: dict[str, list[TaskRow]] = {}
    for row in rows:
        of_task.setdefault(row.task.name, []).append(row)
    drawn: list[TaskRow] = []
    for name, found in of_task.items():
        wanted = round(min(per_task or len(found), len(found)) * weights.get(name, 1.0))
        rounds, rest = divmod(wanted, len(found))
        drawn += found * rounds + random.Random(f"{seed}:{name}").sample(found, rest)
    return drawn
