"""Answers on disk: a call that was made before costs nothing, in this run, after a crash, and in every process.

One SQLite file in WAL mode, which many processes of one machine may write at the same time. (SQLite's WAL needs shared
memory: on a cluster every machine has its own file.) The key is a hash of everything that determines the answer. A call
that is under way is claimed, so that a second process waits for its answer instead of paying for another one. A claim
ends with its process, even if that is killed (owner_lock.py). Only answers that satisfied their schema are kept.
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

from soul.errors import BadCache
from soul.files import owner_lock

logger = logging.getLogger(__name__)

_FORMAT = 1  # part of every key: raise it when the meaning of an answer changes
_CHECK_EVERY = 256  # writes between two looks at the size
_EVICT = 0.2  # share of the size that goes when the file is full, the longest unused answers first
_BUSY_S = 10.0  # how long one waits for another's lock
_SLOW_S = 1.0  # an operation that takes longer is logged: it holds up every call of this process
_LOOK_EVERY_S = 1.0  # between two checks whether the owner of a claim is alive, for all calls that wait for it

_TABLES = """
CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, text TEXT NOT NULL, used REAL NOT NULL);
CREATE INDEX IF NOT EXISTS answers_used ON answers (used);
CREATE TABLE IF NOT EXISTS claims (key BLOB PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL) WITHOUT ROWID;
"""


def key_of(request: Mapping[str, Any]) -> bytes:
    """The key of a request: everything that determines its answer, as a JSON object."""
    whole = {"format": _FORMAT, **request}
    text = json.dumps(whole, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class Cache:
    """The answers in one file. What fails once it is open, on a full disk say, costs money and not the run: there is a
    warning, and the answer is asked for again.

    Args:
        path: the file; its folder is made.
        max_mb: size at which the longest unused answers go.

    Raises:
        BadCache: the file is something else, or cannot be written.
    """

    def __init__(self, path: Path, max_mb: float = 2048) -> None:
        self.path, self.max_bytes = path, int(max_mb * 1e6)
        self._owners = path.with_name(f"{path.name}.owners")
        self._seen_alive: dict[str, float] = {}  # owner -> when
        self._writes = 0
        self._warned = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA auto_vacuum=INCREMENTAL")
            self._use_wal()
            self._db.execute("PRAGMA synchronous=NORMAL")  # a power cut may lose the last answers, never the file
            self._db.executescript(_TABLES)
            self._lock = owner_lock.OwnerLock(self._owners)
            owner_lock.remove_gone(self._owners)
        except (OSError, sqlite3.Error) as error:
            raise BadCache(
                f"The judge's cache {path} cannot be used: {error}. Remove the file, name another folder with "
                "judge.cache_dir, or switch it off with judge.cache=false (--no-cache)."
            ) from error
        self.owner = self._lock.name
        with self._forgiving():
            self._db.execute("DELETE FROM claims WHERE until < ?", (time.time(),))
            self._shrink()  # short runs never come to the next look

    def _use_wal(self) -> None:
        # SQLite waits for locks by itself, but not for this one where two open a new file at the same moment.
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
        """The answer's text; None where there is none yet."""
        row = None
        with self._forgiving():
            row = self._db.execute("SELECT text, used FROM answers WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        now = time.time()
        if now - row[1] > 3600:  # an hour is fine enough to tell what is unused, and saves a write a hit
            with self._forgiving():
                self._db.execute("UPDATE answers SET used = ? WHERE key = ?", (now, key))
        return str(row[0])

    def claim(self, key: bytes, seconds: float) -> Literal["mine", "theirs"]:
        """Say that this process fetches the answer.

        Args:
            seconds: after which the claim ends. It ends at once when its process ends, unless that is on another host
                or the file system has no locks.

        Returns:
            "theirs" where another process is at it or has just got it: look again in a while.
        """
        with self._forgiving():
            if self._is_theirs(key):  # asked without the write lock: many may be waiting
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
        # Its text, so that an answer which cannot be read counts as none here too.
        return self._db.execute("SELECT text FROM answers WHERE key = ?", (key,)).fetchone() is not None

    def _is_alive(self, owner: str) -> bool:
        now = time.monotonic()
        if now - self._seen_alive.get(owner, -_LOOK_EVERY_S) < _LOOK_EVERY_S:
            return True
        if not owner_lock.is_gone(self._owners, owner):
            self._seen_alive[owner] = now
            return True
        self._db.execute("DELETE FROM claims WHERE owner = ?", (owner,))
        return False

    def seconds_left(self, key: bytes) -> float:
        """The longest time in seconds that a claim still lasts; 0 where there is none."""
        row = None
        with self._forgiving():
            row = self._db.execute("SELECT until FROM claims WHERE key = ?", (key,)).fetchone()
        return 0.0 if row is None else max(0.0, row[0] - time.time())

    def put(self, key: bytes, text: str) -> None:
        """Keep an answer, and give the claim up."""
        with self._forgiving():
            with self._transaction():
                self._db.execute("REPLACE INTO answers VALUES (?, ?, ?)", (key, text, time.time()))
                self._db.execute("DELETE FROM claims WHERE key = ?", (key,))
            self._writes += 1
            if self._writes % _CHECK_EVERY == 0:
                self._shrink()

    def release(self, key: bytes) -> None:
        """Give a claim up without an answer."""
        with self._forgiving():
            self._db.execute("DELETE FROM claims WHERE key = ? AND owner = ?", (key, self.owner))

    def close(self) -> None:
        """Close the file; this owner's claims end."""
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
                    "The judge's cache %s fails: %s. Answers that it cannot keep are paid for again.", self.path, error
                )
            self._warned = True
        finally:
            if (seconds := time.monotonic() - start) > _SLOW_S:
                logger.warning(
                    "The judge's cache %s took %.1f s: another process held its lock, or the disk is slow. All calls "
                    "of this process waited. A local disk helps (judge.cache_dir).",
                    self.path,
                    seconds,
                )

    def _transaction(self) -> _Transaction:
        return _Transaction(self._db)

    def _shrink(self) -> None:
        if self.size() <= self.max_bytes:
            return
        with self._transaction():
            if (size := self.size()) <= self.max_bytes:
                return  # another process was faster
            count = self._db.execute("SELECT count(*) FROM answers").fetchone()[0]
            oldest = max(1, int(count * (1 - (1 - _EVICT) * self.max_bytes / size)))
            self._db.execute(
                "DELETE FROM answers WHERE key IN (SELECT key FROM answers ORDER BY used LIMIT ?)", (oldest,)
            )
        self._db.executescript("PRAGMA incremental_vacuum")  # `execute` takes one step of it, which is one page


class _Transaction:
    """A write transaction that takes its lock at once: two readers that both want to write would block each other."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:  # SQLite itself rolls some failures back
                self._db.execute("ROLLBACK")
