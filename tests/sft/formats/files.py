"""The same rows in every format that the training reads."""

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.sft.corpus.corpora import write

Rows = Sequence[Mapping[str, Any]]


def _lines(rows: Rows) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _file(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _parquet(folder: Path, rows: Rows) -> Path:
    return write(folder / "rows.parquet", [dict(row) for row in rows])


def _categories(folder: Path, rows: Rows) -> Path:
    """With a column of categories, as pandas writes it, which differ from row group to row group."""
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist([dict(row) for row in rows])
    kind = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema([pa.field(f.name, kind if f.name == "data_source" else f.type) for f in table.schema])
    with pq.ParquetWriter(folder / "rows.parquet", schema) as writer:
        for start in range(0, len(rows), 20):
            writer.write_table(table.slice(start, 20).cast(schema))
    return folder / "rows.parquet"


def _jsonl(folder: Path, rows: Rows) -> Path:
    return _file(folder / "rows.jsonl", _lines(rows))


def _dressed_lines(folder: Path, rows: Rows) -> Path:
    """With a mark for the byte order, other line ends, blank lines, and no line end at the end."""
    lines = _lines(rows).rstrip(b"\n").replace(b"\n", b"\r\n\r\n")
    return _file(folder / "rows.ndjson", b"\xef\xbb\xbf\n" + lines)


def _gzip(folder: Path, rows: Rows) -> Path:
    """Two gzip members in one file, as parallel compressors write them."""
    half = len(rows) // 2
    return _file(folder / "rows.json.gz", gzip.compress(_lines(rows[:half])) + gzip.compress(_lines(rows[half:])))


def _zstd(folder: Path, rows: Rows) -> Path:
    return _file(folder / "rows.jsonl.zst", pa.compress(_lines(rows), codec="zstd", asbytes=True))


def _array(folder: Path, rows: Rows) -> Path:
    return _file(folder / "rows.json", json.dumps(list(rows), indent=2, ensure_ascii=False).encode())


def _array_in_gzip(folder: Path, rows: Rows) -> Path:
    return _file(folder / "rows.json.gz", gzip.compress(b" \n" + json.dumps(list(rows)).encode()))


def _hub(folder: Path, rows: Rows) -> Path:
    """As a data set lies on the hub."""
    half = len(rows) // 2
    for number, part in enumerate((rows[:half], rows[half:])):
        write(folder / "hub" / "data" / f"train-{number:05d}-of-00002.parquet", [dict(row) for row in part])
    write(folder / "hub" / "data" / "test-00000-of-00001.parquet", [dict(row) for row in rows[:1]])
    (folder / "hub" / "README.md").write_text("about")
    return folder / "hub"


def _shards(folder: Path, rows: Rows) -> Path:
    half = len(rows) // 2
    for number, part in enumerate((rows[:half], rows[half:])):
        _file(folder / "shards" / f"{number}.jsonl.zst", pa.compress(_lines(part), codec="zstd", asbytes=True))
    (folder / "shards" / "README.md").write_text("about")
    return folder / "shards"


WRITERS: dict[str, Callable[[Path, Rows], Path]] = {
    "parquet": _parquet,
    "parquet with categories": _categories,
    "JSON lines": _jsonl,
    "dressed JSON lines": _dressed_lines,
    "JSON lines, gzip": _gzip,
    "JSON lines, zstd": _zstd,
    "JSON array": _array,
    "JSON array, gzip": _array_in_gzip,
    "folder from the hub": _hub,
    "folder of JSON lines": _shards,
}
