"""Answers on disk: the same question is paid for once, also after a crash.

The cache is one SQLite file in WAL mode. The key is a hash of everything that determines the answer. A process that is
killed at any moment loses no answer that it has used, because an answer is written before it is returned. Equal
questions of one process that are asked at the same time share one call (`Cache.once`). The text is the endpoint's; who
asked checks it against the schema, also when it comes from the file, and asks anew if it does not fit.
"""

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
_BUSY_S = 10.0  # how long to wait for another process's lock
_TABLE = "CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, text TEXT NOT NULL, used REAL NOT NULL)"

Source = Literal["file", "in flight", "endpoint"]  # where an answer comes from


def key_of(request: Mapping[str, Any]) -> bytes:
    """The SHA-256 key of a request; `request` holds everything that determines the answer, as JSON values."""
    whole = {"format": _FORMAT, **request}
    text = json.dumps(whole, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class Cache:
    """The answers in one file, whose folder is created.

    An error after the file is open, such as a full disk, costs money but does not stop the run: it is logged once, and
    the question is asked again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asking: dict[tuple[bytes, int], asyncio.Future[str]] = {}  # calls in flight, by key and number of re-asks
        self._warned = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            address = f"file:{quote(str(path.absolute()))}"
            self._db = sqlite3.connect(
                address, uri=True, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")  # a power cut may lose the last answers, never the file
            self._db.execute(_TABLE)
        except (OSError, sqlite3.Error) as error:
            raise BadCache(
                f"The judge's cache {path} cannot be used: {error}. Remove the file, name another folder with "
                "judge.cache_dir, or turn the cache off with judge.cache=false."
            ) from error

    def get(self, key: bytes) -> str | None:
        """The text of the answer; None if there is none yet."""
        row = None
        with self._forgiving():
            row = self._db.execute("SELECT text FROM answers WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, key: bytes, text: str) -> None:
        """Store an answer."""
        with self._forgiving():
            self._db.execute("REPLACE INTO answers VALUES (?, ?, ?)", (key, text, time.time()))

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

    def close(self) -> None:
        """Close the file."""
        self._db.close()

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
