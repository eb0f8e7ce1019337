"""Write rows as parquet shards of a limited size, with a bounded number of rows in memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sft.formats.contents import Record
from soul.errors import BadSettings

GROUP_ROWS = 1000
_TURNS = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_PLAIN_TURN = {"role", "content"}
_LISTS = ("messages", "prompt")


class ParquetShards:
    """Use as a context manager. A shard has one set of columns: a row with others begins a new one.

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
        self._buffer: list[Record] = []
        self._schema: pa.Schema | None = None
        self._writer: pq.ParquetWriter | None = None
        self._in_shard = 0

    def __enter__(self) -> ParquetShards:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._flush()
        self._close(whole=kind is None)

    def add(self, row: Record) -> None:
        """Append a row."""
        row = {name: _stored(value) if name in _LISTS else value for name, value in row.items()}
        schema = pa.schema([(name, _type(name, value)) for name, value in row.items()])
        if schema != self._schema or self._in_shard >= self.rows:
            self._flush()
            self._close(whole=True)
            self._schema = schema
        self._buffer.append(row)
        self._in_shard += 1
        self.count += 1
        if len(self._buffer) >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._buffer:
            return
        if self._writer is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.files.append(self.folder / f"{self.stem}{len(self.files):05d}.parquet")
            self._writer = pq.ParquetWriter(_partial(self.files[-1]), self._schema, compression="zstd")
        self._writer.write_table(pa.Table.from_pylist(self._buffer, schema=self._schema))
        self._buffer.clear()

    def _close(self, whole: bool) -> None:
        """Close the shard; without `whole`, remove what is half-written."""
        writer, self._writer, self._in_shard = self._writer, None, 0
        if writer is None:
            return
        writer.close()
        if whole:
            _partial(self.files[-1]).replace(self.files[-1])
        else:
            _partial(self.files.pop()).unlink()


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
