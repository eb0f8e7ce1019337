"""Read source files (JSON, JSON lines, CSV, parquet) and their fields; errors name file, line or row, and field."""

from __future__ import annotations

import ast
import csv
import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ijson
import pyarrow as pa
import pyarrow.parquet as pq

from soul.errors import one_line
from soul.row_fields import clean_text, gold_letter, option_texts, options_by_letter

_place = ""  # of the record that was read last
_LFS = "version https://git-lfs"  # how a pointer of Git LFS begins, which a clone may have in place of a file


def at(where: str) -> str:
    """Remember this place, for the error about a record whose shape no builder expects. Returns it."""
    global _place  # a process builds one file at a time
    _place = where
    return where


def last_place() -> str:
    """The place of the record that was read last, "" if none was."""
    return _place


def by_name(paths: Iterable[str | Path]) -> list[Path]:
    """The files ordered by name, whatever the order of `paths`."""
    return sorted(map(Path, paths), key=lambda path: path.name)


def read_text(path: Path) -> str:
    """The text of a UTF-8 file.

    Raises:
        ValueError: the file is not UTF-8 text; names it.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error) from error


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        ValueError: the file is not JSON; names it.
    """
    return _parsed(at(str(path)), read_text(path), "not a JSON file")


def read_json_items(path: Path) -> Iterator[Any] | None:
    """The items of a JSON list, read one by one; None if the file holds something else.

    Raises:
        ValueError: while the items are read: the file is not JSON; names it and the item.
    """
    with path.open("rb") as file:
        if next((char for char in iter(lambda: file.read(1), b"") if not char.isspace()), b"") != b"[":
            return None
    return _items(path)


def _items(path: Path) -> Iterator[Any]:
    number = 0
    with path.open("rb") as file:
        try:
            for item in ijson.items(file, "item", use_float=True):
                yield item
                number += 1
        except (ijson.JSONError, ValueError) as error:
            problem = f"{path}: not a JSON file after item {number} ({one_line(error, 120)})"
            raise ValueError(f"{problem}; take the file from its source again") from error


def cut_torn_line(path: Path) -> None:
    """Cut off the half line that a killed process may have left at the end of a file of lines."""
    text = path.read_bytes()
    whole = text.rfind(b"\n") + 1
    if whole < len(text):
        os.truncate(path, whole)


def read_json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, record) for each line that is not blank, one by one; the place reads "FILE: line 3". Reads .gz too.

    Raises:
        ValueError: a line is not a JSON object; names file and line.
    """
    # newline="\n": not at U+2028 and similar characters inside JSON strings.
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8", newline="\n") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    where = at(f"{path}: line {number}")
                    record = _parsed(where, line, "not JSON")
                    if not isinstance(record, dict):
                        raise ValueError(f"{where}: expected a JSON object, got {line[:60]!r}")
                    yield where, record
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: not a whole gzip file ({error}); take the file from its source again") from error


def read_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, record) of a file of records, one by one: JSON lines, parquet, or a JSON list, bare or in `data`.

    Authors publish one form and the hub another; the records are the same.

    Raises:
        ValueError: the file is none of these, or an item is not an object; names file and item.
    """
    if path.suffix == ".parquet":
        yield from _parquet_records(path)
    elif path.suffix == ".json":
        items = read_json_items(path)
        if items is None:
            content = read_json(path)
            items = content.get("data") if isinstance(content, dict) else None
            if not isinstance(items, list):
                raise ValueError(f"{path}: expected a list of records, or an object with a list 'data'")
        for number, record in enumerate(items):
            if not isinstance(record, dict):
                raise ValueError(f"{path}: record {number}: expected an object, got {type(record).__name__}")
            yield at(f"{path}: record {number}"), record
    else:
        yield from read_json_lines(path)


def _parquet_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(500):
                for row in batch.to_pylist():
                    yield at(f"{path}: row {number}"), row
                    number += 1
    except pa.ArrowException as error:
        head = path.read_bytes()[: len(_LFS)].decode(errors="replace")
        problem = f"{path}: not a readable parquet file ({one_line(error, 120)})"
        raise ValueError(f"{problem}; {_remedy(head)}") from error


def read_csv(path: Path, delimiter: str = ",") -> Iterator[tuple[str, dict[str, str]]]:
    """Yield (place, row) for each row below the header; the place reads "FILE: row 1".

    Raises:
        ValueError: the file is not a CSV file in UTF-8; names it.
    """
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            for number, row in enumerate(csv.DictReader(lines, delimiter=delimiter), start=1):
                yield at(f"{path}: row {number}"), row
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error) from error
    except csv.Error as error:
        raise ValueError(f"{path}: not a CSV file ({error}); take the file from its source again") from error


def _not_utf8(path: Path, error: UnicodeDecodeError) -> ValueError:
    return ValueError(f"{path}: not a text file in UTF-8 ({error.reason} at byte {error.start})")


def _parsed(where: str, text: str, problem: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: {problem} ({error}); {_remedy(text)}") from error


def _remedy(content: str) -> str:
    """The remedy for a file that cannot be read, by its first characters."""
    if content.startswith(_LFS):
        return "it is a pointer of Git LFS: run `git lfs pull` in the clone"
    return "take the file from its source again"


# ---- the fields of a record ----


def required_text(where: str, record: Mapping[str, Any], field: str, hint: str = "") -> str:
    """The text of a field, without surrounding white space.

    Raises:
        ValueError: it is missing, no text, or blank.
    """
    value = record.get(field)
    text = clean_text(value) if isinstance(value, str) else ""
    if not text:
        raise ValueError(f"{where}: field '{field}' is missing or empty{hint}")
    return text


def text_list(where: str, record: Mapping[str, Any], field: str) -> list[str]:
    """The list of texts that a field holds as a Python literal, which is never run as code.

    Raises:
        ValueError: it is no such list, or an empty one.
    """
    text = record.get(field) or ""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"{where}: field '{field}' is not a Python list of strings: {error}") from error
    if not (isinstance(value, list) and value and all(isinstance(item, str) for item in value)):
        raise ValueError(f"{where}: field '{field}' must be a non-empty list of strings, got {text!r:.80}")
    return value


def options_and_gold(where: str, options: Any, answer: Any, fields: str) -> tuple[list[str], str]:
    """The texts of the options without letters, and the letter of the right one.

    Args:
        fields: how the error names the fields of both.

    Raises:
        ValueError: there are fewer than two options, or the answer is not among them.
    """
    try:
        texts = option_texts(options)
        return texts, gold_letter(answer, options_by_letter(texts))
    except ValueError as error:
        raise ValueError(f"{where}: {fields}: {error}") from error
