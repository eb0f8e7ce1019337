"""Write a file whole or not at all: a full disk or a kill leaves the old one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def write_whole(path: Path, text: str | Iterable[str]) -> None:
    """Write a text file beside its place, and move it there once the disk has it.

    Args:
        text: all of it, or its parts; they are written one by one.

    Raises:
        OSError: the disk is full, or the folder cannot be written to. What was there before is still there.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.writelines([text] if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)  # half a file on a full disk helps nobody
        raise
