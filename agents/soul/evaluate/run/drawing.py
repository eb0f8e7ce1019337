"""Which rows of a set are evaluated: drawn by the seed, stratified if the task asks for it (`Task.strata`).

All limits use the same order: the first 50 rows are among the first 100, and both samples are stratified.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from soul.rows.task_files import TaskRow


def drawing_order(rows: Sequence[TaskRow], seed: str) -> list[int]:
    """The positions of all rows in the order in which they are drawn.

    To within one row, every prefix of the order has the strata in the proportions of the whole set, or in equal numbers
    (`Strata.equal`) until a stratum runs out of rows. Rows without a value are a stratum too.
    """
    order = random.Random(seed).sample(range(len(rows)), len(rows))
    values = {position: _stratum(rows[position]) for position in order}
    members: dict[str, list[int]] = {}
    for position in order:
        members.setdefault(values[position], []).append(position)
    strata = rows[0].task.strata if rows else None
    turn: dict[int, float] = {}
    for stratum in members.values():
        share = 1 if strata is not None and strata.equal else len(stratum)
        turn |= {position: (place + 0.5) / share for place, position in enumerate(stratum)}
    return sorted(order, key=turn.__getitem__)  # a stable sort: equal turns stay in the drawn order


def _stratum(row: TaskRow) -> str:
    strata = row.task.strata
    return "" if strata is None else row.task.groups(row.row).get(strata.kind, "")
