"""Check that a command can write to its folders before it starts to work."""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from soul.errors import SoulError
from soul.files.disk_space import is_full, out_of_space


class NotWritable(SoulError):
    """A folder cannot be created or written to."""


def check_writable(folder: str | Path, setting: str) -> None:
    """Check that files can be written to a folder, which need not exist; none is left there.

    Args:
        setting: the setting or variable that names the folder, for the error message.

    Raises:
        NotWritable: with the reason. OutOfSpace: the disk is full.
    """
    try:
        probe(Path(folder))
    except OSError as error:
        raise unwritable(f"{setting}={folder}", Path(folder), error) from error


def unwritable(name: str, folder: Path, error: OSError) -> SoulError:
    """The error to raise where an attempt to write to a folder failed; `name` is how the message refers to it."""
    if is_full(error):
        return out_of_space(folder)
    return NotWritable(f"{name}: cannot write there ({error.strerror or error}). Name a folder that you can write to.")


def probe(folder: Path) -> None:
    """Write a file to the folder, or to the nearest one above that exists, and remove it.

    Permission bits do not tell: a file system may be mounted read-only, and root may write despite the bits.

    Raises:
        OSError: the folder cannot be written to, or its name is too long.
    """
    place = Path(os.path.abspath(folder))
    nearest = next(above for above in (place, *place.parents) if os.path.lexists(above))
    if not nearest.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{nearest} is a file")
    with suppress(FileNotFoundError):
        place.lstat()  # fails if the name is too long
    with tempfile.NamedTemporaryFile(dir=nearest, prefix=".soul-write-test-") as file:
        file.write(b"written")
        file.flush()
