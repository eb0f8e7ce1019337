"""Shorten a row until its prompt fits the token limit.

A task names the fields that may be shortened, in order (`Task.cuts`). Instructions, question and options are never cut,
unlike with a cut from the left, which removes the instructions first. A shortened text is marked with "[...]".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from soul.row_fields import MARK
from soul.task import Task
from soul.task_types import Row


@dataclass(frozen=True)
class Shortened:
    """A row that fits, the fields that were shortened, and its length in tokens."""

    row: Row
    fields: tuple[str, ...]
    length: int


def truncate_row(task: Task[Any], row: Row, measure: Callable[[Row], int], limit: int) -> Shortened | None:
    """Keep as much of the row's fields as fits; None if it is too long even without all that may be cut.

    Args:
        measure: returns the length of a row's prompt in tokens of the policy's tokenizer.
        limit: the largest length that fits.
    """
    length = measure(row)
    if length <= limit:
        return Shortened(row, (), length)
    cut: list[str] = []
    for field, keep in task.cuts:
        if not getattr(row, field):
            continue
        row = _shorten(row, field, keep, lambda candidate: measure(candidate) <= limit)
        cut.append(field)
        length = measure(row)
        if length <= limit:
            return Shortened(row, tuple(cut), length)
    return None


def _shorten(row: Row, field: str, keep: Literal["start", "end"], fits: Callable[[Row], bool]) -> Row:
    """The row with as much of one field as fits, or with none of it if even that is too long."""
    value = getattr(row, field)
    pieces = list(value) if isinstance(value, list | tuple) else str(value).split()

    def with_pieces(count: int) -> Row:
        return row.model_copy(update={field: _part(value, pieces, count, keep)})

    low, high = 0, len(pieces) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(with_pieces(middle)) else (low, middle - 1)
    return with_pieces(low)


def _part(value: Any, pieces: list[Any], count: int, keep: Literal["start", "end"]) -> Any:
    """The field with only `count` pieces: words of a text, or items of a list."""
    part = pieces[:count] if keep == "start" else pieces[len(pieces) - count :]
    if isinstance(value, list | tuple):
        return type(value)(part)
    if count == len(pieces):
        return value
    text = " ".join(part)
    return f"{text} {MARK}".strip() if keep == "start" else f"{MARK} {text}".strip()
