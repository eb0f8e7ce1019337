"""The command line that all builders of task files share, and the result that they return.

A builder module says which sources it reads and how their records become rows; `Builder` adds the argument parser, the
output options, the draw, the report and the error border:

    BUILDER = Builder("data.coser", __doc__, _rows, sources="SRC.json")
"""

import argparse
import importlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from data.reading import at, last_place
from data.rows import Record, draw_groups, write_rows
from soul.cli.arguments import output_file, positive_int
from soul.cli.error_border import Parser, keep_traceback, run_command
from soul.errors import SoulError, one_line
from soul.rows.data_card import ModelCalls
from soul.rows.review import LeftOut
from soul.rows.task_files import parse_row

Commands: TypeAlias = "argparse._SubParsersAction[Any]"
Option: TypeAlias = Callable[[argparse.ArgumentParser], object]


class BadSource(SoulError):
    """A source cannot be read, or the options ask for something that it does not hold."""


class Rows(NamedTuple):
    """The rows that a command line asks for.

    Attributes:
        left_out: rows of the source that have no record, by reason.
        removed: what was removed from the rows that stayed, by reason.
        notes: other things that the user must know.
        task: names the task in every row; None: the builder's own name.
        stands_in: not "": the rows are not the paper's, and why.
        models: the models that wrote or checked rows.
        dropped: the items that were dropped for what a model answered.
    """

    records: list[Record]
    left_out: Mapping[str, int] = MappingProxyType({})
    removed: Mapping[str, int] = MappingProxyType({})
    notes: Sequence[str] = ()
    task: str | None = None
    stands_in: str = ""
    models: Sequence[ModelCalls] = ()
    dropped: Sequence[LeftOut] = ()


class BuiltFile(NamedTuple):
    """A task file that was written."""

    path: Path
    rows: int


class Draw(NamedTuple):
    """A draw of whole groups by seed, of a source that holds both sides: for --out or --val-out.

    Attributes:
        option: of the command line, for the number.
        what: is drawn, for --help: "whole books of up to N rows".
        group: the group (conversation, book) of a record, or the field that names it.
        groups: their name.
        of_rows: the number is one of rows; else of groups.
    """

    option: str
    what: str
    group: str | Callable[[Record], str]
    groups: str
    of_rows: bool = True


@dataclass(frozen=True)
class Built:
    """The result of one builder: one file, or the two sides of a draw. For the other fields see `Rows`."""

    files: tuple[BuiltFile, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    models: tuple[ModelCalls, ...] = ()
    dropped: tuple[LeftOut, ...] = ()
    stands_in: str = ""

    @property
    def rows(self) -> int:
        """Rows written."""
        return sum(file.rows for file in self.files)

    @property
    def remarks(self) -> tuple[str, ...]:
        """The remark on stand-in rows, a line for each reason why rows were left out, and the notes."""
        return (*([self.stands_in] if self.stands_in else []), *counted("left out", self.left_out), *self.notes)


def counted(what: str, counts: Mapping[str, int]) -> tuple[str, ...]:
    """A line for each reason that applied: "left out: 1,991 (...)", "removed: 3 (...)"."""
    return tuple(f"{what}: {count:,} ({reason})" for reason, count in counts.items() if count)


def argument(*names: str, **settings: Any) -> Option:
    """An argument of `convert`, described as for `ArgumentParser.add_argument`."""
    return lambda parser: parser.add_argument(*names, **settings)


@dataclass(frozen=True)
class Builder:
    """A builder's command line: `python -m NAME convert SOURCES OPTIONS --out FILE`.

    Attributes:
        name: the module, "data.hitom".
        description: the module's docstring, which --help prints.
        rows: reads the sources of the parsed command line and returns their rows. As every function of a builder, it
            raises ValueError (with file, record and field) or OSError for a source that it cannot read.
        sources: how --help names the source files, which become `args.sources`; "" if `options` adds the arguments.
        options: arguments of `convert`, each made by `argument` or a function that adds to the parser.
        draw: for a source that holds training and evaluation rows.
        plan: the calls to models that a command line would make, with their price, for a builder that makes some.
        more_commands: adds commands beside `convert`; `add_output_arguments` gives them their output options.
    """

    name: str
    description: str | None
    rows: Callable[[argparse.Namespace], Rows]
    sources: str = ""
    options: Sequence[Option] = ()
    draw: Draw | None = None
    plan: Callable[[argparse.Namespace], Sequence[str]] | None = None
    more_commands: Callable[[Commands], None] | None = None

    def build(self, arguments: Sequence[str] | None = None) -> Built:
        """Write the files that the command line asks for.

        Raises:
            ValueError: a source cannot be read; names file, record and field.
            BadRow: a row does not satisfy its task's schema; names file, row and field.
            OSError: a source does not exist.
        """
        args = self._parsed(arguments)
        at("")
        try:
            return self._write(args, self.rows(args))
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            if not last_place():  # no file was read: this is a defect
                raise
            raise ValueError(
                f"{last_place()}: a shape that this builder does not expect "
                f"({type(error).__name__}: {one_line(error, 200)}). Take the files from their source again. If "
                f"they are as published, report this with the traceback in {keep_traceback(error)}"
            ) from error

    def planned(self, arguments: Sequence[str]) -> Sequence[str]:
        """The calls to models that a command line would make, a line for each stage; nothing is asked or written."""
        return self.plan(self._parsed(arguments)) if self.plan else ()

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run the command line and print a line of counts for each file. Returns the exit code."""

        def build_and_print() -> None:
            try:
                built = self.build(arguments)
            except ValueError as error:
                raise BadSource(f"{self.name}: {error}") from error
            files = [f"{file.path}: rows={file.rows}" for file in built.files]
            print(*files, *built.remarks, sep="\n")

        return run_command(build_and_print)

    def _parsed(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        parser = Parser(prog=f"python -m {self.name}", description=self.description)
        commands = parser.add_subparsers(dest="command", required=True)
        converting = commands.add_parser("convert", help="source files -> parquet")
        if self.sources:
            converting.add_argument("sources", type=Path, nargs="+", metavar=self.sources)
        for add in self.options:
            add(converting)
        add_output_arguments(converting, required=self.draw is None)
        if self.draw:
            drawn = f"draw {self.draw.what} for --out or --val-out; the others go to --train-out, if given"
            converting.add_argument(self.draw.option, dest="draw", type=positive_int, metavar="N", help=drawn)
            converting.add_argument("--train-out", type=output_file, help="parquet file of the training side")
            converting.add_argument("--val-out", type=output_file, help="parquet file of the validation side")
        if self.more_commands:
            self.more_commands(commands)
        return parser.parse_args(arguments)

    def _write(self, args: argparse.Namespace, rows: Rows) -> Built:
        """Write the files that `args` (see `add_output_arguments`) asks for."""
        if not rows.records:
            reasons = ", ".join(f"{count:,} ({reason})" for reason, count in rows.left_out.items()) or "it has none"
            raise ValueError(f"no row is left: {reasons}")
        task = rows.task or self.name.removeprefix("data.")
        for number, record in enumerate(rows.records):
            parse_row(task, record, str(args.out or args.train_out), number)
        left_out = Counter(rows.left_out)
        parts = self._sides(self.draw, args, rows.records, left_out) if self.draw else {args.out: rows.records}
        for path, records in parts.items():
            write_rows(path, task, records)
        files = tuple(BuiltFile(path, len(records)) for path, records in parts.items())
        notes = (*counted("removed", rows.removed), *rows.notes)
        return Built(files, +left_out, notes, tuple(rows.models), tuple(rows.dropped), rows.stands_in)

    @staticmethod
    def _sides(
        draw: Draw, args: argparse.Namespace, records: list[Record], left_out: Counter[str]
    ) -> dict[Path, list[Record]]:
        """The records of each file that the command line asks for."""
        split = bool(args.train_out and args.val_out and args.draw)
        if split == bool(args.out) or bool(args.train_out) != bool(args.val_out):
            raise ValueError(f"give either --out FILE, or {draw.option} N with --train-out FILE and --val-out FILE")
        names = [str(r[draw.group]) if isinstance(draw.group, str) else draw.group(r) for r in records]
        number = {"rows" if draw.of_rows else "count": args.draw}
        drawn = draw_groups(names, args.seed, **number) if args.draw else set(names)
        chosen = [record for record, name in zip(records, names, strict=True) if name in drawn]
        if args.out:
            left_out[f"in {draw.groups} that were not drawn"] += len(records) - len(chosen)
            return {args.out: chosen}
        if drawn == set(names):
            raise ValueError(
                f"all {len(drawn)} {draw.groups} are drawn for --val-out, so --train-out would be empty; draw fewer"
            )
        others = [record for record, name in zip(records, names, strict=True) if name not in drawn]
        return {args.train_out: others, args.val_out: chosen}


def builder_of(module: str) -> Builder:
    """The builder of a module in data/."""
    builder: Builder = importlib.import_module(f"data.{module}").BUILDER
    return builder


def add_output_arguments(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Add the options that all builders share."""
    parser.add_argument("--out", type=output_file, required=required, help="parquet file of the rows")
    parser.add_argument("--seed", type=int, default=0, help="seed of every random choice (default 0)")
