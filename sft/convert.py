"""`soul convert`: write a corpus of any format that the training reads as parquet shards, one layout for all.

    soul convert dumps/*.jsonl.gz --out mine --source support_chats

Conversations become `messages` (role and content); a prompt with its answer becomes `prompt` and `response`; documents
stay `text`. Every row gets a `data_source`. The training reads the same files without this command: use it to join
files of several formats, to name sources and trained sides, or to give a corpus to another program.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from sft.corpus.columns import ORIGIN, READ, check_columns, check_row, origin, without
from sft.corpus.parquet_shards import ParquetShards, is_plain
from sft.corpus.sources import find_files
from sft.encode.layouts import find_layout, layout_columns, standard_row
from sft.encode.messages import BadConversation
from sft.encode.train_roles import UNNAMED, Role
from sft.formats.reading import BEGINS, ENDS, Record, columns_of, has_schema, read_records
from soul.cli.arguments import output_folder, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadSettings

LONGEST_DOCUMENT = 64 << 20  # characters of a row; a longer text file becomes several documents


def converted_rows(file: Path, source: str | None, role: str | None, ignored: Sequence[str] = ()) -> Iterator[Record]:
    """The rows of a file in the common layouts, one after the other.

    Args:
        source: the data_source of rows that have none.
        role: the trained side of rows that name none.
        ignored: columns to leave out, also those that the training does not support.

    Raises:
        SoulError: the file or a row cannot be read, or has a column that the training does not support; names both.
    """
    found, schema = columns_of(file), has_schema(file)
    check_columns(str(file), found, ignored)
    layout = find_layout(found, str(file))
    # A distilled corpus keeps the columns that say which task rows it was played on: tests are compared with them.
    present = [name for name in (*READ, *ORIGIN) if name in found and name not in ignored]
    columns = [*layout_columns(layout, found), *present]
    for number, record in enumerate(_documents(read_records(file, columns))):
        where = f"{file}, row {number}"
        if not schema:
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
        holder = row.get("extra_info") or {} if form == "extra_info.messages" else row
        if tools := row.get("tools") or holder.get("tools"):
            common["tools"] = tools if isinstance(tools, str) else json.dumps(tools)
        if form != "prompt_response":
            yield common | {"messages": holder.get("messages")}
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
    parser.add_argument("--rows", type=positive_int, default=100_000, help="rows of a shard, at most (100,000)")
    return parser


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Convert what the command line names."""
    args = _parser().parse_args(arguments)
    groups = find_files(args.files, None, args.split)
    if ratios := [group.name for group in groups if group.ratio != 1]:
        raise BadSettings(f"{ratios[0]}: a ratio is for training. Name the file without it.")
    with ParquetShards(args.out, f"{args.split}_shard_", args.rows) as shards:
        for file in (file for group in groups for file in group.files):
            before = shards.count
            for row in converted_rows(file, args.source or _stem(file), args.train_role, args.ignore_column):
                shards.add(row)
            print(f"{file}: {shards.count - before:,} rows")
    print(f"{shards.count:,} rows in {len(shards.files)} shards in {args.out}")


def _stem(file: Path) -> str:
    return file.name.split(".")[0]


if __name__ == "__main__":
    sys.exit(main())
