"""The index of a run's sessions: built from the trace files, continued as they grow, checked against them each time.

A file is known by inode, time, size and the hash of its first kB. What happened to it decides what is done:

    unchanged           nothing
    grew, same start    its new whole lines are added; a half-written last line waits for its end
    anything else       its rows go, and it is read again: a resumed run has written the step once more
    is no longer there  its rows go

Rows keep their id as long as they are there. Those that went are listed by the revision in which they did, so that a
page with 51,200 rows need not load them all again when a step ends.
"""

from __future__ import annotations

import hashlib
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

BATCH_BYTES = 8_000_000  # of a file are indexed in one transaction
HEAD_BYTES = 1024  # of a file are hashed: a file that begins differently is another file
_UNFINISHED = -1  # in place of a file's time: more of it is left to read
Progress = Callable[[float], None]  # called with the share of the bytes that are indexed, 0 to 1


def _insert(table: str, columns: Sequence[str]) -> str:
    names = ", ".join(f'"{name}"' for name in columns)
    return f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(columns))})"


_FACTS = ("inode", "mtime_ns", "size", "head", "indexed", "lines")
_NEW_FILE = _insert("files", ("name", "split", "step", "live", *_FACTS))
_SAME_FILE = f"UPDATE files SET {', '.join(f'{name} = ?' for name in _FACTS)} WHERE id = ?"
_NEW_SESSION = _insert("sessions", ("file_id", "offset", "length", *SessionRow._fields))
_NEW_CALLS = _insert("calls", ("file_id", *CallsRow._fields))
# Live rows of sessions that are also in a finished file.
_FINISHED = """SELECT s.id FROM sessions s JOIN files f ON f.id = s.file_id
    WHERE f.live AND s.session != '' AND EXISTS (SELECT 1 FROM sessions o JOIN files g ON g.id = o.file_id
        WHERE o.session = s.session AND NOT g.live AND g.step = f.step) ORDER BY s.id"""


@dataclass(frozen=True)
class KnownFile:
    """What the index knows of a trace file: `indexed` bytes of it are read, `lines` of them whole lines."""

    id: int
    inode: int
    mtime_ns: int
    size: int
    head: str
    indexed: int
    lines: int

    def unchanged(self, stat: os.stat_result) -> bool:
        return (self.inode, self.mtime_ns, self.size) == (stat.st_ino, stat.st_mtime_ns, stat.st_size)

    def grew(self, file: BinaryIO, stat: os.stat_result) -> bool:
        """Whether the file only got longer, or was not read to its end yet."""
        unfinished = self.mtime_ns == _UNFINISHED and stat.st_size >= self.size
        longer = self.inode == stat.st_ino and (stat.st_size > self.size or unfinished)
        return longer and _head(file, self.indexed) == self.head


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
            while self._index_batch(file):
                pass
            done += file.stat.st_size
        gone = known.keys() - {file.name for file in files}
        if gone or any(not file.live for file in stale):
            self._drop(gone)
        progress(1.0)

    def _index_batch(self, file: TraceFile) -> bool:
        """Index the next lines of a file, in one transaction. Returns whether there may be more."""
        try:
            opened = file.path.open("rb")
        except FileNotFoundError:  # its step ended since it was listed
            return False
        with opened, self.file.change() as connection:
            stat = os.fstat(opened.fileno())
            known = _known_files(connection).get(file.name)  # now: another viewer may have done the work
            if known and known.unchanged(stat):
                return False
            if known and not known.grew(opened, stat):
                _forget(connection, known.id)
                known = None
            start, before = (known.indexed, known.lines) if known else (0, 0)
            lines, more = _whole_lines(opened, start)
            end = lines[-1].end if lines else start
            facts = (stat.st_ino, _UNFINISHED if more else stat.st_mtime_ns, stat.st_size, _head(opened, end), end)
            if known is None:
                name = file.name, file.split, file.step, file.live
                known_id = connection.execute(_NEW_FILE, (*name, *facts, len(lines))).lastrowid
            else:
                connection.execute(_SAME_FILE, (*facts, before + len(lines), known.id))
                known_id = known.id
            assert known_id is not None
            torn = f"{file.name} cannot be read beyond byte {end:,}: copy it again from where it was written"
            problem = torn if end < stat.st_size and not (more or file.live) else None
            connection.execute("UPDATE files SET problem = ? WHERE id = ? AND bad = 0", (problem, known_id))
            records = list(_records(connection, known_id, before, lines, file.name))
            connection.executemany(_NEW_SESSION, ((known_id, *place, *row) for place, row, _ in records))
            calls = calls_rows(record for _, _, record in records)
            connection.executemany(_NEW_CALLS, ((known_id, *row) for row in calls))
            if records:
                connection.execute("UPDATE meta SET revision = revision + 1")
            return more

    def _drop(self, gone: Iterable[str]) -> None:
        """Drop files that are no longer there, and live rows of sessions that are in a finished file by now."""
        with self.file.change() as connection:
            known = _known_files(connection)
            for name in gone:
                if name in known and not (self.traces / name).exists():
                    _forget(connection, known[name].id)
            _remove(connection, [number for (number,) in connection.execute(_FINISHED)])


def _known_files(connection: sqlite3.Connection) -> dict[str, KnownFile]:
    fields = "name, id, inode, mtime_ns, size, head, indexed, lines"
    return {name: KnownFile(*rest) for name, *rest in connection.execute(f"SELECT {fields} FROM files")}


def _head(file: BinaryIO, most: int) -> str:
    """A hash of the first bytes of a file, at most HEAD_BYTES and at most `most` of them."""
    return hashlib.blake2b(os.pread(file.fileno(), min(most, HEAD_BYTES), 0), digest_size=16).hexdigest()


def _whole_lines(file: BinaryIO, start: int) -> tuple[list[Line], bool]:
    """The lines from this offset on, up to what cannot be read, and whether there may be more than these."""
    lines: list[Line] = []
    try:
        for line in lines_of(file, start):
            lines.append(line)
            if line.end - start >= BATCH_BYTES:
                return lines, True
    except DamagedFile as error:
        logger.warning("%s", error)
    return lines, False


def _records(
    connection: sqlite3.Connection, file_id: int, before: int, lines: Iterable[Line], name: str
) -> Iterator[tuple[tuple[int, int], SessionRow, SessionRecord]]:
    """Offset and length of each line, its row and its record. A line that is no record is noted with its file."""
    for number, (start, end, text) in enumerate(lines, before + 1):
        try:
            record = SessionRecord.from_line(text, f"{name}: line {number}")
            row = SessionRow.from_record(record)
            row.check_storable(f"{name}: line {number}")
            yield (start, end - start), row, record
        except BadRecord as error:
            connection.execute("UPDATE files SET problem = ?, bad = bad + 1 WHERE id = ?", (one_line(error), file_id))


def _forget(connection: sqlite3.Connection, file_id: int) -> None:
    """Remove a file with its sessions."""
    rows = connection.execute("SELECT id FROM sessions WHERE file_id = ? ORDER BY id", (file_id,))
    _remove(connection, [number for (number,) in rows])
    connection.execute("DELETE FROM calls WHERE file_id = ?", (file_id,))
    connection.execute("DELETE FROM files WHERE id = ?", (file_id,))


def _remove(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    """Remove sessions, by ascending ids, and note that they went."""
    if not ids:
        return
    connection.executemany("DELETE FROM sessions WHERE id = ?", ((number,) for number in ids))
    connection.execute("UPDATE meta SET revision = revision + 1")
    ranges: list[list[int]] = []
    for number in ids:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    connection.executemany("INSERT INTO gone SELECT revision, ?, ? FROM meta", ranges)


_CODED = ("split", "task", "file", "prompt", "cause")
# Column of the answer -> where it comes from.
COLUMNS = {
    "id": "s.id",
    **{name: f"f.{name}" for name in ("step", "split", "live")},
    **{name: f's."{name}"' for name in SessionRow._fields if name != "metrics"},
}
_AT_ONCE = 900  # ids in one question; SQLite allows 999 in old versions
_ROWS = f"SELECT {', '.join(COLUMNS.values())} FROM sessions s JOIN files f ON f.id = s.file_id"


def columns_after(connection: sqlite3.Connection, after: int, known: int | None) -> dict[str, Any]:
    """The sessions with a higher id, and those that went.

    Args:
        after: the highest id that the page has; 0 for none.
        known: the revision of its last answer; None if it has none.

    Returns:
        {"revision", "reset", "gone": [[first id, last id], ...], "columns"}. With `reset`, the index is another one
        than the page knows, or the page named no revision: it drops its rows, and `columns` has all.
    """
    first, revision = connection.execute("SELECT first_revision, revision FROM meta").fetchone()
    reset = after > 0 and (known is None or not first <= known <= revision)
    gone: list[tuple[int, int]] = []
    if reset:
        after = 0
    elif after:
        gone = connection.execute(
            "SELECT first, last FROM gone WHERE revision > ? AND first <= ? ORDER BY first", (known, after)
        ).fetchall()
    rows = connection.execute(f"{_ROWS} WHERE s.id > ? ORDER BY s.id", (after,)).fetchall()
    return {"revision": revision, "reset": reset, "gone": gone, "columns": as_columns(rows)}


def columns_of(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[str, Any]:
    """The columns of these sessions, in this order."""
    rows: dict[int, tuple[Any, ...]] = {}
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[start : start + _AT_ONCE]
        of_some = connection.execute(f"{_ROWS} WHERE s.id IN ({','.join('?' * len(some))})", some)
        rows |= {row[0]: row for row in of_some}
    return as_columns([rows[number] for number in ids])


def as_columns(rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Rows in the order of COLUMNS, turned into columns."""
    turned: list[list[Any]] = [list(values) for values in zip(*rows, strict=True)] or [[] for _ in COLUMNS]
    columns: dict[str, Any] = dict(zip(COLUMNS, turned, strict=True))
    return columns | {name: _coded(columns[name]) for name in _CODED}


def _coded(values: Sequence[Any]) -> dict[str, Any]:
    places: dict[Any, int] = {}
    codes = [places.setdefault(value, len(places)) for value in values]
    return {"values": list(places), "codes": codes}
