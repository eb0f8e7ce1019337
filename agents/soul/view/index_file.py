"""The file index.sqlite: its tables, where it is, and how a damaged one is replaced.

The index is beside the traces, in `traces/index.sqlite`. Where that folder cannot be written to (a colleague's run, a
file system without locks), it is in a temporary folder and goes with the process; `IndexFile.note` says so.

Several viewers may use one index: every change is one SQLite transaction, and a damaged file is removed while
`traces/.index.lock` is held. SQLite's journal is the plain one, because a
write-ahead log does not work on network file systems.
"""

from __future__ import annotations

import fcntl
import logging
import shutil
import sqlite3
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from soul.view.session_row import CallsRow, SessionRow

logger = logging.getLogger(__name__)

FILE, LOCK = "index.sqlite", ".index.lock"
VERSION = 4  # of the tables; raise it when you change them
BUSY_S = 30.0  # how long to wait for another process's transaction
Value = TypeVar("Value")

_TYPES = {"float | None": "REAL", "float": "REAL", "int": "INTEGER", "int | None": "INTEGER"}


def _columns(row: type[SessionRow] | type[CallsRow]) -> str:
    """The fields of a row as columns. Annotations are text, because of `from __future__ import annotations`."""
    annotations = {name: getattr(kind, "__forward_arg__", kind) for name, kind in row.__annotations__.items()}
    return ", ".join(f'"{name}" {_TYPES.get(str(kind), "TEXT")}' for name, kind in annotations.items())


# A row's id is never used again (AUTOINCREMENT): a page that knows the rows up to an id asks for later ones only.
# `removed` is the revision in which rows went for the last time.
TABLES = f"""
CREATE TABLE files (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, split TEXT, step INTEGER, live INTEGER,
    inode INTEGER, mtime_ns INTEGER, size INTEGER, indexed INTEGER, lines INTEGER, bad INTEGER DEFAULT 0,
    problem TEXT);
CREATE TABLE sessions (id INTEGER PRIMARY KEY AUTOINCREMENT, file_id INTEGER, "offset" INTEGER, length INTEGER,
    {_columns(SessionRow)});
CREATE INDEX sessions_by_file ON sessions (file_id);
CREATE INDEX sessions_by_session ON sessions (session);
CREATE TABLE calls (file_id INTEGER, {_columns(CallsRow)});
CREATE INDEX calls_by_file ON calls (file_id);
CREATE TABLE meta (removed INTEGER, revision INTEGER);
"""


class DamagedIndex(Exception):
    """The index cannot be read, or has the tables of another version. It is built again."""


class IndexFile:
    """Opens the index of one run. Its methods may be called from several threads.

    Args:
        traces: the folder with the traces; it must exist.

    Attributes:
        path: the file.
        note: why the index is not beside the traces; "" if it is.
    """

    def __init__(self, traces: Path) -> None:
        self.path, self.note = traces / FILE, ""
        self._checked: int | None = None  # the inode of the file that was checked
        self._one_writer = threading.Lock()  # of this process
        try:
            with self.change():
                pass
        except (sqlite3.OperationalError, OSError) as error:
            folder = Path(tempfile.mkdtemp(prefix="soul-view-"))
            weakref.finalize(self, shutil.rmtree, folder, True)
            self.path = folder / FILE
            self.note = f"{traces} cannot be written to ({error}): its index is in {folder} until the viewer ends."
            logger.warning("%s", self.note)
            with self.change():
                pass

    def read(self, question: Callable[[sqlite3.Connection], Value]) -> Value:
        """Answer a question from one state of the index.

        Raises:
            DamagedIndex: it is damaged or missing; `change` makes a new one.
        """
        try:
            with closing(self._connection("ro")) as connection:
                connection.execute("BEGIN")
                return question(connection)
        except sqlite3.DatabaseError as error:
            self._checked = None
            raise DamagedIndex(f"{self.path}: {error}") from error

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """One transaction. A missing or damaged index is replaced by an empty one first.

        Raises:
            sqlite3.DatabaseError, OSError: the transaction failed, and nothing of it remains.
        """
        with self._one_writer:
            with self.path.with_name(LOCK).open("ab") as file:  # so that nobody removes what another has just made
                fcntl.flock(file, fcntl.LOCK_EX)
                self._ensure()
            with closing(self._connection("rwc")) as connection:
                connection.execute("BEGIN IMMEDIATE")
                if connection.execute("PRAGMA user_version").fetchone() == (0,):
                    for statement in TABLES.split(";"):
                        connection.execute(statement)
                    # Revisions of a new index are higher than those of the one before, so that pages notice.
                    now = int(time.time() * 1000)
                    connection.execute("INSERT INTO meta VALUES (?, ?)", (now, now))
                    connection.execute(f"PRAGMA user_version = {VERSION}")
                yield connection
                connection.commit()
        self._checked = self.path.stat().st_ino

    def _ensure(self) -> None:
        """Check a file that this process has not checked yet, and remove it if it is damaged."""
        if not self.path.exists() or self.path.stat().st_ino == self._checked:
            return
        try:
            with closing(self._connection("rw")) as connection:  # "rw": also rolls back what a killed viewer left
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                whole = connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
            reason = "" if whole and version in (0, VERSION) else "it is damaged" if not whole else "another version"
        except sqlite3.OperationalError as error:
            if "locked" in str(error) or "unable to open" in str(error) or "readonly" in str(error):
                raise
            reason = str(error)
        except sqlite3.DatabaseError as error:
            reason = str(error)
        if reason:
            logger.warning("%s cannot be used (%s); it is built again.", self.path, reason)
            self.path.unlink(missing_ok=True)
            self.path.with_name(f"{FILE}-journal").unlink(missing_ok=True)

    def _connection(self, mode: str) -> sqlite3.Connection:
        """A connection; transactions begin and end only where the code says so."""
        uri = f"file:{quote(str(self.path.absolute()))}?mode={mode}"
        return sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
