"""The rows of a corpus file of any format, in batches: parquet, arrow, JSON lines, a JSON array, plain text.

A file is read once, from its beginning, so memory holds one batch. A JSON row stays text until somebody asks for its
values: `datasets` and pyarrow would give every row of a file the types of one schema, and so change rows (a date, an
absent field, a list beside a text). A plain text file is one document, in pieces that end before a line that begins
with a word: tokenizers split there anyway, so the pieces have the tokens of the whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from io import BufferedReader, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sft.formats.names import READABLE, BadShard, NamedFormat, named_format, seems_to_be
from soul.errors import one_line

Record = dict[str, Any]
BATCH_ROWS, BATCH_BYTES = 256, 4 << 20
PIECE_BYTES = 1 << 20  # of a plain text, about
MAX_ROW_BYTES = 256 << 20  # a longer row is an error: memory would not hold many of them
FIRST_ROWS = 256  # JSON rows whose keys are the columns of the file
BEGINS, ENDS = "document_begins", "document_ends"  # of a piece; a row without them is a whole document
_JSON = "a row as JSON"  # the only column of a batch of JSON rows
_BETWEEN = tuple(" \t\r\n,")  # the objects of an array


def columns_of(path: Path) -> tuple[str, ...]:
    """The columns of a file; the fields of a struct appear as `extra_info.messages`. Of JSON, those of the first rows.

    Raises:
        BadShard: the file cannot be read; the message says what it seems to be.
    """
    with _described(path) as named:
        if named.family == "parquet":
            return _names(pq.read_schema(path))
        if named.family == "arrow":
            with _arrow(path) as reader:
                return _names(reader.schema)
        if named.family == "text":
            return ("text",)
        first = islice(_json_rows(path, named), FIRST_ROWS)
        names: dict[str, None] = {}
        for number, row in enumerate(first):
            for name, value in _parsed(row, f"{path}, row {number}").items():
                names[name] = None
                names |= dict.fromkeys(f"{name}.{part}" for part in value) if isinstance(value, dict) else {}
        return tuple(names)


def has_schema(path: Path) -> bool:
    """Tell whether all rows of a file have the same columns. A later row of a JSON file may have others."""
    named = named_format(path)
    return named is None or named.family != "json"


def read_batches(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """All rows of a file, in small batches, for `records`.

    Args:
        columns: the columns to read; formats without columns of their own give all.

    Raises:
        BadShard: the file is damaged.
    """
    with _described(path) as named:
        if named.family == "parquet":
            with pq.ParquetFile(path, buffer_size=1 << 20) as parquet:
                yield from map(_plain, parquet.iter_batches(BATCH_ROWS, columns=list(columns)))
        elif named.family == "arrow":
            wanted = {column.partition(".")[0] for column in columns}
            with _arrow(path) as reader:
                chosen = [name for name in reader.schema.names if name in wanted]
                for batch in _arrow_batches(reader):
                    for start in range(0, batch.num_rows, BATCH_ROWS):
                        yield _plain(batch.select(chosen).slice(start, BATCH_ROWS))
        elif named.family == "json":
            for rows in _by_size(_json_rows(path, named)):
                yield pa.record_batch({_JSON: pa.array(rows, pa.binary())})
        else:
            for piece in _pieces(path, named):
                yield pa.RecordBatch.from_pylist([piece])


def records(batch: pa.RecordBatch, file: str, first: int) -> list[Record]:
    """The rows of a batch as Python values.

    Args:
        file: the file, for errors.
        first: the number of the first row in the file.

    Raises:
        BadShard: a row is not JSON.
    """
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
def _described(path: Path) -> Iterator[NamedFormat]:
    """The format of a file; errors of this block become `BadShard` with what the file seems to be."""
    named = named_format(path)
    if named is None:
        raise BadShard(
            f"{path}: files of this kind are not read; {seems_to_be(path)}. The training reads {READABLE}, and folders "
            "of them."
        )
    try:
        yield named
    except BadShard as error:  # not JSON
        what, around = seems_to_be(path), f"{named.compression} with " if named.compression else ""
        if what.startswith(tuple(f"it seems to be {around}{kind}" for kind in ("JSON lines", "a JSON array"))):
            raise
        raise BadShard(f"{error} For the file as a whole: {what}.") from error
    except UnicodeDecodeError as error:
        raise BadShard(
            f"{path}: the text is not UTF-8 ({error.reason}); {seems_to_be(path)}. Convert it (iconv -t UTF-8), or "
            "leave the file out."
        ) from error
    except (pa.ArrowException, OSError) as error:
        kind = f"{named.family} file" + (f" with {named.compression}" if named.compression else "")
        raise BadShard(
            f"{path}: not a readable {kind} ({one_line(error, 200)}); {seems_to_be(path)}. Download or build it again."
        ) from error


# ---- arrow files: as a stream (`datasets`), or with a footer (`feather`) ----


@contextmanager
def _arrow(path: Path) -> Iterator[Any]:
    with pa.memory_map(str(path)) as file:
        magic = file.read(6)
        file.seek(0)
        with pa.ipc.open_file(file) if magic == b"ARROW1" else pa.ipc.open_stream(file) as reader:
            yield reader


def _arrow_batches(reader: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, pa.ipc.RecordBatchFileReader):
        return (reader.get_batch(number) for number in range(reader.num_record_batches))
    return iter(reader)


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


# ---- JSON and plain text, perhaps compressed ----


def _open(path: Path, named: NamedFormat) -> BufferedReader:
    return BufferedReader(pa.input_stream(str(path), compression=named.compression), BATCH_BYTES)


def _json_rows(path: Path, named: NamedFormat) -> Iterator[bytes]:
    """The rows of a JSON file as text, not yet checked."""
    with closing(_open(path, named)) as stream:
        head = stream.peek(BATCH_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
        yield from _elements(path, stream) if head[:1] == b"[" else _lines(path, stream)


def _lines(path: Path, stream: BufferedReader) -> Iterator[bytes]:
    number, line = 0, stream.readline(MAX_ROW_BYTES).removeprefix(b"\xef\xbb\xbf")
    while line:
        if len(line) == MAX_ROW_BYTES:
            raise _too_long(path, number)
        if line.strip():
            yield line
            number += 1
        line = stream.readline(MAX_ROW_BYTES)


def _elements(path: Path, stream: BufferedReader) -> Iterator[bytes]:
    """The objects of an array, as text. No more of the file is in memory than a few of them."""
    file, decode = TextIOWrapper(stream, "utf-8-sig"), json.JSONDecoder().raw_decode
    text, number = file.read(BATCH_BYTES), 0
    place = text.index("[") + 1
    while True:
        while text[place : place + 1] in _BETWEEN:
            place += 1
        if text[place : place + 1] == "]":
            return
        try:
            row, stop = decode(text, place)
        except json.JSONDecodeError as error:
            # An error at the end of what is read says only that the object goes on behind it.
            if not error.msg.startswith("Unterminated string") and error.pos < len(text) - 8:
                raise BadShard(f"{path}, row {number}: not JSON ({error}). Fix or download the file again.") from error
            if len(text) - place > MAX_ROW_BYTES:
                raise _too_long(path, number) from error
            more = file.read(max(BATCH_BYTES, len(text) - place))
            if not more:
                raise BadShard(
                    f"{path}, row {number}: the array does not end: the file is cut off. Download it again."
                ) from error
            text, place = text[place:] + more, 0
            continue
        if not isinstance(row, dict):
            raise BadShard(f"{path}, row {number}: expected an object, got {type(row).__name__}.")
        yield text[place:stop].encode(errors="surrogatepass")
        place, number = stop, number + 1


def _too_long(path: Path, number: int) -> BadShard:
    return BadShard(
        f"{path}, row {number}: a row of more than {MAX_ROW_BYTES >> 20} MiB. Is the whole file one value? Write one "
        "object per line, or an array of objects."
    )


def _by_size(rows: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row)
        if len(batch) == BATCH_ROWS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _parsed(line: bytes, where: str) -> Record:
    try:
        row = json.loads(line.decode())
        if b"\\u" in line:
            row = _without_lone_surrogates(row)
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError
        raise BadShard(
            f"{where}: the line is not JSON ({error}): {line[:60]!r}. Fix the line, or download the file again."
        ) from error
    if not isinstance(row, dict):
        raise BadShard(f"{where}: the line is {type(row).__name__}, not an object with columns: {line[:60]!r}.")
    return row


def _without_lone_surrogates(value: Any) -> Any:
    """Replace each half of a surrogate pair (a cut emoji, as an escape): no tokenizer takes it."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.loads(text.encode(errors="replace"))
    return value


def _pieces(path: Path, named: NamedFormat) -> Iterator[Record]:
    begins, lines, size = True, list[str](), 0
    with closing(_open(path, named)) as stream:
        text = TextIOWrapper(stream, "utf-8-sig", newline="\n")
        while line := text.readline(PIECE_BYTES):
            if size >= PIECE_BYTES and not line[0].isspace():
                yield {"text": "".join(lines), BEGINS: begins, ENDS: False}
                begins, lines, size = False, [], 0
            lines.append(line)
            size += len(line.encode())
    if lines:
        yield {"text": "".join(lines), BEGINS: begins, ENDS: True}
