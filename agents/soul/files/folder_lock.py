"""One writer per folder: a run that trains or evaluates holds the lock of its folder until it ends.

The lock is a lease of the package `filelock`: a file that names its holder (host, process, start) and that the holder
touches every few seconds. A dead process of this machine is replaced at once. On another machine, a holder without a
heartbeat has ended: a run that starts on a new machine after the old one was lost waits for SILENT_S until that is
certain. It does not rely on the clocks of two machines, or on a file system's own locks.

If a holder's heartbeat stalls (a suspended process, a file server that hangs), another process may take the lock over.
The holder then exits at once, because two writers would corrupt the folder.
"""

from __future__ import annotations

import logging
import os
import platform
import sys
import time
from pathlib import Path

from filelock import LeaseCompromise, SoftFileLease, Timeout

from soul.errors import FolderInUse
from soul.files.disk_writes import unwritable

logger = logging.getLogger(__name__)

FILE = ".lease"
HEARTBEAT_S = 10.0
SILENT_S = 90.0  # a holder without a heartbeat for this long has ended, or is cut off and will notice
LOST_LOCK = 1  # exit code


class FolderLock:
    """The lock of one folder, held until `close`, the end of the `with` block or the end of the process.

    Children of this process never hold it.

    Args:
        folder: created if it is missing.
        file: name of the lock file; a folder may have several locks.
        wait_s: seconds to wait for a holder that is about to end; 0: raise at once, unless the holder is on another
            machine or its heartbeat is late.

    Raises:
        FolderInUse: another process holds it; the message names its host and process.
        NotWritable: the folder cannot be created or written to. OutOfSpace: its disk is full.
    """

    def __init__(self, folder: Path, *, file: str = FILE, wait_s: float = 0.0) -> None:
        self.path = folder / file
        self._lease = SoftFileLease(
            self.path,
            lease_duration=SILENT_S,
            heartbeat_interval=HEARTBEAT_S,
            on_compromise=self._end_process,
            thread_local=False,
            poll_interval=0.2,
        )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._take(wait_s)
        except OSError as error:
            raise unwritable(f"{folder} (OUTPUT_DIR)", folder, error) from error

    def close(self) -> None:
        """Release the lock."""
        try:
            self._lease.release()
        except OSError as error:  # must not hide the error that ends the run
            logger.warning("%s: the lock could not be released (%s)", self.path, error)

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, wait_s: float) -> None:
        before = self._lease.owner
        try:
            self._lease.acquire(timeout=0)
        except Timeout:
            if wait_s == 0 and self._beats_here():
                raise FolderInUse(self._in_use()) from None
            wait = max(wait_s, 0 if self._beats_here() else SILENT_S + HEARTBEAT_S)
            logger.warning("Waiting for up to %.0f s for its lock: %s", wait, self._in_use())
            try:
                self._lease.acquire(timeout=wait)
            except Timeout:
                advice = f" If you know that it has ended, remove {self.path}."
                raise FolderInUse(self._in_use() + advice) from None
        if before is not None:
            logger.warning("%s: took over the lock of process %d, which has ended", self.path.parent, before.pid)

    def _beats_here(self) -> bool:
        """True if the holder is on this machine and its heartbeat is not late."""
        owner = self._lease.owner
        here = owner is not None and _host(owner.hostname) == platform.node()
        return here and is_held(self.path.parent, self.path.name)

    def _end_process(self, loss: LeaseCompromise) -> None:
        """Exit at once, from another thread, without any clean-up that would write to the folder."""
        reason = f"This run stops because another process took over its folder ({loss.reason}). {self._in_use()}"
        print(f"\nFolderInUse: {reason}\n", file=sys.stderr, flush=True)
        os._exit(LOST_LOCK)

    def _in_use(self) -> str:
        owner = self._lease.owner
        holder = f"process {owner.pid} on host {_host(owner.hostname)}" if owner else "another process"
        return (
            f"{self.path.parent} is in use by {holder} ({self.path.name}). Wait for it, end it, or name another "
            "folder (EXPERIMENT_NAME, OUTPUT_DIR)."
        )


def is_held(folder: Path, file: str = FILE) -> bool:
    """True if a holder's heartbeat is recent, as far as a reader can tell. Nothing is taken or written."""
    try:
        return time.time() - (folder / file).stat().st_mtime < SILENT_S
    except OSError:
        return False


def _host(name: str) -> str:
    return name.partition("?")[0]  # filelock appends the container's process namespace
