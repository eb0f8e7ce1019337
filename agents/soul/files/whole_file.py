"""Write a file whole or not at all: a full disk or a kill leaves the old one."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path, *, shared: bool = False) -> Iterator[Path]:
    """Write a file beside its place; at the end of the block it moves there, once the disk has it.

    Args:
        path: its folder must exist.
        shared: several processes may write this file at once. Each then writes beside it under a name of its own, and
            the last one wins.

    Yields:
        Where the block has to write. If the block raises, that file is removed and `path` stays as it was.

    Raises:
        OSError: the disk is full, or the folder cannot be written to.
    """
    mark = f".{uuid.uuid4().hex[:12]}" if shared else ""
    partial = path.with_name(f"{path.name}{mark}.partial")
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)  # half a file on a full disk helps nobody


def write_whole(path: Path, text: str | Iterable[str]) -> None:
    """Write a text file as `whole_file` does.

    Args:
        text: all of it, or its parts; they are written one by one.

    Raises:
        OSError: the disk is full, or the folder cannot be written to. What was there before is still there.
    """
    with whole_file(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        file.writelines([text] if isinstance(text, str) else text)
