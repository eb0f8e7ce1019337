"""Parquet files, and arrow files as `datasets` saves and caches them (`save_to_disk`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sft.formats.contents import Contents, Record

BATCH_ROWS = 256


@dataclass(frozen=True)
class ArrowBatch:
    """Rows as arrow arrays."""

    batch: pa.RecordBatch

    @property
    def rows(self) -> int:
        """How many rows."""
        return int(self.batch.num_rows)

    def records(self, begin: int, end: int) -> list[Record]:
        """Some of the rows."""
        records: list[Record] = self.batch.slice(begin, end - begin).to_pylist()
        return records


def describe_parquet(path: Path) -> Contents:
    """Row groups and columns, from the footer."""
    with pq.ParquetFile(path) as parquet:
        footer, schema = parquet.metadata, parquet.schema_arrow
        groups = tuple(footer.row_group(number).num_rows for number in range(footer.num_row_groups))
    return Contents("parquet", groups, _columns(schema))


def read_parquet(path: Path, groups: Sequence[int], columns: Sequence[str]) -> Iterator[ArrowBatch]:
    """The rows of these row groups."""
    with pq.ParquetFile(path, buffer_size=1 << 20) as parquet:
        for batch in parquet.iter_batches(BATCH_ROWS, row_groups=list(groups), columns=list(columns)):
            yield ArrowBatch(batch)


def describe_arrow(path: Path) -> Contents:
    """Record batches and columns."""
    with pa.memory_map(str(path)) as file, _open_arrow(file) as reader:
        schema = reader.schema
        groups = tuple(batch.num_rows for batch in _batches(reader))
    return Contents("arrow", groups, _columns(schema))


def read_arrow(path: Path, groups: Sequence[int], columns: Sequence[str]) -> Iterator[ArrowBatch]:
    """The rows of these record batches (consecutive, ascending). Mapped: batches before them cost no reading."""
    names = {column.partition(".")[0] for column in columns}
    with pa.memory_map(str(path)) as file, _open_arrow(file) as reader:
        for number, batch in enumerate(_batches(reader)):
            if number > groups[-1]:
                return
            if number >= groups[0]:
                batch = batch.select([name for name in batch.schema.names if name in names])
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    yield ArrowBatch(batch.slice(start, BATCH_ROWS))


def _open_arrow(file: Any) -> Any:
    """A reader of an arrow stream (`datasets`) or of an arrow file with a footer (`feather`)."""
    magic = file.read(6)
    file.seek(0)
    return pa.ipc.open_file(file) if magic == b"ARROW1" else pa.ipc.open_stream(file)


def _batches(reader: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        return (reader.get_batch(number) for number in range(reader.num_record_batches))
    return iter(reader)


def _columns(schema: pa.Schema) -> tuple[str, ...]:
    columns: list[str] = []
    for field in schema:
        inner = field.type if pa.types.is_struct(field.type) else ()
        columns += [field.name, *(f"{field.name}.{part.name}" for part in inner)]
    return tuple(columns)
