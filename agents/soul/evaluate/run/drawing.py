"""Which rows of a set are evaluated: drawn by the seed, in strata where the task names some.

The order is one for all limits: the first 50 rows are among the first 100, and both are drawn as the strata ask.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from soul.rows.task_files import TaskRow


def drawing_order(rows: Sequence[TaskRow], seed: str) -> list[int]:
    """The positions of all rows in the order in which they are drawn.

    Every start of the order holds the values of the task's strata in the shares of the whole, or each the same number
    of times (`Strata.equal`) as long as its rows last; to within one row. Rows without a value are a stratum too.
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
