"""Blocks of bytes of a text file, plain or compressed with gzip or zstd (pyarrow's codecs).

A plain file is read from any byte on. A compressed one is decompressed from its start, and what lies before the wanted
block is thrown away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from io import BufferedReader
from pathlib import Path

import pyarrow as pa

from sft.formats.contents import Contents
from sft.formats.names import Compression

BLOCK_BYTES = 4 << 20  # of a block, about; a longer row makes a longer block
MAX_ROW_BYTES = 256 << 20  # a longer row is an error: memory would not hold many of them
BOM = b"\xef\xbb\xbf"


def open_text(path: Path, compression: Compression | None) -> BufferedReader:
    """The bytes of the text of a file."""
    return BufferedReader(pa.input_stream(str(path), compression=compression), BLOCK_BYTES)


def skip(stream: BufferedReader, count: int) -> None:
    """Read over some bytes; a plain file seeks."""
    if stream.seekable():
        stream.seek(count, 1)
        return
    while count > 0 and (read := stream.read(min(count, BLOCK_BYTES))):
        count -= len(read)


def read_blocks(path: Path, contents: Contents, groups: Sequence[int]) -> Iterator[bytes]:
    """The bytes of these groups (consecutive, ascending), one by one.

    Raises:
        OSError: the file is damaged, or has become shorter since it was described.
    """
    edges = contents.edges
    with closing(open_text(path, contents.compression)) as stream:
        skip(stream, edges[groups[0]])
        for group in groups:
            size = edges[group + 1] - edges[group]
            block = stream.read(size)
            if len(block) != size:
                raise OSError(f"{len(block)} of {size} bytes at {edges[group]}; was the file changed?")
            yield block
