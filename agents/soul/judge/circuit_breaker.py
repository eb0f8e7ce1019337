"""The circuit breaker: stops sending requests to an endpoint that fails as a whole, tries again, and finally gives up.

It watches the outcomes of all requests in a sliding window. If too large a share of them fails, it opens: no request is
sent during a pause. Then one request at a time probes the endpoint. A success closes the breaker, a failure opens it
again for twice as long. After a few pauses in a row it trips for good, and the run saves and stops.

The breaker ignores 429, which `rates.Throttle` handles. An unusable answer (a refusal, a wrong schema) counts as a
success here, because a pause would not help; judge.max_failure_rate limits those.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Literal

from soul.errors import CONTENT, PERMANENT

OK = "ok"
State = Literal["closed", "open", "probing", "tripped"]


@dataclass(frozen=True)
class BreakerSettings:
    """When an endpoint is considered down."""

    window_s: float = 60.0
    min_requests: int = 20  # the breaker stays closed with fewer requests in the window
    share: float = 0.5  # the breaker opens if a larger share of the window failed
    pause_s: float = 30.0  # the first pause; each further one is twice as long
    max_pauses: int = 3  # the breaker trips after this many pauses in a row


class CircuitBreaker:
    """The breaker of one endpoint. Callers pass the current time in seconds on a monotonic clock."""

    def __init__(self, settings: BreakerSettings) -> None:
        self.settings = settings
        self.state: State = "closed"
        self.pauses = 0  # in a row
        self.until = 0.0  # the end of the pause
        self.probe_sent = False  # while probing: outcomes that arrive before the probe are from before the pause
        self.last = ""  # detail of the last failure
        self._window: deque[tuple[float, str]] = deque()
        self._counts: Counter[str] = Counter()  # the outcomes in the window

    def record(self, now: float, outcome: str, detail: str) -> None:
        """Record an outcome, "ok" or a cause, and the detail of a failure."""
        if outcome == "rate_limit":
            return
        if outcome in CONTENT:
            outcome = OK
        if outcome != OK:
            self.last = detail or self.last
        if self.state == "probing" and self.probe_sent:
            self._evaluate_probe(now, outcome == OK)
        elif self.state == "closed":
            self._window.append((now, outcome))
            self._counts[outcome] += 1
            while self._window[0][0] < now - self.settings.window_s:
                self._counts[self._window.popleft()[1]] -= 1
            self._evaluate(now)

    def state_at(self, now: float) -> State:
        """The state at this time. When a pause is over, the state becomes "probing"."""
        if self.state == "open" and now >= self.until:
            self.state, self.probe_sent = "probing", False
        return self.state

    def summary(self) -> str:
        """Share and causes of the failures in the window, and the last failure."""
        causes = ", ".join(f"{cause} {n}" for cause, n in self._counts.most_common() if cause != OK and n)
        return f"{self._share():.0%} of {len(self._window)} requests failed ({causes}); last cause: {self.last}"

    def _share(self) -> float:
        return 1.0 - self._counts[OK] / len(self._window) if self._window else 1.0

    def _evaluate(self, now: float) -> None:
        if len(self._window) < self.settings.min_requests or self._share() <= self.settings.share:
            return
        if all(cause in PERMANENT for cause, n in self._counts.items() if cause != OK and n):
            self.state = "tripped"  # waiting does not help against a wrong key or an unknown model
        else:
            self._open(now)

    def _open(self, now: float) -> None:
        if self.pauses >= self.settings.max_pauses:
            self.state = "tripped"
            return
        self.state, self.until = "open", now + self.settings.pause_s * 2**self.pauses
        self.pauses += 1

    def _evaluate_probe(self, now: float, healthy: bool) -> None:
        if healthy:
            self.state, self.pauses = "closed", 0
            self._window.clear()
            self._counts.clear()
        else:
            self._open(now)
