"""The rows of a corpus file in batches: parquet, JSON lines or a JSON array, JSON also compressed.

A JSON row stays text until somebody asks for its values: `datasets` and pyarrow would give every row of a file the
types of one schema, and so change rows (a date, an absent field, a list beside a text).
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from soul.errors import SoulError, one_line
from soul.files.downloads import remedy

Record = dict[str, Any]
Item = TypeVar("Item")
BATCH_ROWS, BATCH_BYTES = 256, 4 << 20
FIRST_ROWS = 256  # JSON rows whose keys are the columns of the file
_JSON = "a row as JSON"  # the only column of a batch of JSON rows
_BOM = b"\xef\xbb\xbf"

Family = Literal["parquet", "json"]
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd"}
READABLE = ".parquet, .jsonl, .ndjson and .json; JSON also with .gz or .zst"


class BadShard(SoulError):
    """A file of the corpus cannot be read, or lacks the columns of every known layout."""


def family_of(path: Path) -> Family | None:
    """The format that the suffixes of a name stand for; None if it is none that can be read."""
    if path.suffix.lower() == ".parquet":
        return "parquet"
    plain = Path(path.stem) if path.suffix.lower() in COMPRESSIONS else path
    return "json" if plain.suffix.lower() in JSON_SUFFIXES else None


def columns_of(path: Path) -> tuple[str, ...]:
    """The columns of a file (of JSON: of its first rows); the fields of a struct appear as `extra_info.messages`."""
    with _described(path) as family:
        if family == "parquet":
            return _names(pq.read_schema(path))
        names: dict[str, None] = {}
        for number, row in enumerate(islice(_json_rows(path), FIRST_ROWS)):
            for name, value in _parsed(row, f"{path}, row {number}").items():
                names[name] = None
                names |= dict.fromkeys(f"{name}.{part}" for part in value) if isinstance(value, dict) else {}
        return tuple(names)


def read_batches(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """All rows of a file, in small batches, for `records`.

    Args:
        columns: the columns to read of a parquet file; JSON gives all.
    """
    with _described(path) as family:
        if family == "parquet":
            with pq.ParquetFile(path, buffer_size=1 << 20) as parquet:
                yield from map(_plain, parquet.iter_batches(BATCH_ROWS, columns=list(columns)))
        else:
            for rows in batches(_json_rows(path), len, BATCH_ROWS, BATCH_BYTES):
                yield pa.record_batch({_JSON: pa.array(rows, pa.binary())})


def records(batch: pa.RecordBatch, file: str, first: int) -> list[Record]:
    """The rows of a batch as Python values; `file` and the number of the `first` row in it are for errors."""
    if batch.schema.names != [_JSON]:
        rows: list[Record] = batch.to_pylist()
        return rows
    lines = batch.column(0).to_pylist()
    return [_parsed(line, f"{file}, row {number}") for number, line in enumerate(lines, first)]


def read_records(path: Path, columns: Sequence[str]) -> Iterator[Record]:
    """The rows of a file, one by one; raises as `read_batches` and `records`."""
    row = 0
    for batch in read_batches(path, columns):
        yield from records(batch, str(path), row)
        row += batch.num_rows


@contextmanager
def _described(path: Path) -> Iterator[Family]:
    """The format of a file; errors of this block become `BadShard`."""
    family = family_of(path)
    if family is None:
        raise BadShard(
            f"{path}: files of this kind are not read. The training reads {READABLE}, and folders of them. Write a "
            "table (.csv, .tsv, .xlsx) as JSON lines first: pandas' to_json(FILE, orient='records', lines=True)."
        )
    try:
        yield family
    except (pa.ArrowException, OSError) as error:
        advice = remedy(path, "Download it again.")
        raise BadShard(f"{path}: not a readable {family} file ({one_line(error, 200)}). {advice}") from error


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with texts for categories, whose numbers may differ from batch to batch."""
    for place, field in enumerate(batch.schema):
        if pa.types.is_dictionary(field.type):
            batch = batch.set_column(place, field.name, batch.column(place).dictionary_decode())
    return batch


def _names(schema: pa.Schema) -> tuple[str, ...]:
    columns: list[str] = []
    for field in schema:
        inner = field.type if pa.types.is_struct(field.type) else ()
        columns += [field.name, *(f"{field.name}.{part.name}" for part in inner)]
    return tuple(columns)


def _json_rows(path: Path) -> Iterator[bytes]:
    """The rows of a JSON file as text. Lines are not checked yet; an array is read as a whole."""
    compression = COMPRESSIONS.get(path.suffix.lower())
    with closing(BufferedReader(pa.input_stream(str(path), compression=compression), BATCH_BYTES)) as stream:
        if stream.peek(BATCH_BYTES).removeprefix(_BOM).lstrip()[:1] != b"[":
            for number, line in enumerate(stream):
                line = line if number else line.removeprefix(_BOM)
                if line.strip():
                    yield line
            return
        try:
            rows = json.loads(stream.read().removeprefix(_BOM), object_pairs_hook=_object)
        except ValueError as error:
            raise BadShard(f"{path}: not a JSON array ({error}). Fix or download the file again.") from error
    yield from (json.dumps(row).encode() for row in rows)


def batches(items: Iterable[Item], size: Callable[[Item], int], most: int, most_size: int) -> Iterator[list[Item]]:
    """Lists of at most `most` items; one also ends with the item by which its size reaches `most_size`."""
    batch: list[Item] = []
    total = 0
    for item in items:
        batch.append(item)
        total += size(item)
        if len(batch) == most or total >= most_size:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


def _parsed(line: bytes, where: str) -> Record:
    try:
        row = json.loads(line.decode(), object_pairs_hook=_object)
        if b"\\u" in line:
            # Replace each half of a surrogate pair (a cut emoji, as an escape): no tokenizer takes it.
            row = json.loads(json.dumps(row, ensure_ascii=False).encode(errors="replace"))
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError
        advice = remedy(where.rpartition(", row ")[0], "Fix the line, or download the file again.")
        raise BadShard(f"{where}: the line is not JSON ({error}): {line[:60]!r}. {advice}") from error
    if not isinstance(row, dict):
        raise BadShard(f"{where}: the line is {type(row).__name__}, not an object with columns: {line[:60]!r}.")
    return row


def _object(pairs: list[tuple[str, Any]]) -> Record:
    """The object of these keys and values; json itself would take the last of two values without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"the key {next(key for key in found if [k for k, _ in pairs].count(key) > 1)!r} occurs twice")
    return found
