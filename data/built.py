"""The command line that all builders of task files share, and the result that they return.

A builder module says which sources it reads and how their records become rows; `Builder` adds the argument parser, the
output options, the split into files, the report and the error border:

    BUILDER = Builder("data.hitom", __doc__, _rows, sources="SRC.json")
    build, main = BUILDER.build, BUILDER.main
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from data.rows import Record, split_groups, write_rows
from soul.cli.arguments import fraction, output_file, positive_int
from soul.cli.error_border import Parser, keep_traceback, run_command
from soul.errors import SoulError, one_line

Commands: TypeAlias = "argparse._SubParsersAction[Any]"


class BadSource(SoulError):
    """A source cannot be read, or the options ask for something that it does not hold."""


class Converted(NamedTuple):
    """The records of a source, and how many of its rows were left out, by reason."""

    records: list[Record]
    left_out: Counter[str]


class Cleaned(NamedTuple):
    """The records; how many rows were left out, by reason; and what was removed from the rows that stayed."""

    records: list[Record]
    left_out: Counter[str]
    removed: Counter[str]


@dataclass(frozen=True)
class Rows:
    """The rows that a command line asks for, and how to divide them into files.

    Attributes:
        data_source: names the task in every row.
        group_of: the group (story, conversation) of a record; a split keeps the records of one group together.
        left_out: rows of the source that have no record, by reason.
        groups: what the groups are called in the counts.
        answer_position: place of the right answer among the options, to count letters; None if there are no letters.
        drawn: the groups to keep in --out; in a split, the groups of the validation side (instead of --val-fraction).
        notes: see `Built`.
    """

    data_source: str
    records: Sequence[Record]
    group_of: Callable[[Record], str]
    left_out: Mapping[str, int] = field(default_factory=dict)
    groups: str = "stories"
    answer_position: Callable[[Record], int] | None = None
    drawn: Set[str] | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class BuiltFile:
    """A task file that was written.

    Attributes:
        details: further counts, for people: "stories=200 answers: A=31 B=29".
    """

    path: Path
    rows: int
    details: str = ""


@dataclass(frozen=True)
class Built:
    """The result of one builder.

    Attributes:
        files: the files that were written; two if the rows were split.
        left_out: rows of the source that are in no file, by reason.
        notes: other things that the user must know: lines removed inside rows, files that were absent.
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


@dataclass(frozen=True)
class Builder:
    """A builder's command line: `python -m NAME convert SOURCES OPTIONS --out FILE`.

    Attributes:
        name: the module, "data.hitom".
        description: the module's docstring, which --help prints.
        rows: reads the sources of the parsed command line and returns their rows. It raises ValueError (with file,
            record and field) or OSError if it cannot read a source.
        sources: how --help names the source files, which become `args.sources`; "" if `options` adds the arguments.
        options: adds arguments to `convert`.
        more_commands: adds commands beside `convert`; `add_output_arguments` gives them their output options.
    """

    name: str
    description: str | None
    rows: Callable[[argparse.Namespace], Rows]
    sources: str = ""
    options: Callable[[argparse.ArgumentParser], None] | None = None
    more_commands: Callable[[Commands], None] | None = None

    def build(self, arguments: Sequence[str] | None = None) -> Built:
        """Write the files that the command line asks for.

        Raises:
            ValueError: a source cannot be read; names file, record and field.
            OSError: a source does not exist.
        """
        parser = Parser(prog=f"python -m {self.name}", description=self.description)
        commands = parser.add_subparsers(dest="command", required=True)
        converting = commands.add_parser("convert", help="source files -> parquet")
        if self.sources:
            converting.add_argument("sources", type=Path, nargs="+", metavar=self.sources)
        if self.options:
            self.options(converting)
        add_output_arguments(converting)
        if self.more_commands:
            self.more_commands(commands)
        args = parser.parse_args(arguments)
        try:
            rows = self.rows(args)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            sources: list[Path] = args.sources if self.sources else [args.source] if "source" in args else []
            if not sources:  # no file was read: this is a defect
                raise
            raise _unexpected_shape(sources, error) from error
        return write_outputs(args, rows)

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run the command line and print a line of counts for each file. Returns the exit code."""

        def build_and_print() -> None:
            try:
                built = self.build(arguments)
            except ValueError as error:
                raise BadSource(f"{self.name}: {error}") from error
            print("\n".join(built.lines()))

        return run_command(build_and_print)


def _unexpected_shape(sources: Sequence[Path], error: Exception) -> ValueError:
    """The error for a record that no check of the builder foresees."""
    return ValueError(
        f"{', '.join(map(str, sources))}: a record has a shape that this builder does not expect "
        f"({type(error).__name__}: {one_line(error, 200)}). Take the files from their source again. If "
        f"they are as published, report this with the traceback in {keep_traceback(error)}"
    )


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that all builders share: one file (--out), or a split by group (--train-out, --val-out)."""
    parser.add_argument("--out", type=output_file, help="parquet file with all rows")
    parser.add_argument("--train-out", type=output_file, help="parquet file of the training side of a split")
    parser.add_argument("--val-out", type=output_file, help="parquet file of the validation side of a split")
    parser.add_argument(
        "--val-fraction", type=fraction, default=0.2, help="share of the groups to hold out (default 0.2)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of every random choice (default 0)")
    parser.add_argument("--limit", type=positive_int, help="keep only the first N groups (stories, conversations)")


def write_outputs(args: argparse.Namespace, rows: Rows) -> Built:
    """Write the files that `args` (see `add_output_arguments`) asks for.

    Raises:
        ValueError: a record does not fit the file, or the options name no file to write.
    """
    if bool(args.train_out) != bool(args.val_out) or bool(args.out) == bool(args.train_out):
        raise ValueError("give either --out FILE, or both --train-out FILE and --val-out FILE")
    if args.train_out and args.train_out.resolve() == args.val_out.resolve():
        raise ValueError(f"--train-out and --val-out both name {args.train_out}; give two files")
    records, left_out = rows.records, Counter(rows.left_out)
    names = [rows.group_of(record) for record in records]
    if args.limit is not None:
        first = set(list(dict.fromkeys(names))[: args.limit])
        records = [record for record, name in zip(records, names, strict=True) if name in first]
        left_out[f"beyond the first {args.limit} {rows.groups} (--limit)"] = len(names) - len(records)
        names = [name for name in names if name in first]
    parts: list[tuple[Path, list[int]]]
    if args.out:
        parts = [(args.out, [i for i, name in enumerate(names) if rows.drawn is None or name in rows.drawn])]
        left_out[f"in {rows.groups} that were not drawn"] += len(records) - len(parts[0][1])
    else:
        train, val = _sides(names, rows.drawn) if rows.drawn else split_groups(names, args.val_fraction, args.seed)
        parts = [(args.train_out, train), (args.val_out, val)]
    files = []
    for path, places in parts:
        chosen = [records[i] for i in places]
        write_rows(path, rows.data_source, chosen)
        details = f"{rows.groups}={len({names[i] for i in places})}"
        if rows.answer_position is not None:
            letters = Counter(chr(ord("A") + rows.answer_position(record)) for record in chosen)
            details += f" answers: {' '.join(f'{letter}={letters[letter]}' for letter in sorted(letters))}"
        files.append(BuiltFile(path, len(chosen), details))
    return Built(tuple(files), +left_out, tuple(rows.notes))


def _sides(names: Sequence[str], drawn: Set[str]) -> tuple[list[int], list[int]]:
    """The row numbers of the training side and of the validation side, which holds the drawn groups.

    Raises:
        ValueError: no group is left for training.
    """
    sides: tuple[list[int], list[int]] = ([], [])
    for row, name in enumerate(names):
        sides[name in drawn].append(row)
    if not sides[0]:
        raise ValueError(
            f"all {len(set(names))} groups are drawn for --val-out, so --train-out would be empty; draw fewer"
        )
    return sides
