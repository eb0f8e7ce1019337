"""Rows drawn in strata: the shares asked for, the same rows at every limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pytest

from soul.evaluate.run.settings import row_sampling_order
from soul.rows.task_files import TaskRow
from soul.task_types import Row, Strata
from soul.tasks.hitom import HiToM


class Corpora(HiToM):
    """A task whose rows say their corpus; 60, 30 and 10 of a hundred."""

    strata: ClassVar[Strata | None] = Strata("corpus")

    def groups(self, row: Row) -> Mapping[str, str]:  # type: ignore[override]
        return {"corpus": "a" if row.index < 60 else "b" if row.index < 90 else "c"}


class EqualCorpora(Corpora):
    strata: ClassVar[Strata | None] = Strata("corpus", equal=True)


@dataclass
class _Row:
    task: HiToM
    row: Row


def _rows(task: HiToM) -> list[TaskRow]:
    return [_Row(task, Row(index=index)) for index in range(100)]  # type: ignore[misc]


def _corpora(task: HiToM, limit: int) -> dict[str, int]:
    order = row_sampling_order(_rows(task), "0:x")
    return dict(Counter(task.groups(Row(index=i))["corpus"] for i in order[:limit]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("task", "limit", "expected"),
    [
        (Corpora(), 10, {"a": 6, "b": 3, "c": 1}),
        (Corpora(), 50, {"a": 30, "b": 15, "c": 5}),
        (EqualCorpora(), 30, {"a": 10, "b": 10, "c": 10}),
        (EqualCorpora(), 60, {"a": 25, "b": 25, "c": 10}),  # c has no more
    ],
)
def test_a_draw_has_the_shares_that_the_task_asks_for(task: HiToM, limit: int, expected: dict[str, int]) -> None:
    assert _corpora(task, limit) == expected
