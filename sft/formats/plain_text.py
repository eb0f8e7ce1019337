"""A plain text file is one document. It is read in pieces, so that a file of any size needs little memory.

A piece ends at the end of a line after which the next one begins with a word: tokenizers split there anyway, so the
pieces have the tokens of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sft.formats.byte_blocks import BOM, open_text, read_blocks
from sft.formats.contents import Contents, Record
from sft.formats.names import BadShard, Compression

PIECE_BYTES = 1 << 20
BEGINS, ENDS = "document_begins", "document_ends"  # of a piece; a row without them is a whole document


@dataclass(frozen=True)
class Piece:
    """A piece of the document as a batch of one row."""

    record: Record
    rows: int = 1

    def records(self, begin: int, end: int) -> list[Record]:
        """The piece."""
        return [self.record][begin:end]


def describe_text(path: Path, compression: Compression | None) -> Contents:
    """Where the pieces of a text file begin."""
    with closing(open_text(path, compression)) as stream:
        start = len(BOM) if stream.peek(len(BOM))[: len(BOM)] == BOM else 0
        stream.read(start)
        edges, place = [start], start
        size = 0
        while line := stream.readline(PIECE_BYTES):
            if size >= PIECE_BYTES and not line[:1].isspace():
                edges.append(_before_character(place, line))
                size = place - edges[-1]
            place += len(line)
            size += len(line)
    if size:
        edges.append(place)
    return Contents("text", (1,) * (len(edges) - 1), ("text",), tuple(edges), compression)


def _before_character(place: int, line: bytes) -> int:
    """Move a border that lies inside of a character (of a line without an end) to the end of that character."""
    within = 0
    while within < min(3, len(line)) and line[within] & 0xC0 == 0x80:
        within += 1
    return place + within


def read_text(path: Path, contents: Contents, groups: Sequence[int]) -> Iterator[Piece]:
    """The pieces of these groups.

    Raises:
        BadShard: the text is not UTF-8.
    """
    last = len(contents.groups) - 1
    for group, block in zip(groups, read_blocks(path, contents, groups), strict=True):
        try:
            text = block.decode()
        except UnicodeDecodeError as error:
            raise BadShard(
                f"{path}, byte {contents.edges[group] + error.start}: the text is not UTF-8. Convert it (iconv -t "
                "UTF-8), or leave the file out."
            ) from error
        yield Piece({"text": text, BEGINS: group == 0, ENDS: group == last})
