"""The index of a run's sessions: built from the trace files, continued as they grow, checked against them each time.

A file is known by inode, time and size. What happened to it decides what is done:

    unchanged           nothing
    live, and longer    its new whole lines are added; a half-written last line waits for its end
    anything else       its rows go, and it is read again: a resumed run has written the step once more
    is no longer there  its rows go

The page gets the sessions as JSON columns: it asks for what is newer than the last row and revision that it knows, and
gets all rows again where some have gone since: at the end of a step, whose live rows its final file replaces. Columns
of repeated texts are coded: {"values": ["sotopia"], "codes": [0, 0, 0]}.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from soul.errors import one_line
from soul.files.line_file import DamagedFile, Line, lines_of
from soul.files.trace_files import TraceFile, trace_files
from soul.record import BadRecord, SessionRecord
from soul.view.index_file import DamagedIndex, IndexFile
from soul.view.session_row import CallsRow, SessionRow, calls_rows

logger = logging.getLogger(__name__)

Progress = Callable[[float], None]  # called with the share of the bytes that are indexed, 0 to 1
_FACTS = ("inode", "mtime_ns", "size", "indexed", "lines")
_SAME_FILE = f"UPDATE files SET {', '.join(f'{name} = ?' for name in _FACTS)} WHERE id = ?"
# Live rows of sessions that are also in a finished file.
_FINISHED = """SELECT s.id FROM sessions s JOIN files f ON f.id = s.file_id
    WHERE f.live AND s.session != '' AND EXISTS (SELECT 1 FROM sessions o JOIN files g ON g.id = o.file_id
        WHERE o.session = s.session AND NOT g.live AND g.step = f.step)"""
_CODED = ("split", "task", "file", "prompt", "cause")
# Column of the answer -> where it comes from.
COLUMNS = {
    "id": "s.id",
    **{name: f"f.{name}" for name in ("step", "split", "live")},
    **{name: f's."{name}"' for name in SessionRow._fields if name != "metrics"},
}
_ROWS = f"SELECT {', '.join(COLUMNS.values())} FROM sessions s JOIN files f ON f.id = s.file_id"


def _insert(table: str, columns: Sequence[str]) -> str:
    names = ", ".join(f'"{name}"' for name in columns)
    return f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(columns))})"


_NEW_FILE = _insert("files", ("name", "split", "step", "live", *_FACTS))
_NEW_SESSION = _insert("sessions", ("file_id", "offset", "length", *SessionRow._fields))
_NEW_CALLS = _insert("calls", ("file_id", *CallsRow._fields))


@dataclass(frozen=True)
class KnownFile:
    """The state of a trace file in the index: `indexed` bytes of it are read, `lines` of them whole lines."""

    id: int
    inode: int
    mtime_ns: int
    size: int
    indexed: int
    lines: int

    def unchanged(self, stat: os.stat_result) -> bool:
        return (self.inode, self.mtime_ns, self.size) == (stat.st_ino, stat.st_mtime_ns, stat.st_size)


class SessionIndex:
    """The index of one run.

    Args:
        traces: the folder with the traces; it must exist.
    """

    def __init__(self, traces: Path) -> None:
        self.traces = traces
        self.file = IndexFile(traces)

    def refresh(self, progress: Progress = lambda share: None) -> None:
        """Bring the index up to date with the files.

        Raises:
            sqlite3.DatabaseError, OSError: the index cannot be written.
        """
        files = trace_files(self.traces)
        try:
            known = self.file.read(_known_files)
        except DamagedIndex:
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
        with opened, self.file.change() as connection:
            stat = os.fstat(opened.fileno())
            known = _known_files(connection).get(file.name)  # now: another viewer may have done the work
            if known and known.unchanged(stat):
                return
            if known and not (file.live and known.inode == stat.st_ino and stat.st_size > known.size):
                _forget(connection, known.id)
                known = None
            start, before = (known.indexed, known.lines) if known else (0, 0)
            facts = stat.st_ino, stat.st_mtime_ns, stat.st_size
            if known is None:
                new = (file.name, file.split, file.step, file.live, *facts, 0, 0)
                file_id = connection.execute(_NEW_FILE, new).lastrowid or 0
            else:
                file_id = known.id
            end, count = start, 0

            def records() -> Iterator[SessionRecord]:
                nonlocal end, count
                for line in _readable_lines(opened, start):
                    end, count = line.end, count + 1
                    if record := _add(connection, file_id, line, f"{file.name}: line {before + count}"):
                        yield record

            calls = calls_rows(records())
            connection.executemany(_NEW_CALLS, ((file_id, *row) for row in calls))
            connection.execute(_SAME_FILE, (*facts, end, before + count, file_id))
            torn = f"{file.name} cannot be read beyond byte {end:,}: copy it again from where it was written"
            problem = torn if end < stat.st_size and not file.live else None
            connection.execute("UPDATE files SET problem = ? WHERE id = ? AND bad = 0", (problem, file_id))
            connection.execute("UPDATE meta SET revision = revision + 1")

    def _drop(self, gone: Iterable[str]) -> None:
        """Drop files that are no longer there, and live rows of sessions that are in a finished file by now."""
        with self.file.change() as connection:
            known = _known_files(connection)
            for name in gone:
                if name in known and not (self.traces / name).exists():
                    _forget(connection, known[name].id)
            _remove(connection, [number for (number,) in connection.execute(_FINISHED)])


def _known_files(connection: sqlite3.Connection) -> dict[str, KnownFile]:
    fields = "name, id, inode, mtime_ns, size, indexed, lines"
    return {name: KnownFile(*rest) for name, *rest in connection.execute(f"SELECT {fields} FROM files")}


def _readable_lines(file: BinaryIO, start: int) -> Iterator[Line]:
    """The lines from this offset on, up to what cannot be read."""
    try:
        yield from lines_of(file, start)
    except DamagedFile as error:
        logger.warning("%s", error)


def _add(connection: sqlite3.Connection, file_id: int, line: Line, where: str) -> SessionRecord | None:
    """Add the session of a line. A line that is not a record is noted with its file."""
    try:
        record = SessionRecord.from_line(line.text, where)
        row = SessionRow.from_record(record)
        row.check_storable(where)
    except BadRecord as error:
        connection.execute("UPDATE files SET problem = ?, bad = bad + 1 WHERE id = ?", (one_line(error), file_id))
        return None
    connection.execute(_NEW_SESSION, (file_id, line.start, line.end - line.start, *row))
    return record


def _forget(connection: sqlite3.Connection, file_id: int) -> None:
    """Remove a file with its sessions."""
    rows = connection.execute("SELECT id FROM sessions WHERE file_id = ?", (file_id,))
    _remove(connection, [number for (number,) in rows])
    connection.execute("DELETE FROM calls WHERE file_id = ?", (file_id,))
    connection.execute("DELETE FROM files WHERE id = ?", (file_id,))


def _remove(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    """Remove sessions, and note that some went."""
    if not ids:
        return
    connection.executemany("DELETE FROM sessions WHERE id = ?", ((number,) for number in ids))
    connection.execute("UPDATE meta SET revision = revision + 1, removed = revision + 1")


def columns_after(connection: sqlite3.Connection, after: int, known: int | None) -> dict[str, Any]:
    """The sessions with a higher id.

    Args:
        after: the highest id that the page has; 0 for none.
        known: the revision of its last answer; None if it has none.

    Returns:
        {"revision", "reset", "columns"}. With `reset`, rows have gone or the index is another one than the page knows:
        it drops its rows, and `columns` has all.
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
    return columns | {name: _coded(columns[name]) for name in _CODED}


def _coded(values: Sequence[Any]) -> dict[str, Any]:
    places: dict[Any, int] = {}
    codes = [places.setdefault(value, len(places)) for value in values]
    return {"values": list(places), "codes": codes}
