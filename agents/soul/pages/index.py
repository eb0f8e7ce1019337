"""The index of a run's sessions, `traces/index.sqlite`: built from the trace files, continued as they grow.

A file is known by inode, time and size. What happened to it decides what is done:

    unchanged           nothing
    live, and longer    its new whole lines are added; a half-written last line waits for its end
    anything else       its rows go, and it is read again: a resumed run has written the step once more
    is no longer there  its rows go

The page gets the sessions as JSON columns: what is newer than the last row and revision that it knows, or all rows
where some have gone since. Columns of repeated texts are coded: {"values": ["sotopia"], "codes": [0, 0, 0]}.

Several viewers may use one index: every change holds `traces/.index.lock`. SQLite's journal is the plain one, because a
write-ahead log does not work on network file systems. Where the traces' folder cannot be written to, the index is in a
temporary folder and goes with the process.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import sqlite3
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from soul.errors import RunFailed, one_line
from soul.files.line_file import DamagedFile, Line, lines_of
from soul.files.trace_files import TraceFile, trace_files
from soul.pages.session_row import CALL_SUMS, SessionRow, Uses, calls_rows
from soul.record import BadRecord, SessionRecord

logger = logging.getLogger(__name__)
Value = TypeVar("Value")

FILE, LOCK = "index.sqlite", ".index.lock"
VERSION = 11  # of the tables; raise it when you change them
BUSY_S = 30.0  # how long a reader waits for a change
_CODED = ("split", "task", "file", "prompt", "cause", "question")
# The columns of the page: facts of the file, and what it needs of a session's row.
OF_ROW = tuple(name for name in SessionRow._fields if name not in ("prompts", "said", "told"))
COLUMNS = ("id", "step", "split", "live", *OF_ROW)
_ROWS = f"""SELECT s.id, f.step, f.split, f.live, {", ".join(f's."{name}"' for name in OF_ROW)}
    FROM sessions s JOIN files f ON f.id = s.file_id"""
_READ = """UPDATE files SET inode = ?, mtime_ns = ?, size = ?, indexed = ?, lines = ?,
    problem = CASE WHEN bad THEN problem ELSE ? END WHERE id = ?"""
# Live rows of sessions that are also in a finished file.
_FINISHED = """SELECT s.id FROM sessions s JOIN files f ON f.id = s.file_id
    WHERE f.live AND s.session != '' AND EXISTS (SELECT 1 FROM sessions o JOIN files g ON g.id = o.file_id
        WHERE o.session = s.session AND NOT g.live AND g.step = f.step)"""

# A row's id is never used again (AUTOINCREMENT): a page that knows the rows up to an id asks for later ones only.
# `removed` is the revision in which rows went for the last time.
TABLES = f"""
CREATE TABLE files (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, split TEXT, step INTEGER, live INTEGER,
    inode INTEGER, mtime_ns INTEGER, size INTEGER, indexed INTEGER, lines INTEGER, bad INTEGER DEFAULT 0,
    problem TEXT);
CREATE TABLE sessions (id INTEGER PRIMARY KEY AUTOINCREMENT, file_id INTEGER, "offset" INTEGER, length INTEGER,
    {", ".join(f'"{name}"' for name in SessionRow._fields)});
CREATE INDEX sessions_by_file ON sessions (file_id);
CREATE INDEX sessions_by_session ON sessions (session);
CREATE TABLE calls (file_id INTEGER, role, task, failed, {", ".join(CALL_SUMS)});
CREATE INDEX calls_by_file ON calls (file_id);
CREATE TABLE meta (removed INTEGER, revision INTEGER);
"""


class KnownFile(NamedTuple):
    """The state of a trace file in the index: `indexed` bytes of it are read, `lines` of them whole lines."""

    id: int
    inode: int
    mtime_ns: int
    size: int
    indexed: int
    lines: int

    def unchanged(self, stat: os.stat_result) -> bool:
        """Compare it with the file that is there."""
        return self[1:4] == (stat.st_ino, stat.st_mtime_ns, stat.st_size)


class SessionIndex:
    """The index of one run, whose folder `traces` must exist. Its methods may be called from several threads.

    Attributes:
        path: the file.
        note: why the index is not beside the traces; "" if it is.
    """

    def __init__(self, traces: Path) -> None:
        self.traces, self.path, self.note = traces, traces / FILE, ""
        self._checked: int | None = None  # the inode of the file that was checked
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
        """Answer a question from one state of the index; raises RunFailed if it is damaged: `refresh` mends it."""
        try:
            with closing(self._connection("ro")) as connection:
                connection.execute("BEGIN")
                return question(connection)
        except sqlite3.DatabaseError as error:
            self._checked = None
            raise RunFailed(f"{self.path} is damaged ({error}). Run the same command again.") from None

    @contextmanager
    def change(self) -> Iterator[sqlite3.Connection]:
        """One transaction. A missing or damaged index is replaced by an empty one first.

        Raises:
            sqlite3.DatabaseError, OSError: the transaction failed, and nothing of it remains.
        """
        with self.path.with_name(LOCK).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.path.exists() and self.path.stat().st_ino != self._checked and not self._usable():
                logger.warning("%s is damaged or of another version; it is built again.", self.path)
                self.path.unlink()
                self.path.with_name(f"{FILE}-journal").unlink(missing_ok=True)
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

    def _usable(self) -> bool:
        try:
            with closing(self._connection("rw")) as connection:  # "rw": also rolls back what a killed viewer left
                whole = connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
                return whole and connection.execute("PRAGMA user_version").fetchone()[0] in (0, VERSION)
        except sqlite3.OperationalError:  # it cannot be opened
            raise
        except sqlite3.DatabaseError:
            return False

    def _connection(self, mode: str) -> sqlite3.Connection:
        """A connection; transactions begin and end only where the code says so."""
        uri = f"file:{quote(str(self.path.absolute()))}?mode={mode}"
        return sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)

    def refresh(self, progress: Callable[[float], None] = lambda share: None) -> None:
        """Bring the index up to date; `progress` gets the share of the bytes. Raises what `change` raises."""
        files = trace_files(self.traces)
        try:
            known = self.read(_known_files)
        except RunFailed:
            known = {}
        stale = [file for file in files if file.name not in known or not known[file.name].unchanged(file.stat)]
        total, done = sum(file.stat.st_size for file in stale), 0
        for file in stale:
            progress(done / total if total else 1.0)
            self._index_file(file)
            done += file.stat.st_size
        gone = known.keys() - {file.name for file in files}
        if gone or any(not file.live for file in stale):
            self._drop(gone)
        progress(1.0)

    def _index_file(self, file: TraceFile) -> None:
        """Index the new lines of a file, in one transaction."""
        try:
            opened = file.path.open("rb")
        except FileNotFoundError:  # its step ended since it was listed
            return
        with opened, self.change() as connection:
            stat = os.fstat(opened.fileno())
            known = _known_files(connection).get(file.name)  # now: another viewer may have done the work
            if known and known.unchanged(stat):
                return
            if known and not (file.live and known.inode == stat.st_ino and stat.st_size > known.size):
                _forget(connection, known.id)
                known = None
            new = {"name": file.name, "split": file.split, "step": file.step, "live": file.live}
            file_id = known.id if known else _insert(connection, "files", new)
            end, count = (known.indexed, known.lines) if known else (0, 0)
            uses: list[Uses] = []
            with suppress(DamagedFile):  # what is before the tear counts; `torn` names the file
                for line in lines_of(opened, end):
                    end, count = line.end, count + 1
                    if record := _add(connection, file_id, line, f"{file.name}: line {count}"):
                        uses.append((record.task, record.usage))
            for row in calls_rows(uses):
                _insert(connection, "calls", {"file_id": file_id, **row})
            torn = f"{file.name} cannot be read beyond byte {end:,}: copy it again from where it was written"
            problem = torn if end < stat.st_size and not file.live else None
            facts = (stat.st_ino, stat.st_mtime_ns, stat.st_size, end, count, problem, file_id)
            connection.execute(_READ, facts)
            connection.execute("UPDATE meta SET revision = revision + 1")

    def _drop(self, gone: Iterable[str]) -> None:
        """Drop files that are no longer there, and live rows of sessions that are in a finished file by now."""
        with self.change() as connection:
            known = _known_files(connection)
            for name in gone:
                if name in known and not (self.traces / name).exists():
                    _forget(connection, known[name].id)
            _remove(connection, _FINISHED)


def _known_files(connection: sqlite3.Connection) -> dict[str, KnownFile]:
    fields = "name, id, inode, mtime_ns, size, indexed, lines"
    return {name: KnownFile(*rest) for name, *rest in connection.execute(f"SELECT {fields} FROM files")}


def _add(connection: sqlite3.Connection, file_id: int, line: Line, where: str) -> SessionRecord | None:
    """Add the session of a line. A line that is not a record is noted with its file."""
    place = {"file_id": file_id, "offset": line.start, "length": line.end - line.start}
    try:
        record = SessionRecord.from_line(line.text, where)
        _insert(connection, "sessions", place | SessionRow.from_record(record)._asdict())
        return record
    except BadRecord as error:
        problem = one_line(error)
    except (OverflowError, UnicodeEncodeError) as error:  # a number of more than 64 bits, half a surrogate pair
        problem = f"{where} cannot be stored ({one_line(error)}). Remove the line."
    connection.execute("UPDATE files SET problem = ?, bad = bad + 1 WHERE id = ?", (problem, file_id))
    return None


def _insert(connection: sqlite3.Connection, table: str, values: dict[str, Any]) -> int:
    names = ", ".join(f'"{name}"' for name in values)
    statement = f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(values))})"
    return connection.execute(statement, list(values.values())).lastrowid or 0


def _forget(connection: sqlite3.Connection, file_id: int) -> None:
    _remove(connection, f"SELECT id FROM sessions WHERE file_id = {file_id}")
    connection.execute("DELETE FROM calls WHERE file_id = ?", (file_id,))
    connection.execute("DELETE FROM files WHERE id = ?", (file_id,))


def _remove(connection: sqlite3.Connection, ids: str) -> None:
    """Remove the sessions of a query of ids, and note that some went."""
    if connection.execute(f"DELETE FROM sessions WHERE id IN ({ids})").rowcount:
        connection.execute("UPDATE meta SET revision = revision + 1, removed = revision + 1")


def columns_after(connection: sqlite3.Connection, after: int, known: int | None) -> dict[str, Any]:
    """The sessions after an id that the page has (0: none), whose last answer had the revision `known`.

    With "reset", rows have gone or the index is another one: the page drops its rows, and "columns" has all.
    """
    removed, revision = connection.execute("SELECT removed, revision FROM meta").fetchone()
    reset = after > 0 and (known is None or not removed <= known <= revision)
    rows = connection.execute(f"{_ROWS} WHERE s.id > ? ORDER BY s.id", (0 if reset else after,)).fetchall()
    return {"revision": revision, "reset": reset, "columns": as_columns(rows)}


def all_columns(connection: sqlite3.Connection) -> dict[str, Any]:
    """The columns of all sessions but those of the running step."""
    return as_columns(connection.execute(f"{_ROWS} WHERE NOT f.live ORDER BY s.id").fetchall())


def as_columns(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Rows in the order of COLUMNS, turned into columns."""
    turned: list[list[Any]] = [list(values) for values in zip(*rows, strict=True)] or [[] for _ in COLUMNS]
    columns: dict[str, Any] = dict(zip(COLUMNS, turned, strict=True))
    for name in _CODED:
        places = {value: place for place, value in enumerate(dict.fromkeys(columns[name]))}
        columns[name] = {"values": list(places), "codes": [places[value] for value in columns[name]]}
    return columns
