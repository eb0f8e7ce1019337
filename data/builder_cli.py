"""The command line that all builders of task files share, and the result that they return.

A builder module says which sources it reads and how their records become rows; `Builder` adds the argument parser, the
output options, the split into files, the report and the error border:

    BUILDER = Builder("data.coser", __doc__, _rows, group="plot_id", groups="plots", sources="SRC.json")
    build, main = BUILDER.build, BUILDER.main
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import pyarrow.parquet as pq

from data.reading import at, last_place
from data.rows import Record, divide, draw_groups, split_groups, write_rows
from data.sources import stand_in_of
from soul.cli.arguments import fraction, output_file, positive_int
from soul.cli.error_border import Parser, keep_traceback, run_command
from soul.errors import SoulError, one_line
from soul.rows import data_card as card

Commands: TypeAlias = "argparse._SubParsersAction[Any]"
Option: TypeAlias = Callable[[argparse.ArgumentParser], object]


class BadSource(SoulError):
    """A source cannot be read, or the options ask for something that it does not hold."""


class ModelUse(NamedTuple):
    """What a model was asked for, over all runs of a builder; `usd` is None if the price of a call is unknown."""

    role: str
    model: str
    prompt: str
    calls: int
    usd: float | None


class Decision(NamedTuple):
    """What a builder made of one item of its source, for the report; `reason` says why it was dropped, if it was."""

    key: str
    source: Mapping[str, Any]
    result: Mapping[str, Any]
    reason: str


class Rows(NamedTuple):
    """The rows that a command line asks for.

    Attributes:
        left_out: rows of the source that have no record, by reason.
        removed: what was removed from the rows that stayed, by reason.
        notes: see `Built`.
        task: names the task in every row; None: the builder's own name.
        stands_in: see `Built`.
        models: the models that wrote or checked rows.
        decisions: what was made of each item that a model was asked about.
        draw_groups, draw_rows: draw so many groups, or as many as fit into so many rows, for --out; in a split, for the
            validation side (instead of --val-fraction).
    """

    records: list[Record]
    left_out: Mapping[str, int] = MappingProxyType({})
    removed: Mapping[str, int] = MappingProxyType({})
    notes: Sequence[str] = ()
    task: str | None = None
    stands_in: str = ""
    models: Sequence[ModelUse] = ()
    decisions: Sequence[Decision] = ()
    draw_groups: int | None = None
    draw_rows: int | None = None


class RowStream(NamedTuple):
    """The rows of a source that is too large for memory, in their order.

    Attributes:
        left_out: as in `Rows`; complete once the last record has been read.
    """

    records: Iterator[Record]
    left_out: Mapping[str, int]


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
        models, decisions: see `Rows`.
        stands_in: not "": the rows are not the paper's, and why.
    """

    files: tuple[BuiltFile, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    models: tuple[ModelUse, ...] = ()
    decisions: tuple[Decision, ...] = ()
    stands_in: str = ""

    @property
    def rows(self) -> int:
        """Rows written."""
        return sum(file.rows for file in self.files)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the rows stand in for, a line for each reason why rows were left out, and the notes."""
        return (*([self.stands_in] if self.stands_in else []), *counted("left out", self.left_out), *self.notes)

    def lines(self) -> list[str]:
        """What the builder's command line prints."""
        files = [f"{file.path}: rows={file.rows} {file.details}".rstrip() for file in self.files]
        return [*files, *self.remarks]


def counted(what: str, counts: Mapping[str, int]) -> tuple[str, ...]:
    """A line for each reason that applied: "left out: 1,991 (...)", "removed: 3 (...)"."""
    return tuple(f"{what}: {count:,} ({reason})" for reason, count in counts.items() if count)


def argument(*names: str, **settings: Any) -> Option:
    """An argument of `convert`, described as for `ArgumentParser.add_argument`."""
    return lambda parser: parser.add_argument(*names, **settings)


def draw_argument(name: str, drawn: str) -> Option:
    """The number for `Rows.draw_groups` or `Rows.draw_rows`. `drawn` says what: "N whole conversations"."""
    text = f"draw {drawn} for --out or --val-out; the others go to --train-out, if given"
    return argument(name, type=positive_int, metavar="N", help=text)


@dataclass(frozen=True)
class Builder:
    """A builder's command line: `python -m NAME convert SOURCES OPTIONS --out FILE`.

    Attributes:
        name: the module, "data.hitom".
        description: the module's docstring, which --help prints.
        rows: reads the sources of the parsed command line and returns their rows. It raises ValueError (with file,
            record and field) or OSError if it cannot read a source. A `RowStream` is never in memory as a whole, unless
            the options ask for a split or a limit.
        group: the group (story, conversation) of a record, or the field that names it; a split keeps the records of one
            group together.
        groups: what the groups are called in the counts.
        answer_letter: the letter of a record's right answer, or the field that holds it; None if it has no letters.
        sources: how --help names the source files, which become `args.sources`; "" if `options` adds the arguments.
        options: arguments of `convert`, each made by `argument` or a function that adds to the parser.
        plan: the calls to models that a command line would make, with their price, for a builder that makes some.
        more_commands: adds commands beside `convert`; `add_output_arguments` gives them their output options.
    """

    name: str
    description: str | None
    rows: Callable[[argparse.Namespace], Rows | RowStream]
    group: str | Callable[[Record], str]
    groups: str = "stories"
    answer_letter: str | Callable[[Record], str] | None = None
    sources: str = ""
    options: Sequence[Option] = ()
    plan: Callable[[argparse.Namespace], Sequence[str]] | None = None
    more_commands: Callable[[Commands], None] | None = None

    @property
    def task(self) -> str:
        """The task of the rows, unless they name another."""
        return self.name.removeprefix("data.")

    def build(self, arguments: Sequence[str] | None = None) -> Built:
        """Write the files that the command line asks for.

        Raises:
            ValueError: a source cannot be read; names file, record and field.
            OSError: a source does not exist.
        """
        args = self._parsed(arguments)
        at("")
        try:
            rows = self.rows(args)
            return self._write(args, rows)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            if not last_place():  # no file was read: this is a defect
                raise
            raise _unexpected_shape(error) from error

    def planned(self, arguments: Sequence[str]) -> Sequence[str]:
        """The calls to models that a command line would make, a line for each stage; nothing is asked or written.

        Raises:
            ValueError, OSError: as `build`.
        """
        return self.plan(self._parsed(arguments)) if self.plan else ()

    def _parsed(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        parser = Parser(prog=f"python -m {self.name}", description=self.description)
        commands = parser.add_subparsers(dest="command", required=True)
        converting = commands.add_parser("convert", help="source files -> parquet")
        if self.sources:
            converting.add_argument("sources", type=Path, nargs="+", metavar=self.sources)
        for add in self.options:
            add(converting)
        add_output_arguments(converting)
        if self.more_commands:
            self.more_commands(commands)
        return parser.parse_args(arguments)

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run the command line and print a line of counts for each file. Returns the exit code."""

        def build_and_print() -> None:
            try:
                built = self.build(arguments)
            except ValueError as error:
                raise BadSource(f"{self.name}: {error}") from error
            print("\n".join(built.lines()))
            self._remember(self._parsed(arguments), built)

        return run_command(build_and_print)

    def _remember(self, args: argparse.Namespace, built: Built) -> None:
        """Give files whose rows stand in for others the card that they have from `data.sets`."""
        sources: list[Path] = vars(args).get("sources", [])
        build, stands_in = stand_in_of(self.task, sources, vars(args).get("set")) or (None, "")
        if stands_in:
            print(stands_in)
        if not (stands_in or built.stands_in):
            return
        facts: dict[str, Any] = {"left_out": dict(built.left_out), "notes": list(built.notes)}
        facts["sources"] = [one for path in sources if path.is_file() for one in card.source_files([path], path.parent)]
        if build is not None:
            facts |= {"where": build.where, "licences": [origin.stated() for origin in build.origins]}
        for file in filter(lambda file: file.rows, built.files):
            task = str(pq.read_table(file.path, columns=["data_source"])["data_source"][0])
            about = {"task": task, "rows": file.rows, "builder": f"python -m {self.name} convert", "where": "", **facts}
            card.write_inside(file.path, card.SetCard(**about, stands_in=stands_in or built.stands_in))

    def _write(self, args: argparse.Namespace, rows: Rows | RowStream) -> Built:
        """Write the files that `args` (see `add_output_arguments`) asks for.

        Raises:
            ValueError: a record does not fit the file, or the options name no file to write.
        """
        if bool(args.train_out) != bool(args.val_out) or bool(args.out) == bool(args.train_out):
            raise ValueError("give either --out FILE, or both --train-out FILE and --val-out FILE")
        if args.train_out and args.train_out.resolve() == args.val_out.resolve():
            raise ValueError(f"--train-out and --val-out both name {args.train_out}; give two files")
        if isinstance(rows, RowStream):
            if args.out and args.limit is None:
                return self._write_stream(args.out, rows)
            rows = Rows(list(rows.records), rows.left_out)
        records, left_out = rows.records, Counter(rows.left_out)
        names = [_text_of(self.group, record) for record in records]
        drawn = None
        if rows.draw_groups or rows.draw_rows:
            drawn = draw_groups(names, args.seed, count=rows.draw_groups, rows=rows.draw_rows)
        if args.limit is not None:
            first = set(list(dict.fromkeys(names))[: args.limit])
            records = [record for record, name in zip(records, names, strict=True) if name in first]
            left_out[f"beyond the first {args.limit} {self.groups} (--limit)"] = len(names) - len(records)
            names = [name for name in names if name in first]
        if args.out:
            chosen = [i for i, name in enumerate(names) if drawn is None or name in drawn]
            parts = {args.out: chosen}
            left_out[f"in {self.groups} that were not drawn"] += len(records) - len(chosen)
        else:
            train, val = divide(names, drawn) if drawn else split_groups(names, args.val_fraction, args.seed)
            parts = {args.train_out: train, args.val_out: val}
        task = rows.task or self.task
        files = [self._write_file(path, task, records, names, places) for path, places in parts.items()]
        notes = (*counted("removed", rows.removed), *rows.notes)
        return Built(tuple(files), +left_out, notes, tuple(rows.models), tuple(rows.decisions), rows.stands_in)

    def _write_stream(self, path: Path, rows: RowStream) -> Built:
        """Write all rows as they are read."""
        groups: set[str] = set()
        count = 0

        def counting() -> Iterator[Record]:
            nonlocal count
            for record in rows.records:
                groups.add(_text_of(self.group, record))
                count += 1
                yield record

        write_rows(path, self.task, counting())
        return Built((BuiltFile(path, count, f"{self.groups}={len(groups)}"),), +Counter(rows.left_out))

    def _write_file(
        self, path: Path, task: str, records: Sequence[Record], groups: Sequence[str], places: Sequence[int]
    ) -> BuiltFile:
        chosen = [records[i] for i in places]
        write_rows(path, task, chosen)
        details = f"{self.groups}={len({groups[i] for i in places})}"
        if self.answer_letter is not None:
            letters = Counter(_text_of(self.answer_letter, record) for record in chosen)
            details += f" answers: {' '.join(f'{letter}={letters[letter]}' for letter in sorted(letters))}"
        return BuiltFile(path, len(chosen), details)


def _text_of(what: str | Callable[[Record], str], record: Record) -> str:
    """A field of the record, or what the function makes of the record."""
    return str(record[what]) if isinstance(what, str) else what(record)


def _unexpected_shape(error: Exception) -> ValueError:
    """The error for a record that no check of the builder foresees."""
    return ValueError(
        f"{last_place()}: a shape that this builder does not expect "
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
