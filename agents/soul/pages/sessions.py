"""The text of one session, read from its trace by offset, and a search in the texts of all sessions.

A search reads every line, and answers in parts. Most lines are ruled out by their bytes, without parsing: the wanted
text, as JSON writes it, in lower case, or its longest run of ASCII letters, because others can be written in several
ways. What is left is parsed, and the texts themselves decide.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from soul.files.line_file import DamagedFile, line_from
from soul.record import BadRecord, Failure, SessionRecord
from soul.shown_answers import Answers

_PLACES = 'SELECT s.id, f.name, f.inode, s."offset", s.length FROM sessions s JOIN files f ON f.id = s.file_id'
SEARCH_S = 0.5  # that one answer of a search may take


class NoSession(Exception):
    """There is no session with this id: there never was, or its file has been replaced or removed since."""


class Place(NamedTuple):
    """The place of a session's line in the trace files."""

    id: int
    file: str
    inode: int
    offset: int
    length: int


def places_of(connection: sqlite3.Connection, condition: str, *values: Any) -> list[Place]:
    """The places of the sessions for which a condition on sessions `s` and their files `f` holds."""
    return [Place(*row) for row in connection.execute(f"{_PLACES} WHERE {condition}", values)]


def read_line(traces: Path, place: Place) -> bytes:
    """The line of a session; raises NoSession if the file is not the one that was indexed any more."""
    try:
        path = traces / place.file
        with path.open("rb", buffering=0) as file:
            same = os.fstat(file.fileno()).st_ino == place.inode
            stored = os.pread(file.fileno(), place.length, place.offset)
        line = line_from(stored, path) if same and len(stored) == place.length else b""
    except FileNotFoundError:
        raise NoSession(f"{place.file} was there when it was indexed, and is gone") from None
    except DamagedFile:  # its bytes have changed
        line = b""
    if line.startswith(b"{") and line.endswith(b"}\n"):
        return line
    raise NoSession(f"{place.file} has been written again since it was indexed")


def shown(record: SessionRecord, answers: Answers) -> dict[str, Any]:
    """A session as the page shows it: its record with question and answers, and of its usage what is not zero."""
    usage = {
        role: {name: value for name, value in use.to_json().items() if value and name != "latency"}
        for role, use in record.usage.items()
    }
    return {**record.model_dump(), "usage": usage, **answers._asdict()}


def search(traces: Path, places: Sequence[Place], text: str) -> dict[str, Any]:
    """Search sessions for a text, upper and lower case alike; see `searched`."""
    needle, of = _needle(text), {place.id: place for place in places}

    def has(number: int) -> bool:
        try:
            line = read_line(traces, of[number])
            return needle in line.lower() and contains(SessionRecord.from_line(line, of[number].file), text)
        except (NoSession, BadRecord):  # the run has replaced its file: the new rows are searched next time
            return False

    return searched(list(of), has)


def searched(ids: Sequence[int], has: Callable[[int], bool]) -> dict[str, Any]:
    """Search for SEARCH_S at most: {"hits": ids, "after": where to go on, None at the end, "share": of the ids}."""
    hits, end = [], time.monotonic() + SEARCH_S
    for number in ids:
        if has(number):
            hits.append(number)
        if time.monotonic() > end and number != ids[-1]:
            return {"hits": hits, "after": number, "share": number / ids[-1]}
    return {"hits": hits, "after": None, "share": 1.0}


def contains(record: SessionRecord, text: str) -> bool:
    """Tell whether a session has this text."""
    return any(text.lower() in one.lower() for one in texts(record))


def texts(record: SessionRecord) -> Iterator[str]:
    """The searched texts: conversations, calls, critiques, feedback, failures, fields of record and episodes."""
    for attempt in record.attempts:
        for messages in [*(attempt.seats or {}).values(), *(call.request for call in attempt.calls)]:
            yield from (message["content"] for message in messages)
        replies = [call.reply for call in attempt.calls]
        yield from _leaves([replies, attempt.critique, attempt.episode, attempt.failure, attempt.ended])
    yield from _leaves([record.feedback, record.feedback_failure, record.redacted, record.record, record.groups])


def _needle(text: str) -> bytes:
    """Bytes that every line with the text contains, once they are in lower case."""
    longest = max(re.findall(r"[\x00-\x7f]+", text), key=len, default="")
    return json.dumps(longest)[1:-1].lower().encode("ascii")


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Failure):
        value = vars(value)
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        yield from chain.from_iterable(map(_leaves, value))
    elif value is not None:
        yield str(value)
