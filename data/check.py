"""Validate task files and report their rows, lengths, answer balance, duplicates and overlap with evaluation.

    python -m data.check train.parquet [more.parquet ...] [--against val.parquet ...]
    python -m data.check train.parquet --against val.parquet --without-overlap clean.parquet
    python -m data.check mixed.parquet --without-extra clean.parquet

Works on any task file, including those published with the paper. Each row is validated by its task's own schema; an
error names file, row and field.

Duplicates are rows with equal prompts. Overlap is wider: a row overlaps if it shares a group with a row of `--against`,
whatever its prompt says. A group is a story with all its paraphrases, a conversation, a book, a question or a user:
each task defines its own (`Task.group_keys`). Groups are compared within a task; books also between CoSER and
LifeChoices. With --near 0.6, a text that shares that much of its word pairs with an evaluated one overlaps too: other
punctuation, a few changed words. Stories that come from one generator may be near without being the same.

The original's mixed files also hold rows of tasks that are no part of SOUL (`soul.tasks.EXTRA`). --without-extra copies
a file without them and counts them by task; what follows checks the copy.

A file that `python -m data.train` built has a card beside it. The card is read too, and one that
describes another file is an error.

Exit code: 0; 1 if groups overlap; 2 if a row is invalid.
"""

import hashlib
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from data.rows import write_table
from soul.cli.arguments import output_file, positive_share
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadRow
from soul.one_turn import LetterTask
from soul.rows import data_card as card
from soul.rows.overlap import HeldOut, Overlap
from soul.rows.task_files import TaskRow, read_rows, read_table
from soul.table import Table
from soul.tasks import EXTRA


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


def table(reported: Sequence[Report]) -> Table:
    """The reports as a table."""
    head = "file, task, rows, words (min/median/max), duplicates, overlapping rows, groups, answers".split(", ")
    lines = []
    for report in reported:
        answers = " ".join(f"{letter} {share:.0%}" for letter, share in report.answers.items())
        lengths = "/".join(f"{count:,}" for count in report.words)
        rows, groups = (len(report.overlap.rows), report.overlap.groups) if report.overlap else (0, 0)
        counts = (report.duplicates, rows, groups)
        numbers = (f"{report.rows:,}", lengths, *(f"{count:,}" for count in counts))
        lines.append([Path(report.file).name, report.task, *numbers, answers])
    return Table(head, lines, words=frozenset({1}))


def write_without_overlap(report: Sequence[Report], out: Path) -> str:
    """Copy the task file of these reports without its overlapping rows. Returns a line with the counts."""
    overlapping = {number for part in report if part.overlap for number in part.overlap.rows}
    return _copy(report[0].file, out, overlapping, "they share a group with --against")


def write_without_extra(file: str, out: Path) -> str:
    """Copy a task file without the rows of tasks that are no part of SOUL. Returns a line with their counts."""
    names = read_table(file)["data_source"].to_pylist()
    extra = sorted(Counter(name for name in names if name in EXTRA).items())
    counts = ", ".join(f"{name} {count:,}" for name, count in extra) or "none"
    return _copy(file, out, {i for i, name in enumerate(names) if name in EXTRA}, f"no part of SOUL: {counts}")


def _copy(file: str, out: Path, left_out: Set[int], why: str) -> str:
    """Copy a task file without these rows.

    Raises:
        BadRow: no row would be left, or the file cannot be read.
    """
    source = read_table(file)
    kept = [number for number in range(source.num_rows) if number not in left_out]
    if not kept:
        raise BadRow(f"{file}: every row is to be left out ({why}), so {out} would be empty. Use other rows.")
    write_table(source.take(kept), out)
    return f"{out}: {len(kept):,} rows; left out: {len(left_out):,} ({why})"


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Check the files. Returns the exit code."""
    parser = Parser(prog="python -m data.check", description=__doc__)
    parser.add_argument("files", nargs="+", help="parquet files")
    parser.add_argument("--against", nargs="+", default=[], help="files that must not share a group with FILES")
    parser.add_argument("--near", type=positive_share, metavar="SHARE", help="also texts that share this much (0.6)")
    parser.add_argument(
        "--without-overlap", type=output_file, metavar="OUT", help="copy FILE without its overlapping rows"
    )
    parser.add_argument(
        "--without-extra", type=output_file, metavar="OUT", help="copy FILE without rows of tasks that SOUL lacks"
    )
    args = parser.parse_args(arguments)
    if args.without_extra and len(args.files) > 1:
        parser.error("--without-extra copies one file: name one FILE")
    if args.without_overlap and (len(args.files) > 1 or not args.against):
        parser.error("--without-overlap copies one file: name one FILE, and use --against")
    if args.near is not None and not args.against:
        parser.error("--near compares with the rows of --against: use both")
    if args.without_extra:
        print(write_without_extra(args.files[0], args.without_extra))
        args.files = [str(args.without_extra)]
    held_out = HeldOut(read_rows(args.against), args.near)
    reported = [report for file in args.files for report in reports(file, held_out)]
    if args.without_overlap:
        print(write_without_overlap(reported, args.without_overlap))
    Console(width=max(110, Console().width)).print(table(reported).rich("Task files"))
    for file in args.files:
        if (about := card.read(Path(file))) is not None:
            print(f"{card.path_of(Path(file)).name}: {about.summary}")
    for report in reported:
        if report.overlap:
            print(report.overlap)
    return 1 if any(report.overlap for report in reported) else 0


if __name__ == "__main__":
    sys.exit(main())
