"""Validate task files and say what is in them: rows, lengths, answer balance, duplicates, overlap with evaluation.

    python -m data.check train.parquet [more.parquet ...] [--against val.parquet ...] [--json report.json]

Works on any task file, those that the original published included: each row goes through its task's own schema, and a
bad row is named with file, row and field. Two rows are the same where their prompts are, whatever their other columns
say. Exit code 0; 1 where a file and `--against` share prompts; 2 where a row is bad.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from agents.choice import LetterTask
from agents.errors import SoulError
from agents.rows import TaskRow, read_rows


@dataclass(frozen=True)
class Report:
    """What is in one task's part of one file.

    Attributes:
        words: of the prompts: shortest, median, longest.
        duplicates: rows whose prompt an earlier row of the file has.
        overlap: rows whose prompt a file of `--against` has.
        answers: share of each gold letter, where the task has letters.
    """

    file: str
    task: str
    rows: int
    words: tuple[int, int, int]
    duplicates: int
    overlap: int
    answers: dict[str, float]


def fingerprint(row: TaskRow) -> str:
    """Identifies a row by what the policy would see."""
    text = "\n\n".join(f"{m['role']}: {' '.join(m['content'].split())}" for m in row.task.prompt(row.row))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def reports(file: str, against: frozenset[str] = frozenset()) -> list[Report]:
    """A report for each task in a file.

    Raises:
        SoulError: a row is bad; names file, row and field.
    """
    by_task: dict[str, list[TaskRow]] = {}
    for row in read_rows([file]):
        by_task.setdefault(row.task.name, []).append(row)
    return [_report(file, name, rows, against) for name, rows in sorted(by_task.items())]


def _report(file: str, task: str, rows: Sequence[TaskRow], against: frozenset[str]) -> Report:
    prints = [fingerprint(row) for row in rows]
    words = [sum(len(m["content"].split()) for m in row.task.prompt(row.row)) for row in rows]
    letters = Counter(row.task.gold(row.row) for row in rows if isinstance(row.task, LetterTask))
    return Report(
        file,
        task,
        len(rows),
        (min(words), int(statistics.median(words)), max(words)),
        len(prints) - len(set(prints)),
        sum(print_ in against for print_ in prints),
        {letter: count / len(rows) for letter, count in sorted(letters.items())},
    )


def table(found: Sequence[Report]) -> Table:
    """The reports as people read them."""
    view = Table(title="Task files", title_justify="left")
    for name in ("file", "task"):
        view.add_column(name, overflow="fold")
    for name in ("rows", "words (min/median/max)", "duplicates", "overlap", "answers"):
        view.add_column(name, justify="right")
    for report in found:
        answers = " ".join(f"{letter} {share:.0%}" for letter, share in report.answers.items())
        lengths = "/".join(f"{count:,}" for count in report.words)
        numbers = (f"{report.rows:,}", lengths, f"{report.duplicates:,}", f"{report.overlap:,}")
        view.add_row(Path(report.file).name, report.task, *numbers, answers)
    return view


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m data.check", description="Validate task files.")
    parser.add_argument("files", nargs="+", help="parquet files")
    parser.add_argument("--against", nargs="+", default=[], help="files that must not share prompts with them")
    parser.add_argument("--json", type=Path, help="write the reports here")
    args = parser.parse_args(arguments)
    try:
        others = frozenset(fingerprint(row) for row in read_rows(args.against)) if args.against else frozenset()
        found = [report for file in args.files for report in reports(file, others)]
    except SoulError as error:
        print(f"\n{type(error).__name__}: {error}\n", file=sys.stderr)
        return 2
    Console(width=max(110, Console().width)).print(table(found))
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(report) for report in found], indent=1) + "\n", encoding="utf-8")
    return 1 if any(report.overlap for report in found) else 0


if __name__ == "__main__":
    sys.exit(main())
