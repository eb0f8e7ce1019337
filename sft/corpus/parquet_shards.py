"""Write rows as parquet shards of a limited size, with a bounded number of rows in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sft.formats.reading import Record
from soul.errors import BadSettings

GROUP_ROWS = 1000
_TURNS = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_PLAIN_TURN = {"role", "content"}
_LISTS = ("messages", "prompt")


class _Shard:
    """The shard that takes the rows of one set of columns at the moment."""

    def __init__(self, file: Path, schema: pa.Schema) -> None:
        self.file, self.schema, self.rows = file, schema, 0
        self.buffer: list[Record] = []
        self._writer: pq.ParquetWriter | None = None

    def add(self, row: Record) -> None:
        self.buffer.append(row)
        self.rows += 1

    def flush(self) -> None:
        """Write what is in the buffer."""
        if self._writer is None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(_partial(self.file), self.schema, compression="zstd")
        self._writer.write_table(pa.Table.from_pylist(self.buffer, schema=self.schema))
        self.buffer.clear()

    def close(self) -> None:
        """Write the rest, and give the file its name."""
        if self.buffer:
            self.flush()
        assert self._writer is not None  # a shard is opened for a row
        self._writer.close()
        _partial(self.file).replace(self.file)

    def drop(self) -> None:
        """Remove what is half-written."""
        if self._writer is not None:
            self._writer.close()
            _partial(self.file).unlink()


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
        self._buffered = 0  # rows of all shards

    def __enter__(self) -> ParquetShards:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for shard in self._open.values():
            if kind is None:
                shard.close()
            else:
                shard.drop()
                self.files.remove(shard.file)

    def add(self, row: Record) -> None:
        """Append a row."""
        row = {name: _stored(value) if name in _LISTS else value for name, value in row.items()}
        shard = self._shard(pa.schema([(name, _type(name, value)) for name, value in row.items()]))
        shard.add(row)
        self.count += 1
        self._buffered += 1
        if self._buffered >= GROUP_ROWS:
            largest = max(self._open.values(), key=lambda shard: len(shard.buffer))
            self._buffered -= len(largest.buffer)
            largest.flush()
        if shard.rows >= self.rows:
            self._buffered -= len(shard.buffer)
            shard.close()
            del self._open[shard.schema]

    def _shard(self, schema: pa.Schema) -> _Shard:
        """The open shard of these columns."""
        if schema not in self._open:
            self.files.append(self.folder / f"{self.stem}{len(self.files):05d}.parquet")
            self._open[schema] = _Shard(self.files[-1], schema)
        return self._open[schema]


def _partial(file: Path) -> Path:
    return file.with_name(f"{file.name}.partial")


def is_plain(turns: Sequence[Any]) -> bool:
    """Whether turns have nothing but role and content, as texts; a null field counts as absent."""
    return all(
        isinstance(turn, dict) and set(turn) <= _PLAIN_TURN and all(isinstance(value, str) for value in turn.values())
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
