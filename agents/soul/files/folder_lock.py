"""One writer per folder: a run that trains or evaluates holds the lock of its folder until it ends.

The lock is the file `.lock`, which names its holder (host, process, command, start time). Two mechanisms guard it:

- the kernel's lock on that file (flock) decides between processes of one machine. The kernel releases it when the
  process ends, even by SIGKILL;
- shared file systems often lack such locks, or apply them only within each machine. So the holder also touches the file
  every few seconds (heartbeat). A holder on another machine without a heartbeat has ended: a run that starts on a new
  machine after the old one was lost waits until that is certain, at most SILENT_S.

If a holder's heartbeat stalls (a suspended process, a file server that hangs), another process may take the lock over.
The holder then exits at once, because two writers would corrupt the folder.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import math
import os
import platform
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from soul.errors import FolderInUse
from soul.files.writable import unwritable

logger = logging.getLogger(__name__)

FILE = ".lock"
HEARTBEAT_S = 10.0
SILENT_S = 90.0  # a holder on another machine without a heartbeat for this long has probably ended
WATCH_S = 2.5 * HEARTBEAT_S  # watch its file for this long at least: the clocks of two machines may differ
WATCH_POLL_S = 1.0
SETTLE_S = 2.0  # then check whether another process took the lock at the same moment
RECORD_BYTES = 512  # one write of this size replaces the whole record, so a reader never sees half of one
LOST_LOCK = 1  # exit code

Holder = dict[str, str | int]


class FolderLock:
    """The lock of one folder, held until `close`, the end of the `with` block or the end of the process.

    Children of this process never hold it: the file is closed in a child made by `fork`, and by `exec`.

    Args:
        folder: created if it is missing.
        work: what the holder does there, for the message that other processes get: "training", "evaluation".
        file: name of the lock file; a folder may have several locks.
        wait_s: seconds to wait for a holder that is about to end; 0: raise at once.
        on_loss: called in another thread, with a message, when another process has taken over the lock. The default
            prints the message and exits at once, without any clean-up that would write to the folder.

    Raises:
        FolderInUse: another process holds it; the message names its host, process and start.
        NotWritable: the folder cannot be created or written to.
        OutOfSpace: its disk is full.
    """

    def __init__(
        self,
        folder: Path,
        work: str,
        *,
        file: str = FILE,
        wait_s: float = 0.0,
        on_loss: Callable[[str], None] | None = None,
    ) -> None:
        self.path = folder / file
        self._me: Holder = {
            "host": platform.node(),
            "pid": os.getpid(),
            "work": work,
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
            "program": Path(sys.argv[0]).name,
            "machine": _machine(),
            "mark": uuid.uuid4().hex,
        }
        self._on_loss = on_loss or _end_process
        self._closed = threading.Event()
        self._descriptor = -1
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            self._take(wait_s)
        except OSError as error:
            self._close_file()
            raise unwritable(f"{folder} (OUTPUT_DIR)", folder, error) from error
        except BaseException:
            self._close_file()
            raise
        _held.add(self)
        threading.Thread(target=self._beat, name="folder-lock", daemon=True).start()

    def close(self) -> None:
        """Release the lock."""
        if self._descriptor < 0:
            return
        self._closed.set()
        try:
            if _read(self.path).get("mark") == self._me["mark"]:
                _write(self._descriptor, {})
        except OSError as error:  # must not hide the error that ends the run
            logger.warning("%s: the lock could not be released (%s)", self.path, error)
        self._close_file()

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, wait_s: float) -> None:
        start = time.monotonic()
        waiting = False
        while True:
            try:
                kernel_locks = self._lock_in_kernel()
                holder = self._check_holder(kernel_locks)
                break
            except FolderInUse as error:
                if time.monotonic() - start >= wait_s:
                    raise
                if not waiting:
                    logger.warning("Waiting for up to %.0f s: %s", wait_s, error)
                    waiting = True
                time.sleep(min(0.5, wait_s))
        if holder:
            logger.warning("%s: took over the lock of %s, which has ended", self.path.parent, _name(holder))
        _write(self._descriptor, self._me)
        if not kernel_locks:
            time.sleep(SETTLE_S)
            self._refuse_unless_ours()

    def _lock_in_kernel(self) -> bool:
        """Take the kernel's lock. Returns False if the file system has none."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUse(self._in_use(_read(self.path))) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL):
                raise
            logger.warning("%s: no kernel locks here (%s); the heartbeat alone decides", self.path.parent, error)
            return False
        return True

    def _check_holder(self, kernel_locks: bool) -> Holder:
        """The holder that ended without releasing the lock; empty if the lock was released.

        Raises:
            FolderInUse: a holder on another machine is alive, which the kernel's lock does not cover.
        """
        holder = _read(self.path)
        if not holder or (kernel_locks and holder.get("machine") == self._me["machine"]):
            return holder
        before = os.stat(self.path).st_mtime_ns
        left = SILENT_S - (self._file_systems_now() - before / 1e9)
        watch = min(max(left, WATCH_S), SILENT_S)
        watching = "%s: locked by %s; watching for up to %.0f s whether it still lives"
        logger.warning(watching, self.path.parent, _name(holder), watch)
        for _ in range(math.ceil(watch / WATCH_POLL_S)):
            time.sleep(WATCH_POLL_S)
            latest = _read(self.path)
            if not latest:
                return latest
            if latest != holder or os.stat(self.path).st_mtime_ns != before:
                raise FolderInUse(f"{self._in_use(latest)} If you know that it has ended, remove {self.path}.")
        return holder

    def _file_systems_now(self) -> float:
        """The time of the clock that stamps files here; on most shared file systems that is the server's."""
        probe = self.path.with_name(f"{self.path.name}.{self._me['mark']}")
        probe.touch()
        try:
            return probe.stat().st_mtime
        finally:
            probe.unlink()

    def _beat(self) -> None:
        pause = SETTLE_S  # two machines may have started at the same moment
        while not self._closed.wait(pause):
            pause = HEARTBEAT_S
            try:
                self._refuse_unless_ours()
                os.utime(self._descriptor)
            except FolderInUse as error:
                if not self._closed.is_set():
                    self._on_loss(f"This run stops because another process took over its folder: {error}")
                return
            except OSError as error:
                if not self._closed.is_set():
                    logger.warning("%s: the heartbeat of this run's lock failed (%s)", self.path, error)

    def _refuse_unless_ours(self) -> None:
        holder = _read(self.path)
        if holder.get("mark") != self._me["mark"]:
            raise FolderInUse(self._in_use(holder))

    def _in_use(self, holder: Holder) -> str:
        return (
            f"{self.path.parent} is in use by {_name(holder)}. Wait for it, end it, or name another folder "
            "(EXPERIMENT_NAME, OUTPUT_DIR)."
        )

    def _close_file(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_held(folder: Path, file: str = FILE) -> bool:
    """Whether a holder's heartbeat is recent, as far as a reader can tell. Nothing is taken or written."""
    try:
        recent = time.time() - (folder / file).stat().st_mtime < SILENT_S
    except OSError:
        return False
    return recent and bool(_read(folder / file))


def _read(path: Path) -> Holder:
    """The record in the file; empty if nobody holds the lock. Reopening the file gets a file server's latest state."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return {"work": "its lock was removed"}
    try:
        return dict(json.loads(text or b"{}"))
    except (ValueError, TypeError):  # half written, or written by another program
        return {"work": "unknown"}


def _write(descriptor: int, holder: Holder) -> None:
    os.pwrite(descriptor, json.dumps(holder).encode().ljust(RECORD_BYTES) if holder else b"".ljust(RECORD_BYTES), 0)
    if not holder:
        os.ftruncate(descriptor, 0)
    os.fsync(descriptor)


def _machine() -> str:
    """An id of the running kernel; host names are not unique across machines and containers."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()


def _name(holder: Holder) -> str:
    if "pid" not in holder:
        return f"another process ({holder.get('work', 'unknown')})"
    return (
        f"process {holder['pid']} on host {holder.get('host')} ({holder.get('work')}, "
        f"{holder.get('program')}, since {holder.get('since')})"
    )


def _end_process(message: str) -> None:
    print(f"\nFolderInUse: {message}\n", file=sys.stderr, flush=True)
    os._exit(LOST_LOCK)


_held: weakref.WeakSet[FolderLock] = weakref.WeakSet()


def _forget_in_child() -> None:
    for lock in _held:  # closing this copy of the descriptor does not release the parent's lock
        lock._close_file()


os.register_at_fork(after_in_child=_forget_in_child)
