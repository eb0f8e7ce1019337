"""Log what calls wait for, with one line for all calls that wait for the same thing.

The line is logged when the first of them has waited for two seconds. It names the endpoint, the reason, the number of
waiting calls and the longest possible wait. While the reason lasts, it is repeated every ten seconds.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

logger = logging.getLogger(__name__)

PATIENCE_S = 2.0
REPEAT_S = 10.0  # between two log lines about one reason


class Reason(NamedTuple):
    """Why calls wait.

    Attributes:
        kind: log lines of the same kind repeat each other.
        text: the log line: what the calls wait for, and for how long at most.
    """

    kind: str
    text: str


class WaitNotice:
    """Counts the calls that wait at one place, and logs why they wait.

    Args:
        explain: takes the number of waiting calls, and returns the reason.
    """

    def __init__(self, explain: Callable[[int], Reason]) -> None:
        self._explain = explain
        self._waiting: dict[object, float] = {}  # call -> start
        self._loop: asyncio.AbstractEventLoop | None = None  # the event loop of the timer, while one is set
        self._logged_at: dict[str, float] = {}  # kind -> time of its last log line

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wrap a wait in this context manager."""
        call, loop = object(), asyncio.get_running_loop()
        self._waiting[call] = loop.time()
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
        left = next(iter(self._waiting.values())) + PATIENCE_S - now
        self._look_in(left if left > 0 else PATIENCE_S, loop)
        if left > 0:
            return
        reason = self._explain(len(self._waiting))
        if now - self._logged_at.get(reason.kind, -math.inf) >= REPEAT_S:
            self._logged_at[reason.kind] = now
            logger.warning("%s", reason.text)


class FailureNotice:
    """Counts failed requests to one endpoint, and logs them in one line every ten seconds while requests fail.

    Args:
        name: the endpoint's name.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._clock = name, clock
        self._failed: Counter[str] = Counter()
        self._logged_at = -math.inf

    def add(self, cause: str, detail: str, waiting: int) -> None:
        """Count a failed request.

        Args:
            cause: the class of the failure.
            detail: the failure in one line.
            waiting: the number of calls that wait to be sent again.
        """
        self._failed[cause] += 1
        now = self._clock()
        if now - self._logged_at >= REPEAT_S:
            causes = ", ".join(f"{cause} {n:,}" for cause, n in self._failed.most_common())
            again = f", {calls(waiting)} to be sent again" if waiting else ""
            last = detail.removeprefix(f"{self._name}: ")
            logger.warning("requests to %s fail (%s)%s; the last failure: %s", self._name, causes, again, last)
            self._failed.clear()
            self._logged_at = now


def calls(count: int) -> str:
    """The subject and verb of a log line: "1 call waits", "5 calls wait"."""
    return "1 call waits" if count == 1 else f"{count:,} calls wait"
