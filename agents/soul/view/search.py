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

from soul.record import BadRecord, Failure, SessionRecord
from soul.view.sessions import NoSession, Place, read_line

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
        if _has(traces, place, needle, wanted):
            yield {"hit": place.id}
        done += place.length
        if time.monotonic() - reported > REPORT_S:
            reported = time.monotonic()
            yield {"progress": round(done / total, 4)}
    yield {"end": True}


def _has(traces: Path, place: Place, needle: bytes, wanted: str) -> bool:
    """Whether a session has the text; not if the run has replaced its file, whose new rows are searched next time."""
    try:
        line = read_line(traces, place)
        if needle not in line.lower():
            return False
        return any(wanted in text.lower() for text in texts(SessionRecord.from_line(line, place.file)))
    except (NoSession, BadRecord):
        return False


def texts(record: SessionRecord) -> Iterator[str]:
    """What can be searched: conversations, critiques, feedback, failures, fields of the record and of the episodes."""
    for attempt in record.attempts:
        for messages in (attempt.seats or {}).values():
            yield from (message["content"] for message in messages)
        yield from _leaves([attempt.critique, attempt.episode, _failure_texts(attempt.failure), attempt.ended])
    yield from _leaves(
        [record.feedback, _failure_texts(record.feedback_failure), record.redacted, record.record, record.groups]
    )


def _failure_texts(failure: Failure | None) -> list[str]:
    return [failure.stage, failure.cause, failure.detail] if failure else []


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
