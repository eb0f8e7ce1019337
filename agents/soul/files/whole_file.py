"""Write a file atomically: if the disk is full or the process is killed, the old file stays as it was."""

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path, *, shared: bool = False) -> Iterator[Path]:
    """Write to a file beside `path`; at the end of the block it is synced and replaces `path`.

    Args:
        path: its folder must exist.
        shared: several processes may write this file at once. Each writes to its own file beside it; the last wins.

    Yields:
        The path to write to. If the block raises, that file is removed and `path` stays as it was.

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
        partial.unlink(missing_ok=True)


def write_whole(path: Path, text: str | Iterable[str]) -> None:
    """Write a text file atomically, as `whole_file` does.

    Args:
        text: all of it, or an iterable of parts, which are written one by one.

    Raises:
        OSError: as `whole_file`.
    """
    with whole_file(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        file.writelines([text] if isinstance(text, str) else text)
