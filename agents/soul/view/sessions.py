"""The text of one session, read from its trace by offset."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any, NamedTuple

from soul.files.line_file import DamagedFile, line_from
from soul.record import SCHEMA_VERSION, BadRecord, SessionRecord


class NoSession(Exception):
    """There is no session with this id: there never was, or its file has been replaced or removed since."""


class Place(NamedTuple):
    """Where a session's line is."""

    id: int
    file: str
    inode: int
    offset: int
    length: int


_PLACES = 'SELECT s.id, f.name, f.inode, s."offset", s.length FROM sessions s JOIN files f ON f.id = s.file_id'


def place_of(connection: sqlite3.Connection, session: int) -> Place:
    """The place of a session.

    Raises:
        NoSession: the index has none of this id.
    """
    row = connection.execute(f"{_PLACES} WHERE s.id = ?", (session,)).fetchone()
    if row is None:
        raise NoSession(f"there is no session {session} any more")
    return Place(*row)


def places_after(connection: sqlite3.Connection, after: int) -> list[Place]:
    """The places of all sessions with a higher id, in the order of their ids."""
    return [Place(*row) for row in connection.execute(f"{_PLACES} WHERE s.id > ? ORDER BY s.id", (after,))]


def read_line(traces: Path, place: Place) -> bytes:
    """The line of a session.

    Raises:
        NoSession: the file is not the one that was indexed any more.
    """
    try:
        with (traces / place.file).open("rb") as file:
            same = os.fstat(file.fileno()).st_ino == place.inode
            stored = os.pread(file.fileno(), place.length, place.offset)
        line = line_from(stored, Path(place.file)) if same and len(stored) == place.length else b""
    except FileNotFoundError:
        raise NoSession(f"{place.file} was there when it was indexed, and is gone") from None
    except DamagedFile:  # its bytes have changed
        line = b""
    if line.startswith(b"{") and line.endswith(b"}\n"):
        return line
    raise NoSession(f"{place.file} has been written again since it was indexed")


def session_object(line: bytes, where: str) -> dict[str, Any]:
    """A session's line as an object in today's format.

    Raises:
        NoSession: the line is no record.
    """
    try:
        value = json.loads(line)
        if value.get("schema_version") == SCHEMA_VERSION:
            return dict(value)
        return dict(json.loads(SessionRecord.from_line(line, where).to_line()))
    except (ValueError, AttributeError, BadRecord) as error:
        raise NoSession(f"{where}: {error}") from None
