"""Find out at once whether another process, the owner of a resource, has ended.

Each owner keeps an empty file locked (flock). The kernel releases the lock when the process ends, even by SIGKILL.
Process ids would not do: they are reused, and each container has its own.
"""

from __future__ import annotations

import fcntl
import os
import platform
import uuid
from contextlib import suppress
from pathlib import Path

_HOST = platform.node()


class OwnerLock:
    """The locked file of one owner; the lock lasts until `close` or the end of the process.

    A child made by `fork` without `exec` holds the lock too, for as long as it lives.

    Args:
        folder: where all owners keep their files; created if it is missing.

    Attributes:
        name: the owner's unique name, for `is_gone`.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            mark = uuid.uuid4().hex
            self.name, self._path = f"{_HOST}/{mark}", folder / mark
            self._file = self._path.open("ab")
            with suppress(OSError):  # the file system has no locks; `is_gone` is then False
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(self._file.fileno()).st_nlink:
                return
            self._file.close()  # another process removed the file between `open` and `flock`

    def close(self) -> None:
        """End the ownership."""
        self._path.unlink(missing_ok=True)
        self._file.close()


def is_gone(folder: Path, name: str) -> bool:
    """Whether an owner has ended. False if unknown: on another host, or on a file system without locks."""
    host, _, mark = name.rpartition("/")
    return host == _HOST and _is_free(folder / mark)


def remove_gone(folder: Path) -> None:
    """Remove the files of owners that have ended."""
    for path in folder.iterdir():
        _is_free(path)


def _is_free(path: Path) -> bool:
    """Whether nobody holds a lock on the file; if so, remove it."""
    try:
        with path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
