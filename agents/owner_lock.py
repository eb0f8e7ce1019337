"""A mark that a process is alive: others can tell at once whether the process that left it has ended.

The mark is an empty file that its owner keeps locked (flock). The kernel releases the lock when the process ends, also
by SIGKILL. No process number is compared, so a number that was used again, or one of another container, cannot mislead.
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
    """The mark of one owner, held until `close` or the end of the process.

    A child made by `fork` without `exec` holds the lock too, for as long as it lives.

    Args:
        folder: where the marks are; it is made.

    Attributes:
        name: of the owner, for `is_gone`; no two owners ever have the same.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            mark = uuid.uuid4().hex
            self.name, self._path = f"{_HOST}/{mark}", folder / mark
            self._file = self._path.open("ab")
            with suppress(OSError):  # a file system without locks: then nobody can take this one either
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(self._file.fileno()).st_nlink:
                return
            self._file.close()  # `remove_gone` was between the two calls

    def close(self) -> None:
        """The owner is gone from now on."""
        self._path.unlink(missing_ok=True)
        self._file.close()


def is_gone(folder: Path, name: str) -> bool:
    """Whether an owner has ended. False where this cannot be told: its host is another one, or the file system has no
    locks."""
    host, _, mark = name.rpartition("/")
    return host == _HOST and _is_free(folder / mark)


def remove_gone(folder: Path) -> None:
    """Remove the marks of owners that have ended."""
    for path in folder.iterdir():
        _is_free(path)


def _is_free(path: Path) -> bool:
    """Whether nobody holds the file; a file that nobody holds is removed."""
    try:
        with path.open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
