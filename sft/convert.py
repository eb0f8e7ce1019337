"""`soul convert`: write a corpus of any format that the training reads as parquet shards, one layout for all.

    soul convert dumps/*.jsonl.gz --out mine --source support_chats

Conversations become `messages` (role and content); a prompt with its answer becomes `prompt` and `response`; documents
stay `text`. Every row gets a `data_source`. The training reads the same files without this command: use it to join
files of several formats, to name sources and trained sides, or to give a corpus to another program.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from sft.corpus.columns import ORIGIN, READ, check_columns, check_row, origin, without
from sft.corpus.sources import find_files
from sft.encode.layouts import find_layout, layout_columns, standard_row
from sft.encode.messages import BadConversation
from sft.encode.train_roles import UNNAMED, Role
from sft.formats.reading import BEGINS, ENDS, Record, columns_of, read_records
from soul.cli.arguments import output_folder, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadSettings
from soul.files.whole_file import whole_file

SHARD_ROWS = 20_000  # in memory
_TURNS = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_LISTS = ("messages", "prompt")
LONGEST_DOCUMENT = 64 << 20  # characters of a row; a longer text file becomes several documents


class ParquetShards:
    """Writes parquet shards of a limited size. A shard has one set of columns; rows with others go to one of their own.

    Turns of role and content alone are a list of structs; turns with more (tool calls, weights) are kept exactly, as
    JSON in a text, which the training reads as well.
    """

    def __init__(self, folder: Path, stem: str, rows: int) -> None:
        self.folder, self.stem, self.rows = folder, stem, rows
        if old := sorted(folder.glob(f"{stem}*")):
            raise BadSettings(f"{old[0]} exists already. Choose another folder for --out, or delete its shards.")
        self.count = self.shards = 0
        self._rows: dict[pa.Schema, list[Record]] = {}

    def add(self, row: Record) -> None:
        """Append a row."""
        row = {name: _stored(value) if name in _LISTS else value for name, value in row.items()}
        schema = pa.schema([(name, _type(name, value)) for name, value in row.items()])
        rows = self._rows.setdefault(schema, [])
        rows.append(row)
        self.count += 1
        if len(rows) >= self.rows:
            self._write(schema)

    def finish(self) -> None:
        """Write the rows that are left."""
        for schema in list(self._rows):
            self._write(schema)

    def _write(self, schema: pa.Schema) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with whole_file(self.folder / f"{self.stem}{self.shards:05d}.parquet") as partial:
            pq.write_table(pa.Table.from_pylist(self._rows.pop(schema), schema=schema), partial, compression="zstd")
        self.shards += 1


def is_plain(turns: Sequence[Any]) -> bool:
    """Tell whether turns have nothing but role and content, as texts; a null field counts as absent."""
    return all(
        isinstance(turn, dict)
        and turn.keys() <= {"role", "content"}
        and all(isinstance(value, str) for value in turn.values())
        for turn in map(_without_nulls, turns)
    )


def _stored(turns: Any) -> Any:
    """Turns as a list of role and content if they have nothing else, otherwise as JSON."""
    if not isinstance(turns, list):
        return turns
    known = [_without_nulls(turn) for turn in turns]
    return known if is_plain(known) else json.dumps(known, ensure_ascii=False)


def _without_nulls(turn: Any) -> Any:
    return {name: value for name, value in turn.items() if value is not None} if isinstance(turn, dict) else turn


def _type(name: str, value: Any) -> pa.DataType:
    if name in _LISTS and isinstance(value, list):
        return _TURNS
    return {int: pa.int64(), float: pa.float64()}.get(type(value), pa.string())


def converted_rows(file: Path, source: str | None, role: str | None, ignored: Sequence[str] = ()) -> Iterator[Record]:
    """The rows of a file in the common layouts, one after the other.

    Args:
        source: the data_source of rows that have none.
        role: the trained side of rows that name none.
        ignored: columns to leave out, also those that the training does not support.
    """
    found = columns_of(file)
    check_columns(str(file), found, ignored)
    layout = find_layout(found, str(file))
    # A distilled corpus keeps the columns that say which task rows it was played on: tests are compared with them.
    present = [name for name in (*READ, *ORIGIN) if name in found and name not in ignored]
    columns = [*layout_columns(layout, found), *present]
    for number, record in enumerate(_documents(read_records(file, columns))):
        where = f"{file}, row {number}"
        check_row(record, where, ignored)
        record = without(record, ignored)
        common: Record = {"data_source": str(record.get("data_source") or source or UNNAMED)}
        common |= origin(record)
        if role or record.get("train_role"):
            common["train_role"] = _text(record, "train_role", where) or role
        if layout == "text":
            yield common | {"text": _text(record, "text", where)}
            continue
        row, form = standard_row(record, layout, where)
        if tools := row.get("tools"):
            common["tools"] = tools if isinstance(tools, str) else json.dumps(tools)
        if form != "prompt_response":
            yield common | {"messages": row.get("messages")}
        else:
            yield common | _answered(row, where)


def _answered(row: Mapping[str, Any], where: str) -> Record:
    """The columns of a prompt with its response.

    If turns of the prompt hold more than text (tool calls), the row becomes messages of which the response alone is
    trained: such turns are stored as JSON, and a prompt that is a text would be read as one message of the user.
    """
    prompt, response = row.get("prompt"), _text(row, "response", where)
    if not isinstance(prompt, list):
        return {"prompt": _text(row, "prompt", where), "response": response}
    if is_plain(prompt):
        return {"prompt": prompt, "response": response}
    turns = [
        turn | {"train": False} if isinstance(turn, dict) and turn.get("role") == "assistant" else turn
        for turn in prompt
    ]
    return {"train_role": "assistant", "messages": [*turns, {"role": "assistant", "content": response}]}


def _text(record: Mapping[str, Any], name: str, where: str) -> str | None:
    """A field that holds a text, or nothing."""
    value = record.get(name)
    if value is not None and not isinstance(value, str):
        raise BadConversation(f"{where}, field {name}: expected text, got {type(value).__name__}. Fix the row.")
    return value


def _documents(records: Iterable[Record]) -> Iterator[Record]:
    """The rows of a file, with the pieces of a text file joined."""
    pieces: list[str] = []
    for record in records:
        if BEGINS not in record:
            yield record
            continue
        pieces.append(record["text"])
        if record[ENDS] or sum(map(len, pieces)) >= LONGEST_DOCUMENT:
            yield {"text": "".join(pieces)}
            pieces = []


def _parser() -> Parser:
    parser = Parser(prog="soul convert", description=__doc__)
    parser.add_argument("files", nargs="+", help="files, folders or globs")
    parser.add_argument("--out", type=output_folder, required=True, help="folder of the shards")
    parser.add_argument("--split", choices=("train", "val"), default="train", help="in the names of the shards")
    parser.add_argument("--source", help="data_source of the rows that have none (default: the name of their file)")
    parser.add_argument("--train-role", choices=get_args(Role), help="trained side of the rows that name none")
    parser.add_argument("--ignore-column", action="append", default=[], metavar="NAME", help="leave a column out")
    parser.add_argument(
        "--rows", type=positive_int, default=SHARD_ROWS, help=f"rows of a shard, at most ({SHARD_ROWS:,})"
    )
    return parser


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Convert what the command line names."""
    args = _parser().parse_args(arguments)
    groups = find_files(args.files, None, args.split)
    if ratios := [group.name for group in groups if group.ratio != 1]:
        raise BadSettings(f"{ratios[0]}: a ratio is for training. Name the file without it.")
    shards = ParquetShards(args.out, f"{args.split}_shard_", args.rows)
    for file in (file for group in groups for file in group.files):
        before = shards.count
        for row in converted_rows(file, args.source or file.name.split(".")[0], args.train_role, args.ignore_column):
            shards.add(row)
        print(f"{file}: {shards.count - before:,} rows")
    shards.finish()
    print(f"{shards.count:,} rows in {shards.shards} shards in {args.out}")
