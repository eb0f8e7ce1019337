"""The circuit breaker: stops sending requests to an endpoint that fails as a whole, tries again, and finally gives up.

It watches the outcomes of all requests in a sliding window. If too large a share of them fails, it opens: no request is
sent during a pause. Then one request at a time probes the endpoint. A success closes the breaker, a failure opens it
again for twice as long. After a few pauses in a row it trips for good, and the run saves and stops.

The breaker ignores 429, which `rates.Throttle` handles. An unusable answer (a refusal, a wrong schema) counts as a
success here, because a pause would not help; judge.max_failure_rate limits those.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from soul.errors import CONTENT, PERMANENT

OK = "ok"
State = Literal["closed", "open", "probing", "tripped"]


class BreakerSettings(BaseModel):
    """When an endpoint is considered down."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    window_s: float = Field(default=60.0, gt=0)
    min_requests: int = Field(default=20, ge=1)  # the breaker stays closed with fewer requests in the window
    share: float = Field(default=0.5, gt=0, le=1)  # the breaker opens if a larger share of the window failed
    pause_s: float = Field(default=30.0, ge=0)  # the first pause; each further one is twice as long
    max_pauses: int = Field(default=3, ge=0)  # the breaker trips after this many pauses in a row


class CircuitBreaker:
    """The breaker of one endpoint. Callers pass the current time in seconds on a monotonic clock."""

    def __init__(self, settings: BreakerSettings) -> None:
        self.settings = settings
        self.state: State = "closed"
        self.pauses = 0  # in a row
        self.until = 0.0  # the end of the pause
        self.probe_sent = False  # while probing: outcomes that arrive before the probe are from before the pause
        self.last = ""  # detail of the last failure
        self._window: deque[tuple[float, Counter[str]]] = deque()
        self._counts: Counter[str] = Counter()  # the sum over the window, kept up to date

    def record(self, now: float, outcomes: Mapping[str, int], last: str) -> None:
        """Record outcomes ("ok" or a cause -> count) and the detail of the last failure."""
        counts: Counter[str] = Counter()
        for name, n in outcomes.items():
            if n and name != "rate_limit":
                counts[OK if name in CONTENT else name] += n
        if set(counts) - {OK}:
            self.last = last or self.last
        if not counts:
            return
        if self.state == "probing":
            if self.probe_sent:
                self._evaluate_probe(now, healthy=counts[OK] > 0)
        elif self.state == "closed":
            self._window.append((now, counts))
            self._counts += counts
            while self._window[0][0] < now - self.settings.window_s:
                self._counts -= self._window.popleft()[1]
            self._evaluate(now)

    def state_at(self, now: float) -> State:
        """The state at this time. When a pause is over, the state becomes "probing"."""
        if self.state == "open" and now >= self.until:
            self.state, self.probe_sent = "probing", False
        return self.state

    def summary(self) -> str:
        """Share and causes of the failures in the window, and the last failure."""
        counts = self.window_counts()
        causes = ", ".join(f"{cause} {n}" for cause, n in counts.most_common() if cause != OK)
        total = sum(counts.values())
        share = (total - counts[OK]) / total if total else 1.0
        return f"{share:.0%} of {total} requests failed ({causes}); last cause: {self.last}"

    def window_counts(self) -> Counter[str]:
        """The outcomes in the window: "ok" or a cause -> count."""
        return self._counts.copy()

    def _evaluate(self, now: float) -> None:
        counts = self._counts
        total = sum(counts.values())
        if total < self.settings.min_requests or (total - counts[OK]) / total <= self.settings.share:
            return
        if all(cause in PERMANENT for cause in counts if cause != OK):
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
