"""The sessions of a run as JSON columns, which the page keeps and appends to.

A page asks for what is newer than the last row and revision that it knows. Columns of repeated texts are coded:
{"values": ["sotopia"], "codes": [0, 0, 0]}.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from soul.view.session_row import SessionRow

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
