"""The contents of a task file, task by task: rows, lengths, duplicates, overlap, answers (`python -m data.check`)."""

import hashlib
import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass

from soul.one_turn import LetterTask
from soul.rows.overlap import HeldOut, Overlap
from soul.rows.task_files import TaskRow, read_rows


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


def reports(file: str, held_out: HeldOut | None = None) -> list[Report]:
    """A report for each task in a file, by name. Raises BadRow if a row is invalid or the file unreadable."""
    by_task: defaultdict[str, list[TaskRow]] = defaultdict(list)
    for row in read_rows([file]):
        by_task[row.task.name].append(row)
    everything = [row for rows in by_task.values() for row in rows]
    overlaps = {overlap.task: overlap for overlap in (held_out or HeldOut()).overlaps(everything)}
    found = []
    for task, rows in sorted(by_task.items()):
        words = [sum(len(m["content"].split()) for m in row.task.prompt(row.row)) for row in rows]
        letters = Counter(row.task.gold(row.row) for row in rows if isinstance(row.task, LetterTask))
        spread = min(words), int(statistics.median(words)), max(words)
        duplicates = len(rows) - len(set(map(_fingerprint, rows)))
        answers = {letter: count / len(rows) for letter, count in sorted(letters.items())}
        found.append(Report(file, task, len(rows), spread, duplicates, overlaps.get(task), answers))
    return found


def _fingerprint(row: TaskRow) -> str:
    """Identify a row by what the policy sees."""
    text = "\n\n".join(f"{m['role']}: {' '.join(m['content'].split())}" for m in row.task.prompt(row.row))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
