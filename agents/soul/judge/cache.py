"""Answers on disk: the same question is paid for once, also after a crash.

The cache is one SQLite file in WAL mode. The key is a hash of everything that determines the answer. A process that is
killed at any moment loses no answer that it has used, because an answer is written before it is returned. Equal
questions of one process that are asked at the same time share one call (`Cache.once`). The text is the endpoint's; who
asked checks it against the schema, also when it comes from the file, and asks anew if it does not fit.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from soul.errors import BadCache, JudgeFailure

logger = logging.getLogger(__name__)

_FORMAT = 1  # part of every key: raise it when the meaning of an answer changes
_CHECK_EVERY = 256  # writes between two checks of the size
_EVICT = 0.2  # share of a full file to delete, least recently used answers first
_BUSY_S = 10.0  # how long to wait for another process's lock

_TABLES = """
CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, text TEXT NOT NULL, used REAL NOT NULL);
CREATE INDEX IF NOT EXISTS answers_used ON answers (used);
"""

Source = Literal["file", "in flight", "endpoint"]  # where an answer comes from


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
        self.asking: dict[tuple[bytes, int], asyncio.Future[str]] = {}  # calls in flight, by key and number of re-asks
        self._writes = 0
        self._warned = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            address = f"file:{quote(str(path.absolute()))}"
            self._db = sqlite3.connect(
                address, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA auto_vacuum=INCREMENTAL")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")  # a power cut may lose the last answers, never the file
            self._db.executescript(_TABLES)
        except (OSError, sqlite3.Error) as error:
            raise BadCache(
                f"The judge's cache {path} cannot be used: {error}. Remove the file, name another folder with "
                "judge.cache_dir, or turn the cache off with judge.cache=false (--no-cache)."
            ) from error
        with self._forgiving():
            self._shrink()  # a short run never reaches the next check

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

    async def once(
        self, key: bytes, reask: int, fresh: bool, fetch: Callable[[], Awaitable[str]]
    ) -> tuple[str, Source]:
        """The answer from the file, from an equal call that is in flight, or from `fetch`; and which of them.

        A failure is shared with the calls that wait for it, because the same question would fail the same way, and is
        not stored. If the call in flight is cancelled, one of those that wait makes the call.

        Args:
            reask: how often this question was asked before. Only calls with the same number are equal.
            fresh: ignore the answer in the file, and replace it.
        """
        flight = key, reask
        while (asked := self.asking.get(flight)) is not None:
            await asyncio.wait([asked])
            if not asked.cancelled():
                return asked.result(), "in flight"
        if not fresh and (stored := self.get(key)) is not None:
            return stored, "file"
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.asking[flight] = future
        try:
            text = await fetch()
        except JudgeFailure as failure:
            future.set_exception(failure)
            future.exception()  # mark it as retrieved: maybe no caller waits, and asyncio would log it as lost
            raise
        except BaseException:
            future.cancel()
            raise
        finally:
            del self.asking[flight]
        self.put(key, text)
        future.set_result(text)
        return text, "endpoint"

    def put(self, key: bytes, text: str) -> None:
        """Store an answer."""
        with self._forgiving():
            self._db.execute("REPLACE INTO answers VALUES (?, ?, ?)", (key, text, time.time()))
            self._writes += 1
            if self._writes % _CHECK_EVERY == 0:
                self._shrink()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def size(self) -> int:
        """Bytes in use."""
        pages, free, page = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * page)

    @contextmanager
    def _forgiving(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if not self._warned:
                logger.warning(
                    "The judge's cache %s fails: %s. Answers it cannot store must be paid for again.", self.path, error
                )
            self._warned = True

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
