"""What a file of the corpus holds, as far as it must be known to read any part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from sft.formats.names import Compression

Kind = Literal["parquet", "arrow", "json_lines", "json_array", "text"]
Record = dict[str, Any]


class Batch(Protocol):
    """Some rows of a file, not yet turned into Python values."""

    @property
    def rows(self) -> int:
        """How many rows."""

    def records(self, begin: int, end: int) -> list[Record]:
        """Some of the rows."""


@dataclass(frozen=True)
class Contents:
    """The contents of a file.

    Attributes:
        kind: the format.
        groups: number of rows of each part that can be read on its own: a row group, a record batch, a block of bytes.
        columns: names of the columns; the fields of a struct appear as `extra_info.messages`. Of JSON, those of the
            first rows: later rows may have others (`has_schema`).
        edges: for formats without an index of their own, where each group begins, and where the last one ends: bytes
            of the text (of the decompressed text, in a compressed file).
        compression: how the whole file is compressed; to reach a group, one has to read everything before it.
    """

    kind: Kind
    groups: tuple[int, ...]
    columns: tuple[str, ...]
    edges: tuple[int, ...] = ()
    compression: Compression | None = None

    @property
    def rows(self) -> int:
        """Number of rows of the file."""
        return sum(self.groups)

    @property
    def has_schema(self) -> bool:
        """Whether all rows have the same columns."""
        return not self.kind.startswith("json")

    def bytes_of(self, group: int) -> int:
        """How many bytes of text a group has; 0 if its format does not tell."""
        return self.edges[group + 1] - self.edges[group] if self.edges else 0


def column_names(records: Sequence[Record]) -> tuple[str, ...]:
    """The columns of JSON rows, in the order in which they first appear."""
    names: dict[str, None] = {}
    for record in records:
        for name, value in record.items():
            names[name] = None
            if isinstance(value, dict):
                names |= dict.fromkeys(f"{name}.{part}" for part in value)
    return tuple(names)
