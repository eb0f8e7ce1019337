"""Answers on disk: the same question is paid for once, across processes and after a crash.

The cache is one SQLite file in WAL mode, which many processes of one machine can write at the same time. (WAL needs
shared memory, so on a cluster each machine has its own file.) The key is a hash of everything that determines the
answer. A process claims a call before it makes it, so that other processes wait for the answer instead of paying for it
again. A claim ends with its process, even if that is killed (owner_lock.py). Only answers that satisfied their schema
are stored.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from soul.errors import BadCache
from soul.files import owner_lock

logger = logging.getLogger(__name__)

_FORMAT = 1  # part of every key: raise it when the meaning of an answer changes
_CHECK_EVERY = 256  # writes between two checks of the size
_EVICT = 0.2  # share of a full file to delete, least recently used answers first
_BUSY_S = 10.0  # how long to wait for another process's lock
_SLOW_S = 1.0  # log an operation that takes longer, because it blocks every call of this process
_LOOK_EVERY_S = 1.0  # between two checks whether the owner of a claim is alive, shared by all calls that wait for it

_TABLES = """
CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, text TEXT NOT NULL, used REAL NOT NULL);
CREATE INDEX IF NOT EXISTS answers_used ON answers (used);
CREATE TABLE IF NOT EXISTS claims (key BLOB PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
"""


def key_of(request: Mapping[str, Any]) -> bytes:
    """The SHA-256 key of a request; `request` holds everything that determines the answer, as JSON values."""
    whole = {"format": _FORMAT, **request}
    text = json.dumps(whole, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class Cache:
    """The answers in one file.

    An error after the file is open, such as a full disk, costs money but does not stop the run: it is logged once, and
    the question is asked again.

    Args:
        path: the file; its folder is created.
        max_mb: the size at which the least recently used answers are deleted.

    Raises:
        BadCache: the file is not a cache, or cannot be written.
    """

    def __init__(self, path: Path, max_mb: float = 2048) -> None:
        self.path, self.max_bytes = path, int(max_mb * 1e6)
        self._owners = path.with_name(f"{path.name}.owners")
        self._seen_alive: dict[str, float] = {}  # owner -> time of the last check that found it alive
        self._writes = 0
        self._warned = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            address = f"file:{quote(str(path.absolute()))}"
            self._db = sqlite3.connect(
                address, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA auto_vacuum=INCREMENTAL")
            self._use_wal()
            self._db.execute("PRAGMA synchronous=NORMAL")  # a power cut may lose the last answers, never the file
            self._db.executescript(_TABLES)
            self._lock = owner_lock.OwnerLock(self._owners)
            owner_lock.remove_gone(self._owners)
        except (OSError, sqlite3.Error) as error:
            raise BadCache(
                f"The judge's cache {path} cannot be used: {error}. Remove the file, name another folder with "
                "judge.cache_dir, or turn the cache off with judge.cache=false (--no-cache)."
            ) from error
        self.owner = self._lock.name
        with self._forgiving():
            self._db.execute("DELETE FROM claims WHERE until < ?", (time.time(),))
            self._shrink()  # a short run never reaches the next check

    def _use_wal(self) -> None:
        # SQLite waits for most locks itself, but not for this one if two processes open a new file at the same moment.
        deadline = time.monotonic() + _BUSY_S
        while True:
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def get(self, key: bytes) -> str | None:
        """The text of the answer; None if there is none yet."""
        row = None
        with self._forgiving():
            row = self._db.execute("SELECT text, used FROM answers WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        now = time.time()
        if now - row[1] > 3600:  # an hour's resolution is enough for eviction, and saves a write on most hits
            with self._forgiving():
                self._db.execute("UPDATE answers SET used = ? WHERE key = ?", (now, key))
        return str(row[0])

    def claim(self, key: bytes, seconds: float) -> Literal["mine", "theirs"]:
        """Claim the call for this process.

        Args:
            seconds: how long the claim lasts at most. It also ends when its process ends, except on another host or on
                a file system without locks.

        Returns:
            "theirs" if another process makes the call or has just made it: look again later.
        """
        with self._forgiving():
            if self._is_theirs(key):  # check before taking the write lock, because many calls may be waiting
                return "theirs"
            with self._transaction():
                if self._is_theirs(key):
                    return "theirs"
                self._db.execute("REPLACE INTO claims VALUES (?, ?, ?)", (key, self.owner, time.time() + seconds))
        return "mine"

    def _is_theirs(self, key: bytes) -> bool:
        row = self._db.execute("SELECT owner, until FROM claims WHERE key = ?", (key,)).fetchone()
        if row is not None and row[0] != self.owner and row[1] > time.time() and self._is_alive(row[0]):
            return True
        # Read the text, so that an unreadable answer counts as missing here as well as in `get`.
        return self._db.execute("SELECT text FROM answers WHERE key = ?", (key,)).fetchone() is not None

    def _is_alive(self, owner: str) -> bool:
        now = time.monotonic()
        if now - self._seen_alive.get(owner, -_LOOK_EVERY_S) < _LOOK_EVERY_S:
            return True
        if not owner_lock.is_gone(self._owners, owner):
            self._seen_alive[owner] = now
            return True
        logger.info("%s has ended without its answers: its claims in the judge's cache are free", owner)
        self._db.execute("DELETE FROM claims WHERE owner = ?", (owner,))
        return False

    def seconds_left(self, key: bytes) -> float:
        """How long the claim on a call lasts at most, in seconds; 0 if there is none."""
        row = None
        with self._forgiving():
            row = self._db.execute("SELECT until FROM claims WHERE key = ?", (key,)).fetchone()
        return 0.0 if row is None else max(0.0, row[0] - time.time())

    def put(self, key: bytes, text: str) -> None:
        """Store an answer, and release the claim."""
        with self._forgiving():
            with self._transaction():
                self._db.execute("REPLACE INTO answers VALUES (?, ?, ?)", (key, text, time.time()))
                self._db.execute("DELETE FROM claims WHERE key = ?", (key,))
            self._writes += 1
            if self._writes % _CHECK_EVERY == 0:
                self._shrink()

    def release(self, key: bytes) -> None:
        """Release the claim without an answer."""
        with self._forgiving():
            self._db.execute("DELETE FROM claims WHERE key = ? AND owner = ?", (key, self.owner))

    def close(self) -> None:
        """Close the file; the claims of this process end."""
        self._db.close()
        self._lock.close()

    def size(self) -> int:
        """Bytes in use."""
        pages, free, page = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * page)

    @contextmanager
    def _forgiving(self) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        except sqlite3.Error as error:
            if not self._warned:
                logger.warning(
                    "The judge's cache %s fails: %s. Answers it cannot store must be paid for again.", self.path, error
                )
            self._warned = True
        finally:
            if (seconds := time.monotonic() - start) > _SLOW_S:
                logger.warning(
                    "The judge's cache %s took %.1f s: another process held its lock, or the disk is slow. All calls "
                    "of this process had to wait. Put the cache on a local disk (judge.cache_dir).",
                    self.path,
                    seconds,
                )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        # It takes the write lock at once: two transactions that begin by reading would block each other's writes.
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:  # SQLite rolls some failures back by itself
                self._db.execute("ROLLBACK")

    def _shrink(self) -> None:
        if self.size() <= self.max_bytes:
            return
        with self._transaction():
            if (size := self.size()) <= self.max_bytes:
                return  # another process has already done it
            count = self._db.execute("SELECT count(*) FROM answers").fetchone()[0]
            oldest = max(1, int(count * (1 - (1 - _EVICT) * self.max_bytes / size)))
            self._db.execute(
                "DELETE FROM answers WHERE key IN (SELECT key FROM answers ORDER BY used LIMIT ?)", (oldest,)
            )
            logger.info("The judge's cache %s is full: deleted the %d oldest of %d answers", self.path, oldest, count)
        self._db.executescript("PRAGMA incremental_vacuum")  # `execute` would free a single page
