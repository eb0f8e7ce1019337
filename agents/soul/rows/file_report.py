"""The contents of a task file, task by task: rows, groups, duplicates, lengths, answers, and its subsets.

`python -m data.check` prints these numbers, `soul figures --data` writes them as tables.
"""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from soul.one_turn import LetterTask
from soul.rows.overlap import HeldOut, Overlap
from soul.rows.task_files import TaskRow, read_rows


@dataclass(frozen=True)
class Spread:
    """A number over the rows of a subset."""

    mean: float
    median: float
    p90: float
    least: float
    most: float

    @classmethod
    def over(cls, values: Sequence[float]) -> Spread:
        """Of one value for each row; at least one."""
        tenths = statistics.quantiles(values, n=10, method="inclusive") if len(values) > 1 else [values[0]] * 9
        return cls(statistics.fmean(values), statistics.median(values), tenths[8], min(values), max(values))


@dataclass(frozen=True)
class Subset:
    """Rows of one task in one file that share a group of the kind by which its samples are stratified.

    Attributes:
        name: the group; "" stands for all rows.
        characters: of the prompt that the policy sees.
    """

    name: str
    rows: int
    characters: Spread

    @classmethod
    def of_rows(cls, name: str, rows: Sequence[TaskRow]) -> Subset:
        """The subset of these rows, which are of one task."""
        characters = [sum(len(m["content"]) for m in row.task.prompt(row.row)) for row in rows]
        return cls(name, len(rows), Spread.over(characters))


@dataclass(frozen=True)
class Report:
    """The contents of one task's part of one file.

    Attributes:
        words: words of a prompt: shortest, median, longest.
        duplicates: rows whose prompt equals that of an earlier row of the file.
        overlap: the rows that share a group with a held-out row; None if there are none.
        answers: share of each gold letter, if the task has letters.
    """

    file: str
    task: str
    rows: int
    words: tuple[int, int, int]
    duplicates: int
    overlap: Overlap | None
    answers: dict[str, float]


def rows_by_task(file: str) -> dict[str, list[TaskRow]]:
    """The rows of a file, by the names of their tasks in alphabetical order.

    Raises:
        BadRow: a row is invalid, or the file cannot be read.
    """
    by_task: defaultdict[str, list[TaskRow]] = defaultdict(list)
    for row in read_rows([file]):
        by_task[row.task.name].append(row)
    return dict(sorted(by_task.items()))


def reports(file: str, held_out: HeldOut | None = None) -> list[Report]:
    """A report for each task in a file."""
    by_task = rows_by_task(file)
    rows = [row for of_task in by_task.values() for row in of_task]
    overlaps = {overlap.task: overlap for overlap in (held_out or HeldOut()).overlaps(rows)}
    return [task_report(file, name, of_task, overlaps.get(name)) for name, of_task in by_task.items()]


def task_report(file: str, task: str, rows: Sequence[TaskRow], overlap: Overlap | None = None) -> Report:
    """The report on the rows of one task."""
    words = [sum(len(m["content"].split()) for m in row.task.prompt(row.row)) for row in rows]
    letters = Counter(row.task.gold(row.row) for row in rows if isinstance(row.task, LetterTask))
    return Report(
        file,
        task,
        len(rows),
        (min(words), int(statistics.median(words)), max(words)),
        len(rows) - len({fingerprint(row) for row in rows}),
        overlap,
        {letter: count / len(rows) for letter, count in sorted(letters.items())},
    )


def subsets(rows: Sequence[TaskRow]) -> list[Subset]:
    """All rows of one task, and then its subsets if it has several (`Task.strata`)."""
    strata = rows[0].task.strata
    by_name: defaultdict[str, list[TaskRow]] = defaultdict(list)
    for row in rows if strata else ():
        by_name[row.task.groups(row.row).get(strata.kind, "other") if strata else ""].append(row)
    parts = [Subset.of_rows(name, part) for name, part in sorted(by_name.items())]
    return [Subset.of_rows("", rows), *(parts if len(parts) > 1 else [])]


def groups(rows: Sequence[TaskRow]) -> int:
    """The number of stories, conversations, books or questions that rows of one task come from."""
    return len({row.task.group_keys(row.row)[0] for row in rows})


def fingerprint(row: TaskRow) -> str:
    """Identify a row by what the policy sees."""
    text = "\n\n".join(f"{m['role']}: {' '.join(m['content'].split())}" for m in row.task.prompt(row.row))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
