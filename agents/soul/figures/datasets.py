"""The tables of data sets (the paper's tables 4, 6, 7, 9, 10 and 12) from task files.

    datasets           every task of every file: form, rows, groups, duplicates, length, metric (tables 4 and 6)
    subsets-<task>     its subsets with what the task counts in a row (tables 7, 10 and 12)
    lengths            characters of the prompts, by subset (tables 7, 9, 10 and 12)

A length is that of the prompt which the policy sees; the paper counts the fields of the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from soul.figures.training_run import file_name
from soul.rows.data_card import sha256
from soul.rows.file_report import Report, Spread, Subset, groups, rows_by_task, subsets, task_report
from soul.rows.task_files import TaskRow
from soul.suites import soul_v1
from soul.table import Cell, Table

Source = tuple[str, Path, str]
_ALL = "all"
_SPREAD = ("mean", "median", "p90", "least", "most")


@dataclass(frozen=True)
class FileTask:
    """The rows of one task in one file."""

    path: Path
    sha256: str
    rows: Sequence[TaskRow]

    @property
    def task(self) -> str:
        return self.rows[0].task.name

    @property
    def source(self) -> Source:
        return self.path.name, self.path, self.sha256

    @cached_property
    def report(self) -> Report:
        return task_report(str(self.path), self.task, self.rows)

    @cached_property
    def subsets(self) -> list[Subset]:
        return subsets(self.rows)


def read_files(files: Sequence[Path]) -> list[FileTask]:
    """The tasks of all files.

    Raises:
        BadRow: a row is invalid, or a file cannot be read.
    """
    parts = []
    for path in dict.fromkeys(files):
        parts += [FileTask(path, sha256(path), rows) for rows in rows_by_task(str(path)).values()]
    return parts


def dataset_tables(parts: Sequence[FileTask], missing: list[str]) -> list[Table]:
    """The tables; a sentence joins `missing` where a table has no data."""
    tables = [_datasets(parts), *_subset_tables(parts), _lengths(parts)]
    if len(tables) == 2:
        missing.append(
            "subsets: no task of these files counts anything in its rows (CoSER, MirrorBench and UserLLM do)."
        )
    return tables


def _datasets(parts: Sequence[FileTask]) -> Table:
    head = ("task", "dimension", "file", "form", "rows", "groups", "duplicates", "words (median)", "metric")
    body: list[list[Cell]] = []
    data: list[tuple[str, ...]] = [(*head, "sha256")]
    for part in parts:
        task, report = part.rows[0].task, part.report
        metric = task.set_headline or task.headline
        dimension = soul_v1.DIMENSIONS.get(part.task, "-")
        words = (part.task, dimension, part.path.name, _form(part.rows[0]))
        numbers = (report.rows, groups(part.rows), report.duplicates, report.words[1])
        body.append([*map(Cell, words), *(Cell(f"{number:,}") for number in numbers), Cell(metric.name)])
        data.append((*words, *map(str, numbers), metric.name, part.sha256))
    caption = "Data sets: rows, and the stories, conversations, books or questions that they come from."
    return Table(head, body, file="datasets", caption=caption, data=data, sources=_sources(parts))


def _form(row: TaskRow) -> str:
    """How the policy answers."""
    if row.task.choices(row.row) is not None:
        return "one of several options"
    return "conversation" if row.task.policy_turns > 1 else "one turn"


def _subset_tables(parts: Sequence[FileTask]) -> Iterator[Table]:
    """A table for each task that counts something in its rows."""
    for task in dict.fromkeys(part.task for part in parts):
        own = [part for part in parts if part.task == task]
        measures = list(dict.fromkeys(name for part in own for subset in part.subsets for name in subset.measures))
        if measures:
            yield _subset_table(task, own, measures)


def _subset_table(task: str, parts: Sequence[FileTask], measures: Sequence[str]) -> Table:
    body, data = [], [("file", "subset", "rows", "measure", *_SPREAD)]
    for part, subset in _each_subset(parts):
        spreads = [subset.measures.get(name) for name in measures]
        shown = [Cell(_name(part, subset)), Cell(f"{subset.rows:,}"), *(Cell(_range(spread)) for spread in spreads)]
        body.append(shown)
        for name, spread in zip(measures, spreads, strict=True):
            if spread is not None:
                data.append((part.path.name, subset.name or _ALL, str(subset.rows), name, *_values(spread)))
    caption = f"{task}: subsets, with the mean of a row and the range in brackets."
    file, sources = f"subsets-{file_name(task)}", _sources(parts)
    return Table(("file", "rows", *measures), body, file=file, caption=caption, data=data, sources=sources)


def _lengths(parts: Sequence[FileTask]) -> Table:
    head = ("file", "rows", "mean", "median", "P90", "longest")
    body, data = [], [("file", "task", "subset", "rows", *_SPREAD)]
    for part, subset in _each_subset(parts):
        length = subset.characters
        numbers = (subset.rows, length.mean, length.median, length.p90, length.most)
        body.append([Cell(_name(part, subset)), *(Cell(f"{number:,.0f}") for number in numbers)])
        data.append((part.path.name, part.task, subset.name or _ALL, str(subset.rows), *_values(length)))
    caption = "Characters of the prompts that the policy sees."
    return Table(head, body, file="lengths", caption=caption, data=data, sources=_sources(parts))


def _each_subset(parts: Sequence[FileTask]) -> Iterator[tuple[FileTask, Subset]]:
    return ((part, subset) for part in parts for subset in part.subsets)


def _name(part: FileTask, subset: Subset) -> str:
    return f"{part.path.name}, {part.task}{f': {subset.name}' if subset.name else ''}"


def _range(spread: Spread | None) -> str:
    return "-" if spread is None else f"{spread.mean:,.1f} ({spread.least:,.0f} to {spread.most:,.0f})"


def _values(spread: Spread) -> tuple[Any, ...]:
    return spread.mean, spread.median, spread.p90, spread.least, spread.most


def _sources(parts: Sequence[FileTask]) -> list[Source]:
    return list(dict.fromkeys(part.source for part in parts))
