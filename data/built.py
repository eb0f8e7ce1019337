"""What a builder of task files returns: the files it wrote and, with the reason, every row it left out.

A builder module has two functions. `build` parses the builder's command line, writes the files and returns a `Built`;
it raises ValueError or OSError if a source cannot be read. `main` returns `run("data.hitom", build, arguments)`.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from data.rows import Record, split_groups, write_rows
from soul.cli.arguments import fraction, output_file, positive_int
from soul.cli.error_border import run_command
from soul.errors import SoulError


class BadSource(SoulError):
    """A source cannot be read, or the options ask for what it does not have."""


class Converted(NamedTuple):
    """The records made from a source, and how many of its rows were left out, by reason."""

    records: list[Record]
    left_out: Counter[str]


@dataclass(frozen=True)
class BuiltFile:
    """A task file that was written.

    Attributes:
        details: what else is worth knowing of it, for people: "stories=200 answers: A=31 B=29".
    """

    path: Path
    rows: int
    details: str = ""


@dataclass(frozen=True)
class Built:
    """The result of one builder.

    Attributes:
        files: the files that were written; two where the rows were split.
        left_out: rows of the source that are in no file, by reason.
        notes: whatever else the user must know: lines removed inside rows, files that were absent.
    """

    files: tuple[BuiltFile, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Rows written."""
        return sum(file.rows for file in self.files)

    @property
    def remarks(self) -> tuple[str, ...]:
        """A line for each reason why rows were left out, and the notes."""
        return (*counted("left out", self.left_out), *self.notes)

    def lines(self) -> list[str]:
        """What the builder's command line prints."""
        files = [f"{file.path}: rows={file.rows} {file.details}".rstrip() for file in self.files]
        return [*files, *self.remarks]


def counted(what: str, counts: Mapping[str, int]) -> tuple[str, ...]:
    """A line for each reason that applied: "left out: 1,991 (...)", "removed: 3 (...)"."""
    return tuple(f"{what}: {count:,} ({reason})" for reason, count in counts.items() if count)


def run(name: str, build: Callable[[Sequence[str] | None], Built], arguments: Sequence[str] | None) -> int:
    """Run a builder's command line, print what it built, and report its errors. Returns the exit code."""

    def build_and_print() -> None:
        try:
            built = build(arguments)
        except ValueError as error:
            raise BadSource(f"{name}: {error}") from error
        print("\n".join(built.lines()))

    return run_command(build_and_print)


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that all builders share: one file (--out), or a split by group (--train-out, --val-out)."""
    parser.add_argument("--out", type=output_file, help="parquet file with all rows")
    parser.add_argument("--train-out", type=output_file, help="parquet file of the training side of a split")
    parser.add_argument("--val-out", type=output_file, help="parquet file of the validation side of a split")
    parser.add_argument(
        "--val-fraction", type=fraction, default=0.2, help="share of the groups to hold out (default 0.2)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of everything that is drawn (default 0)")
    parser.add_argument("--limit", type=positive_int, help="keep only the first N groups (stories, conversations)")


def write_outputs(
    args: argparse.Namespace,
    data_source: str,
    converted: Converted,
    group_of: Callable[[Record], str],
    *,
    groups: str = "stories",
    answer_position: Callable[[Record], int] | None = None,
    notes: Sequence[str] = (),
    drawn: Set[str] | None = None,
) -> Built:
    """Writes the file(s) that `args` (see `add_output_arguments`) asks for.

    Args:
        group_of: the group (story, conversation) of a record; a split keeps the records of one group together.
        groups: what the groups are called in the counts.
        drawn: the groups to keep in --out; in a split, the groups of the validation side (instead of --val-fraction).
        answer_position: place of the right answer among the options, to count letters; None if there are no letters.

    Raises:
        ValueError: a record does not fit the file, or the options name no file to write.
    """
    if bool(args.train_out) != bool(args.val_out) or bool(args.out) == bool(args.train_out):
        raise ValueError("give either --out FILE, or both --train-out FILE and --val-out FILE")
    if args.train_out and args.train_out.resolve() == args.val_out.resolve():
        raise ValueError(f"--train-out and --val-out both name {args.train_out}; give two files")
    records, left_out = converted.records, Counter(converted.left_out)
    names = [group_of(record) for record in records]
    if args.limit is not None:
        first = set(list(dict.fromkeys(names))[: args.limit])
        records = [record for record, name in zip(records, names, strict=True) if name in first]
        left_out[f"beyond the first {args.limit} {groups} (--limit)"] = len(names) - len(records)
        names = [name for name in names if name in first]
    parts: list[tuple[Path, list[int]]]
    if args.out:
        parts = [(args.out, [i for i, name in enumerate(names) if drawn is None or name in drawn])]
        left_out[f"in {groups} that were not drawn"] += len(records) - len(parts[0][1])
    else:
        train, val = _sides(names, drawn) if drawn else split_groups(names, args.val_fraction, args.seed)
        parts = [(args.train_out, train), (args.val_out, val)]
    files = []
    for path, rows in parts:
        chosen = [records[i] for i in rows]
        write_rows(path, data_source, chosen)
        details = f"{groups}={len({names[i] for i in rows})}"
        if answer_position is not None:
            letters = Counter(chr(ord("A") + answer_position(record)) for record in chosen)
            details += f" answers: {' '.join(f'{letter}={letters[letter]}' for letter in sorted(letters))}"
        files.append(BuiltFile(path, len(chosen), details))
    return Built(tuple(files), +left_out, tuple(notes))


def _sides(names: Sequence[str], drawn: Set[str]) -> tuple[list[int], list[int]]:
    """The rows of the training side and those of the validation side, which is the drawn groups.

    Raises:
        ValueError: nothing is left for training.
    """
    sides: tuple[list[int], list[int]] = ([], [])
    for row, name in enumerate(names):
        sides[name in drawn].append(row)
    if not sides[0]:
        raise ValueError(
            f"all {len(set(names))} groups are drawn for --val-out, so --train-out would be empty; draw fewer"
        )
    return sides
