"""Draw the rows that a run trains on: a fixed number per task, by a seed (paper, section 5: 1,024 per task).

Rows are drawn per task, so a task's share does not depend on the size of its file, and adding a task does not change
the rows of the others. The dataloader shuffles the result. Needs no torch.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict, Field, field_validator

from soul import tasks
from soul.errors import UnknownTask
from soul.rows.task_files import TaskRow

VALIDATION_SEED = 1


class MixtureSettings(BaseModel):
    """The section `data.mixture`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows_per_task: int | None = Field(
        default=None,
        gt=0,
        description="Training rows drawn of each task; null takes all. The recipe, and every launch of several tasks, "
        "set the paper's 1024.",
    )
    val_rows_per_task: int | None = Field(
        default=None, gt=0, description="Validation rows drawn of each task; null takes all. The same set 100."
    )
    weights: dict[str, float] = Field(
        default_factory=dict, description="Factor on a task's number of training rows: `{sotopia: 2, hitom: 0.5}`."
    )

    @field_validator("weights")
    @classmethod
    def _known_and_positive(cls, weights: dict[str, float]) -> dict[str, float]:
        for name, weight in weights.items():
            try:
                tasks.load(name)
            except UnknownTask as error:
                raise ValueError(str(error)) from error
            if not 0 <= weight < float("inf"):
                raise ValueError(f"the weight of {name} is {weight}: use a number that is at least 0")
        return weights

    def training_rows(self, rows: Sequence[TaskRow], seed: int) -> list[TaskRow]:
        """The rows to train on."""
        return draw(rows, self.rows_per_task, self.weights, seed)

    def summary(self, available: Sequence[TaskRow], drawn: Sequence[TaskRow], seed: int) -> str:
        """The numbers of drawn rows, for people: "hitom 1,024 of 6,000, ..., drawn by seed 1"; "" if all are."""
        of, counts = (Counter(row.task.name for row in rows) for rows in (available, drawn))
        if of == counts:
            return ""
        return f"{', '.join(f'{name} {counts[name]:,} of {of[name]:,}' for name in of)}, drawn by seed {seed}"

    def validation_rows(self, rows: Sequence[TaskRow]) -> list[TaskRow]:
        """The rows to validate on: the same number per task, and the same ones whatever the seed of the training is."""
        return draw(rows, self.val_rows_per_task, {}, VALIDATION_SEED)


def draw(rows: Sequence[TaskRow], per_task: int | None, weights: Mapping[str, float], seed: int) -> list[TaskRow]:
    """Draw rows of each task without replacement, as far as it has enough.

    Args:
        per_task: number of rows per task; a task with fewer gives all of them. None: all rows of every task.
        weights: task -> factor on that number. If the result exceeds the task's rows, they repeat, each equally often
            give or take one. 0 leaves the task out.

    Returns:
        The rows grouped by task. A task with weight 1 and all rows taken keeps the order of its file.
    """
    by_task: dict[str, list[TaskRow]] = {}
    for row in rows:
        by_task.setdefault(row.task.name, []).append(row)
    drawn: list[TaskRow] = []
    for name, task_rows in by_task.items():
        wanted = round(min(per_task or len(task_rows), len(task_rows)) * weights.get(name, 1.0))
        repeats, rest = divmod(wanted, len(task_rows))
        drawn += task_rows * repeats + random.Random(f"{seed}:{name}").sample(task_rows, rest)
    return drawn
