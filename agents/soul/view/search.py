"""Search the texts of a run: every line is read, and hits come as they are found.

Most lines are ruled out by their bytes, without parsing: the wanted text, as JSON writes it, in lower case. A text with
letters outside ASCII can be written in several ways, so only its longest run of ASCII letters is looked for first. What
is left is parsed, and the texts themselves decide.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from soul.view.sessions import NoSession, Place, read_line, session_object

REPORT_S = 0.25  # between two reports of progress
Event = dict[str, int | float | bool]


def search(traces: Path, places: Sequence[Place], text: str) -> Iterator[Event]:
    """Search sessions for a text, upper and lower case alike.

    Args:
        places: of the sessions, in the order in which they are searched.

    Yields:
        {"hit": id} for each session that has it, {"progress": share of the bytes} now and then, {"end": True}.
    """
    wanted, needle = text.lower(), _needle(text)
    total, done = sum(place.length for place in places), 0
    reported = time.monotonic()
    for place in places:
        try:
            line = read_line(traces, place)
            if needle in line.lower() and _has(session_object(line, place.file), wanted):
                yield {"hit": place.id}
        except NoSession:  # the run has replaced the file: its new rows are searched next time
            pass
        done += place.length
        if time.monotonic() - reported > REPORT_S:
            reported = time.monotonic()
            yield {"progress": round(done / total, 4)}
    yield {"end": True}


def texts(session: Mapping[str, Any]) -> Iterator[str]:
    """What can be searched: conversations, critiques, feedback, failures, fields of the record and of the episodes."""
    for name in ("draft", "refined"):
        attempt = session.get(name) or {}
        for messages in (attempt.get("seats") or {}).values():
            yield from (message["content"] for message in messages)
        yield from _leaves([attempt.get(part) for part in ("critique", "episode", "failure", "ended")])
    yield from _leaves([session.get(part) for part in ("feedback", "feedback_failure", "redacted", "record", "groups")])


def _has(session: Mapping[str, Any], wanted: str) -> bool:
    return any(wanted in text.lower() for text in texts(session))


def _needle(text: str) -> bytes:
    """Bytes that every line with the text contains, once they are in lower case."""
    runs = re.findall(r"[\x00-\x7f]+", text)
    longest = max(runs, key=len, default="")
    return json.dumps(longest)[1:-1].lower().encode("ascii")


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif value is not None:
        yield str(value)
