"""Files of JSON lines, plain or packed: the one place that knows both forms.

    step_000007.jsonl       one line after the other
    step_000007.jsonl.gz    each line as a gzip member of its own; `zcat` prints the same lines

So a line of a packed file can be read by offset and length, like one of a plain file, and whatever is whole before a
tear can be read. Offsets and lengths count the bytes on disk, in both forms.
"""

import gzip
import logging
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from filelock import FileLock

from soul.errors import SoulError
from soul.files.whole_file import whole_file

logger = logging.getLogger(__name__)

PACKED = ".gz"
_LEVEL = 3  # of gzip; level 6 takes twice the time for files that are a seventh smaller
_CHUNK = 1 << 20  # bytes of a packed file that are read at once
_GZIP = 16 + zlib.MAX_WBITS  # zlib's code for gzip's header and checksum


class DamagedFile(SoulError):
    """A packed file holds something else than packed lines."""


class Line(NamedTuple):
    """A complete line: the byte offsets of its start and end in the file, and its text with the line break."""

    start: int
    end: int
    text: bytes


def is_packed(path: Path) -> bool:
    """True if the file has the packed form, by its name."""
    return path.suffix == PACKED


def packed_form(path: Path) -> Path:
    """The name of the packed form of a plain file."""
    return path.with_name(path.name + PACKED)


def either_form(path: Path) -> Path:
    """The packed form of a plain file where it exists, else the plain file."""
    packed = packed_form(path)
    return packed if packed.exists() else path


def write_lines(path: Path, lines: Iterable[str], pack_above_mb: float | None = None) -> Path:
    """Write a file of lines atomically, and return it. It replaces both forms of an earlier file.

    Args:
        path: the name of the plain form; its folder is created.
        pack_above_mb: pack the file if its lines are larger than this together; None: never.
    """
    encoded = [f"{line}\n".encode() for line in lines]
    packs = pack_above_mb is not None and sum(map(len, encoded)) > pack_above_mb * 1e6
    target, other = (packed_form(path), path) if packs else (path, packed_form(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(target) as partial, partial.open("wb") as file:
        file.writelines(gzip.compress(line, _LEVEL, mtime=0) if packs else line for line in encoded)
    other.unlink(missing_ok=True)
    return target


def append_line(path: Path, text: str) -> None:
    """Append a line to a plain file that several may append to; the half line of a killed process is cut off."""
    with FileLock(f"{path}.lock"), path.open("ab+") as file:
        file.truncate(max((line.end for line in lines_of(file)), default=0))
        file.write(f"{text}\n".encode())


def read_lines(path: Path, start: int = 0) -> Iterator[Line]:
    """The lines of a file, as `lines_of` reads them."""
    with path.open("rb") as file:
        yield from lines_of(file, start)


def lines_of(file: BinaryIO, start: int = 0) -> Iterator[Line]:
    """The complete lines of an open file in either form, from the offset of a line on.

    An incomplete last line is left out: a plain file may be written just now; in a packed one, a warning says where the
    tear is.

    Raises:
        DamagedFile: while lines are read: the file is packed, but not by `write_lines`, or it is damaged.
    """
    file.seek(start)
    if is_packed(Path(file.name)):
        yield from _members(file, start)
        return
    for text in file:
        if text.endswith(b"\n"):
            yield Line(start, start + len(text), text)
        start += len(text)


def line_from(stored: bytes, path: Path) -> bytes:
    """The line of the bytes between a line's `start` and `end` in a file.

    Raises:
        DamagedFile: the file is packed, and these bytes are no packed line.
    """
    try:
        return gzip.decompress(stored) if is_packed(path) else stored
    except (OSError, EOFError, zlib.error) as error:
        raise DamagedFile(f"{path}: no packed line is there ({error})") from None


def _members(file: BinaryIO, start: int) -> Iterator[Line]:
    ahead = b""  # what was read beyond the last member
    while ahead := ahead or file.read(_CHUNK):
        member, text, end, problem = zlib.decompressobj(_GZIP), b"", start, ""
        while not member.eof and not problem:
            if not ahead and not (ahead := file.read(_CHUNK)):
                logger.warning("%s is torn: it ends within a line, at byte %d; later lines are lost", file.name, end)
                return
            try:
                text += member.decompress(ahead)
            except zlib.error as error:
                problem = str(error)
            end += len(ahead) - len(member.unused_data)
            ahead = member.unused_data
        if problem or not text or text.find(b"\n") != len(text) - 1:
            raise DamagedFile(
                f"{file.name}: what begins at byte {start:,} cannot be read ({problem or 'it is not one line'}). If "
                "you packed the file yourself, unpack it (gunzip); otherwise copy it again from where it was written."
            )
        yield Line(start, end, text)
        start = end
