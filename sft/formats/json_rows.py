"""JSON rows: one object per line, or one array of objects, as UTF-8.

A file is scanned once for the borders of blocks of a few MiB. The blocks are then read and parsed on their own, so
several processes share a file, and memory holds one block.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from sft.formats.byte_blocks import BLOCK_BYTES, BOM, MAX_ROW_BYTES, open_text, read_blocks
from sft.formats.contents import Contents, Record, column_names
from sft.formats.names import BadShard, Compression

Scanned = tuple[tuple[int, ...], tuple[str, ...], tuple[int, ...]]  # rows of the blocks, columns, edges of the blocks
FIRST_ROWS = 256  # rows whose keys are the columns of the file
BLOCK_ROWS = 1024  # of an array's block, at most
_BETWEEN = " \t\r\n,"  # between the objects of an array


@dataclass(frozen=True)
class LineBatch:
    """Rows as lines of JSON; only the wanted ones are parsed."""

    lines: list[bytes]
    where: str

    @property
    def rows(self) -> int:
        """How many rows."""
        return len(self.lines)

    def records(self, begin: int, end: int) -> list[Record]:
        """Some of the rows."""
        return [_parse(line, self.where) for line in self.lines[begin:end]]


@dataclass(frozen=True)
class ParsedBatch:
    """Rows that are parsed already."""

    parsed: list[Record]

    @property
    def rows(self) -> int:
        """How many rows."""
        return len(self.parsed)

    def records(self, begin: int, end: int) -> list[Record]:
        """Some of the rows."""
        return self.parsed[begin:end]


def describe_json(path: Path, compression: Compression | None) -> Contents:
    """Blocks and columns of a file of JSON rows.

    Raises:
        BadShard: it is not JSON, or a row is too long.
    """
    with closing(open_text(path, compression)) as stream:
        head = stream.peek(BLOCK_BYTES)
        start = len(BOM) if head.startswith(BOM) else 0
        stream.read(start)
        if head[start:].lstrip()[:1] == b"[":
            scan = _ArrayScan(path, stream, start)
            contents = Contents("json_array", *scan.run(), compression)
        else:
            contents = Contents("json_lines", *_scan_lines(path, stream, start), compression)
    return contents


def read_json(path: Path, contents: Contents, groups: Sequence[int]) -> Iterator[LineBatch | ParsedBatch]:
    """The rows of these groups."""
    for group, block in zip(groups, read_blocks(path, contents, groups), strict=True):
        where = f"{path}, bytes {contents.edges[group]:,} to {contents.edges[group + 1]:,}"
        if contents.kind == "json_lines":
            yield LineBatch(_lines(block), where)
        else:
            yield ParsedBatch(_elements(block, where))


def _lines(block: bytes) -> list[bytes]:
    return [line for line in block.split(b"\n") if line.strip()]


def _scan_lines(path: Path, stream: BufferedReader, start: int) -> Scanned:
    groups: list[int] = []
    edges = [start]
    columns: tuple[str, ...] = ()
    rest = b""
    while rest or stream.peek(1):
        more = stream.read(BLOCK_BYTES)
        block = rest + more
        stop = block.rfind(b"\n") + 1 if more else len(block)
        if not stop and len(block) > MAX_ROW_BYTES:
            raise _too_long(path, edges[-1])
        rest = block[stop:]
        if not stop:
            continue
        lines = _lines(block[:stop])
        if not columns and lines:
            columns = column_names([_parse(line, str(path)) for line in lines[:FIRST_ROWS]])
        groups.append(len(lines))
        edges.append(edges[-1] + stop)
    return tuple(groups), columns, tuple(edges)


class _ArrayScan:
    """Finds where the objects of a JSON array begin, without holding more than a few of them.

    The bytes are looked at as Latin-1, in which a character is a byte: structure and escapes of JSON are ASCII, so they
    are found all the same, and places in the text are places in the file.
    """

    def __init__(self, path: Path, stream: BufferedReader, start: int) -> None:
        self.path, self.stream = path, stream
        self.text, self.base, self.place = "", start, 0  # base: byte of the file at which the text begins
        self._entered = False  # after the array's opening bracket
        self._decode = json.JSONDecoder().raw_decode

    def run(self) -> Scanned:
        """Scan to the end."""
        groups: list[int] = []
        first: list[Record] = []
        edges: list[int] = []
        stop = self.base
        while (span := self._next(first)) is not None:
            begin, stop = span
            if not edges or groups[-1] >= BLOCK_ROWS or begin - edges[-1] >= BLOCK_BYTES:
                edges.append(begin)
                groups.append(0)
            groups[-1] += 1
        names = (name.encode("latin-1", "replace").decode(errors="replace") for name in column_names(first))
        return tuple(groups), tuple(names), (*edges, stop)

    def _next(self, first: list[Record]) -> tuple[int, int] | None:
        """Begin and end of the next object, in bytes of the file; None after the last one."""
        while True:
            while self.place < len(self.text) and self.text[self.place] in _BETWEEN:
                self.place += 1
            if self.place == len(self.text):
                if not self._more():
                    raise self._bad("the array does not end: the file is cut off")
            elif not self._entered:
                self._entered = True
                self.place += 1
            elif self.text[self.place] == "]":
                return None
            else:
                return self._object(first)

    def _object(self, first: list[Record]) -> tuple[int, int]:
        while True:
            try:
                row, stop = self._decode(self.text, self.place)
            except json.JSONDecodeError as error:
                open_end = error.msg.startswith("Unterminated string") or error.pos >= len(self.text) - 8
                if not open_end:
                    raise self._bad(f"not JSON ({error.msg})", error.pos) from error
                if len(self.text) - self.place > MAX_ROW_BYTES:
                    raise _too_long(self.path, self.base + self.place) from error
                if not self._more():
                    raise self._bad("the last object does not end: the file is cut off") from error
                continue
            if not isinstance(row, dict):
                raise self._bad(f"expected an object with columns, got {type(row).__name__}")
            if len(first) < FIRST_ROWS:
                first.append(row)
            begin, self.place = self.place, stop
            return self.base + begin, self.base + stop

    def _more(self) -> bool:
        """Read on; drop the text before the current place."""
        more = self.stream.read(max(BLOCK_BYTES, len(self.text) - self.place)).decode("latin-1")
        self.text, self.base, self.place = self.text[self.place :] + more, self.base + self.place, 0
        return bool(more)

    def _bad(self, what: str, place: int | None = None) -> BadShard:
        at = self.base + (self.place if place is None else place)
        return BadShard(f"{self.path}, byte {at:,}: {what}. Fix or download the file again.")


def _parse(line: bytes, where: str) -> Record:
    try:
        row = json.loads(line.decode())
        if b"\\u" in line:
            row = _without_lone_surrogates(row)
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError
        raise BadShard(
            f"{where}: a line is not JSON ({error}): {line[:60]!r}. Fix the line, or download the file again."
        ) from error
    if not isinstance(row, dict):
        raise BadShard(f"{where}: a line is {type(row).__name__}, not an object with columns: {line[:60]!r}.")
    return row


def _elements(block: bytes, where: str) -> list[Record]:
    """The objects of an array's block: it ends with the comma before the next block, or with the last object."""
    try:
        rows: list[Record] = json.loads((b"[" + block.rstrip().removesuffix(b",") + b"]").decode())
        return _without_lone_surrogates(rows) if b"\\u" in block else rows
    except ValueError as error:
        raise BadShard(f"{where}: not JSON ({error}). Fix the file, or download it again.") from error


def _without_lone_surrogates(value: Any) -> Any:
    """Half a surrogate pair (a cut emoji, as an escape) is no character, and no tokenizer takes it."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.loads(text.encode(errors="replace"))
    return value


def _too_long(path: Path, at: int) -> BadShard:
    return BadShard(
        f"{path}, byte {at:,}: a row of more than {MAX_ROW_BYTES >> 20} MiB. Is the whole file one value? Write one "
        "object per line, or an array of objects."
    )
