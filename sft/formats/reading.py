"""Describe a file of the corpus, and read any part of it: one entrance for all formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from sft.formats.columnar import describe_arrow, describe_parquet, read_arrow, read_parquet
from sft.formats.contents import Batch, Contents
from sft.formats.json_rows import describe_json, read_json
from sft.formats.names import READABLE, BadShard, named_format, seems_to_be
from sft.formats.plain_text import describe_text, read_text
from soul.errors import one_line


def describe(path: Path) -> Contents:
    """What a file holds. Parquet has an index of its own; every other format is read once, block by block.

    Raises:
        BadShard: the file cannot be read; the message says what it seems to be.
    """
    named = named_format(path)
    if named is None:
        raise BadShard(
            f"{path}: files of this kind are not read; {seems_to_be(path)}. The training reads {READABLE}, and folders "
            "of them."
        )
    try:
        if named.family == "parquet":
            return describe_parquet(path)
        if named.family == "arrow":
            return describe_arrow(path)
        if named.family == "json":
            return describe_json(path, named.compression)
        return describe_text(path, named.compression)
    except BadShard as error:  # no JSON, or no text
        what = seems_to_be(path)
        expected = ("JSON lines", "a JSON array") if named.family == "json" else ("plain text",)
        around = f"{named.compression} with " if named.compression else ""
        if what.startswith(tuple(f"it seems to be {around}{text}" for text in expected)):
            raise
        raise BadShard(f"{error} For the file as a whole: {what}.") from error
    except (pa.ArrowException, OSError) as error:
        kind = f"{named.family} file" + (f" with {named.compression}" if named.compression else "")
        raise BadShard(
            f"{path}: not a readable {kind} ({one_line(error, 200)}); {seems_to_be(path)}. Download or build it again."
        ) from error


def read_batches(path: Path, contents: Contents, groups: Sequence[int], columns: Sequence[str]) -> Iterator[Batch]:
    """The rows of these groups (consecutive, ascending), one small batch after the other.

    Args:
        columns: the columns that must be in the records; formats without columns of their own give all.

    Raises:
        BadShard: the file is damaged there.
    """
    try:
        if contents.kind == "parquet":
            yield from read_parquet(path, groups, columns)
        elif contents.kind == "arrow":
            yield from read_arrow(path, groups, columns)
        elif contents.kind == "text":
            yield from read_text(path, contents, groups)
        else:
            yield from read_json(path, contents, groups)
    except (pa.ArrowException, OSError) as error:
        raise BadShard(
            f"{path}, row groups {tuple(groups)[:3]} and on: cannot be read ({one_line(error, 200)}). Download or "
            "build the file again."
        ) from error
