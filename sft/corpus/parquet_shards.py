"""Write rows as parquet shards of a limited size, with a bounded number of rows in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sft.formats.reading import Record
from soul.errors import BadSettings

GROUP_ROWS = 1000
_TURNS = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_LISTS = ("messages", "prompt")


@dataclass
class _Shard:
    """The shard that takes the rows of one set of columns at the moment."""

    file: Path
    writer: pq.ParquetWriter
    rows: int = 0
    buffer: list[Record] = field(default_factory=list)

    def flush(self) -> None:
        """Write what is in the buffer."""
        self.writer.write_table(pa.Table.from_pylist(self.buffer, schema=self.writer.schema))
        self.buffer = []


class ParquetShards:
    """Use as a context manager. A shard has one set of columns; rows with others go to a shard of their own meanwhile.

    Turns of role and content alone are a list of structs; turns with more (tool calls, weights) are kept exactly, as
    JSON in a text, which the training reads as well.

    Raises:
        BadSettings: the folder already has shards of this name.
    """

    def __init__(self, folder: Path, stem: str, rows: int) -> None:
        self.folder, self.stem, self.rows = folder, stem, rows
        if old := sorted(folder.glob(f"{stem}*")):
            raise BadSettings(f"{old[0]} exists already. Choose another folder for --out, or delete its shards.")
        self.files: list[Path] = []
        self.count = 0
        self._open: dict[pa.Schema, _Shard] = {}

    def __enter__(self) -> ParquetShards:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for schema in list(self._open):
            self._close(schema, whole=kind is None)

    def add(self, row: Record) -> None:
        """Append a row."""
        row = {name: _stored(value) if name in _LISTS else value for name, value in row.items()}
        schema = pa.schema([(name, _type(name, value)) for name, value in row.items()])
        if schema not in self._open:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.files.append(self.folder / f"{self.stem}{len(self.files):05d}.parquet")
            writer = pq.ParquetWriter(_partial(self.files[-1]), schema, compression="zstd")
            self._open[schema] = _Shard(self.files[-1], writer)
        shard = self._open[schema]
        shard.buffer.append(row)
        shard.rows += 1
        self.count += 1
        if sum(len(each.buffer) for each in self._open.values()) >= GROUP_ROWS:
            max(self._open.values(), key=lambda each: len(each.buffer)).flush()
        if shard.rows >= self.rows:
            self._close(schema, whole=True)

    def _close(self, schema: pa.Schema, whole: bool) -> None:
        """Give a shard its name, or remove it if its rows are not complete."""
        shard = self._open.pop(schema)
        if whole:
            shard.flush()
        shard.writer.close()
        if whole:
            _partial(shard.file).replace(shard.file)
        else:
            _partial(shard.file).unlink()
            self.files.remove(shard.file)


def _partial(file: Path) -> Path:
    return file.with_name(f"{file.name}.partial")


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
