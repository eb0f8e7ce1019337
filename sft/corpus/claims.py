"""Which process does which unit, among all processes of all nodes that tokenise the same corpus at once.

A claim is a lock on one byte of a file in the shard's folder: byte n for unit n. The system releases it when its
process ends, in whatever way, so the units of a killed process are free again. The folder must be on a file system
with locks between nodes (NFS 4, Lustre with `flock`, GPFS), as the checkpoints' folder is.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, Protocol, TypeVar

LOCKS = "units.lock"
_TO_THE_END = 0  # as the length of a lock: all bytes from its start on


class ClaimFile:
    """The claims of this process on the units of one shard. Closing it releases them all."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._file = os.open(folder / LOCKS, os.O_RDWR | os.O_CREAT, 0o666)

    def take(self, number: int) -> bool:
        """Claim a unit; False if another process has it."""
        return self._lock(1, number)

    def take_all(self) -> bool:
        """Claim every unit; False if another process has one."""
        return self._lock(_TO_THE_END, 0)

    def _lock(self, length: int, start: int) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
        except (BlockingIOError, PermissionError):  # EAGAIN or EACCES: the systems differ
            return False
        return True

    def release(self, number: int) -> None:
        """Give a unit back."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, number)

    def close(self) -> None:
        """Release all."""
        os.close(self._file)


class Work(Protocol):
    """A shard that is made of units; `UnitShares` asks it what is left to do."""

    @property
    def folder(self) -> Path:
        """Where the shard's files lie."""

    def missing(self) -> list[int]:
        """The units that nobody has finished yet; empty if the shard is complete."""

    def lacks(self, number: int) -> bool:
        """Whether a unit is missing."""

    def finish(self) -> None:
        """Put the finished units together."""


Shard = TypeVar("Shard", bound=Work)


class UnitShares(Generic[Shard]):
    """Gives this process its share of the units of several shards, in order.

    Args:
        shards: the shards that are not complete.
        others_finished: called with the numbers of units that another process has done.
    """

    def __init__(self, shards: list[Shard], others_finished: Callable[[Shard, list[int]], None]) -> None:
        self._left = {shard.folder: shard for shard in shards}
        self._others_finished = others_finished
        self._known = {shard.folder: set(shard.missing()) for shard in shards}
        self._mine: dict[Path, set[int]] = {}
        self._files: dict[Path, ClaimFile] = {}

    def __iter__(self) -> Iterator[tuple[Shard, int] | None]:
        """Yield units to do; None if other processes do all that is left, and one has to wait."""
        while self._left:
            gave = False
            for shard in list(self._left.values()):
                for number in self._free(shard):
                    gave = True
                    yield shard, number
            if not gave and self._left:
                yield None

    def done(self, shard: Shard, number: int) -> None:
        """A unit of this process is finished."""
        self._known[shard.folder].discard(number)
        self._mine[shard.folder].discard(number)
        self._claims(shard).release(number)
        self._settle(shard)

    def close(self) -> None:
        """Release every claim."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _free(self, shard: Shard) -> Iterator[int]:
        """Claim the shard's free units one by one."""
        mine = self._mine.setdefault(shard.folder, set())
        self._settle(shard)
        for number in shard.missing():
            if shard.folder not in self._left:
                return
            if number in mine:
                continue
            if not self._claims(shard).take(number):
                continue
            if shard.lacks(number):  # asked again: it may have been done just before we got the claim
                mine.add(number)
                yield number
            else:
                self._files[shard.folder].release(number)

    def _settle(self, shard: Shard) -> None:
        """Count what others have done, and put the shard together if nothing is missing."""
        missing = set(shard.missing())
        others = self._known[shard.folder] - missing - self._mine.get(shard.folder, set())
        self._known[shard.folder] &= missing | self._mine.get(shard.folder, set())
        if others:
            self._others_finished(shard, sorted(others))
        # A unit can be finished while somebody still does it: by a worker that outlived its killed process a moment.
        # Putting the shard together removes the folder in which the other one writes, so every claim must be free.
        if missing or self._mine.get(shard.folder):
            return
        if self._claims(shard).take_all():
            shard.finish()
            self._left.pop(shard.folder, None)
            self._files.pop(shard.folder).close()

    def _claims(self, shard: Shard) -> ClaimFile:
        # One file at a time for each shard: closing any descriptor of a file gives up this process's locks on it.
        if shard.folder not in self._files:
            self._files[shard.folder] = ClaimFile(shard.folder)
        return self._files[shard.folder]
