"""Calls that wait say so: one line in the log for all that wait for the same thing, however many they are.

The line comes two seconds after the first of them began to wait, and says what they wait for and how long at most.
While the same reason lasts, it is repeated at growing intervals.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

logger = logging.getLogger(__name__)

PATIENCE_S = 2.0
REPEAT_S = 60.0  # to the second line of one reason; each further interval is so many times longer:
GROWTH = 4.0


class Reason(NamedTuple):
    """Why calls wait.

    Attributes:
        kind: lines of one kind count as the same line.
        text: what they wait for and how long at most, for people.
    """

    kind: str
    text: str


class WaitNotice:
    """Counts the calls that wait at one place of one process.

    Args:
        explain: told how many wait, and of each of them the seconds that it will wait at most where the place knows;
            it gives the reason, or None where there is nothing to say at the moment.
    """

    def __init__(self, explain: Callable[[int, Sequence[float]], Reason | None]) -> None:
        self._explain = explain
        self._waiting: dict[object, tuple[float, Callable[[], float] | None]] = {}  # since when; the oldest first
        self._loop: asyncio.AbstractEventLoop | None = None  # of the timer that is set
        self._next: dict[str, tuple[float, float]] = {}  # kind -> not again before, the interval after that

    @contextmanager
    def waiting(self, seconds_left: Callable[[], float] | None = None) -> Iterator[None]:
        """Around a wait.

        Args:
            seconds_left: how much longer it takes at most, asked when a line is written.
        """
        call, loop = object(), asyncio.get_running_loop()
        self._waiting[call] = loop.time(), seconds_left
        if self._loop is not loop:
            self._look_in(PATIENCE_S, loop)
        try:
            yield
        finally:
            del self._waiting[call]

    def _look_in(self, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        loop.call_later(seconds, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._waiting:
            self._loop = None
            return
        now = loop.time()
        since, _ = next(iter(self._waiting.values()))
        left = since + PATIENCE_S - now
        self._look_in(left if left > 0 else PATIENCE_S, loop)
        if left <= 0:
            self._say(now)

    def _say(self, now: float) -> None:
        reason = self._explain(len(self._waiting), [left() for _, left in self._waiting.values() if left is not None])
        if reason is None:
            return
        not_before, interval = self._next.get(reason.kind, (now, REPEAT_S))
        if now >= not_before:
            self._next[reason.kind] = now + interval, interval * GROWTH
            logger.warning("%s", reason.text)


def calls(count: int) -> str:
    """ "1 call waits", "5 calls wait"."""
    return "1 call waits" if count == 1 else f"{count:,} calls wait"
