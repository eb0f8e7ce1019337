"""Log what calls wait for, and which requests fail: one line every ten seconds for all calls of an endpoint."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable

logger = logging.getLogger(__name__)

PATIENCE_S = 2.0  # a shorter wait is not worth a line
REPEAT_S = 10.0  # between two log lines about one reason


class WaitNotice:
    """Logs why calls wait; the same reason again after ten seconds at the earliest."""

    def __init__(self) -> None:
        self._logged_at: dict[str, float] = {}  # kind of the reason -> time of its last line

    def log(self, now: float, kind: str, text: str) -> None:
        """Log the text, unless a line of this kind was logged a moment ago."""
        if now - self._logged_at.get(kind, -math.inf) >= REPEAT_S:
            self._logged_at[kind] = now
            logger.warning("%s", text)


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
