"""Read source files (JSON, JSON lines, CSV, parquet) and their fields; ValueError names file, line or row and field."""

import ast
import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ValidationError

from soul.errors import one_line
from soul.files.downloads import remedy
from soul.row_fields import clean_text, gold_letter, option_texts, options_by_letter
from soul.validation_errors import first_problem

_place = ""  # of the record that was read last


def at(where: str) -> str:
    """Remember this place, for the error about a record whose shape no builder expects. Returns it."""
    global _place  # a process builds one file at a time
    _place = where
    return where


def last_place() -> str:
    """The place of the record that was read last, "" if none was."""
    return _place


_AGAIN = "take the file from its source again"


def by_name(paths: Iterable[str | Path]) -> list[Path]:
    """The files ordered by name, whatever the order of `paths`."""
    return sorted(map(Path, paths), key=lambda path: path.name)


@contextmanager
def _readable(path: Path, kind: str) -> Iterator[None]:
    """Turn the errors of a damaged file into a ValueError that names it and what to do."""
    if problem := remedy(path, ""):  # a reader of text, or of rows, would complain about something else
        raise ValueError(f"{path}: {problem}")
    try:
        yield
    except (UnicodeDecodeError, csv.Error, EOFError, zlib.error, gzip.BadGzipFile, pa.ArrowException) as error:
        raise ValueError(f"{path}: not a {kind} file ({one_line(error, 120)}); {_AGAIN}") from error


def _parsed(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON ({error}); {_AGAIN}") from error


def read_text(path: Path) -> str:
    """The text of a UTF-8 file."""
    with _readable(path, "UTF-8 text"):
        return path.read_text(encoding="utf-8")


def read_json(path: Path) -> Any:
    """The content of a JSON file."""
    return _parsed(at(str(path)), read_text(path))


def read_json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, record) for each line that is not blank; the place reads "FILE: line 3". Reads .gz too."""
    # newline="\n": not at U+2028 and similar characters inside JSON strings.
    opened = gzip.open if path.suffix == ".gz" else open
    with _readable(path, "UTF-8 text"), opened(path, "rt", encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                where = at(f"{path}: line {number}")
                yield where, _parsed(where, line)


def read_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, record) of a file of records: JSON lines, parquet, or a JSON list, bare or in `data`.

    Authors publish one form and the hub another; the records are the same. Parquet and lines are read one by one.
    """
    if path.suffix == ".parquet":
        with _readable(path, "parquet"), pq.ParquetFile(path) as file:
            rows = (row for batch in file.iter_batches(500) for row in batch.to_pylist())
            for number, row in enumerate(rows):
                yield at(f"{path}: row {number}"), row
    elif path.suffix == ".json":
        content = read_json(path)
        for number, record in enumerate(content["data"] if isinstance(content, dict) else content):
            yield at(f"{path}: record {number}"), record
    else:
        yield from read_json_lines(path)


def read_csv(path: Path, delimiter: str = ",") -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (place, row) for each row below the header; the place reads "FILE: row 1"."""
    with _readable(path, "CSV"), path.open(newline="", encoding="utf-8") as lines:
        for number, row in enumerate(csv.DictReader(lines, delimiter=delimiter), start=1):
            yield at(f"{path}: row {number}"), row


# ---- the fields of a record ----

RowT = TypeVar("RowT", bound=BaseModel)


def row_of(
    where: str, row_type: type[RowT], raw: Mapping[str, Any], check: Callable[[RowT], object] = lambda row: None
) -> RowT:
    """The record as a row of its task, which `check` accepts."""
    try:
        row = row_type.model_validate({**raw, "index": 0})
        check(row)
    except ValidationError as error:
        problem = first_problem(error)
        raise ValueError(f"{where}: field '{problem.field or 'record'}': {problem.message}") from error
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return row


def required_text(where: str, record: Mapping[str, Any], field: str) -> str:
    """The text of a field, without surrounding white space."""
    value = record.get(field)
    text = clean_text(value) if isinstance(value, str) else ""
    if not text:
        raise ValueError(f"{where}: field '{field}' is missing or empty")
    return text


def text_list(where: str, record: Mapping[str, Any], field: str) -> list[str]:
    """The list of texts that a field holds as a Python literal, which is never run as code."""
    try:
        texts: list[str] = ast.literal_eval(record[field])
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"{where}: field '{field}' is not a Python list of strings: {error}") from error
    return texts


def options_and_gold(where: str, options: Any, answer: Any, fields: str) -> tuple[list[str], str]:
    """The texts of the options without letters, and the letter of the right one.

    Args:
        fields: how the error names the fields of both.
    """
    try:
        texts = option_texts(options)
        return texts, gold_letter(answer, options_by_letter(texts))
    except ValueError as error:
        raise ValueError(f"{where}: {fields}: {error}") from error
