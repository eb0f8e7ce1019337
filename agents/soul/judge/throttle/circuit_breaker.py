"""The circuit breaker: when an endpoint as a whole fails, stop asking, try again, and give up in the end.

It looks at every request's outcome over a sliding window. Too large a share of failures opens it: nothing is sent for a
while. Then one request at a time probes; a success closes it, a failure opens it again for twice as long. After a few
openings in a row it trips for good, and the run saves and stops. 429 is none of its business (`rates.AdaptiveCap`); nor
is an answer that came and is no good (a refusal, a wrong schema): pausing heals none, judge.max_failure_rate counts it.
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
    """When an endpoint counts as down."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    window_s: float = Field(default=60.0, gt=0)
    min_requests: int = Field(default=20, ge=1)  # fewer in the window say nothing
    share: float = Field(default=0.5, gt=0, le=1)  # failures above this share of the window open it
    pause_s: float = Field(default=30.0, ge=0)  # the first pause; each further one is twice as long
    max_pauses: int = Field(default=3, ge=0)  # after so many in a row it trips


class CircuitBreaker:
    """One endpoint's breaker; the clock is the caller's."""

    def __init__(self, settings: BreakerSettings) -> None:
        self.settings = settings
        self.state: State = "closed"
        self.pauses = 0  # in a row
        self.until = 0.0  # the end of the pause
        self.probed = False  # probing: a request was let through; what is heard before is from before the pause
        self.last = ""  # the last failure's detail
        self._window: deque[tuple[float, Counter[str]]] = deque()

    def heard(self, now: float, outcomes: Mapping[str, int], last: str) -> None:
        """Take in outcomes ("ok" or a cause, how often) and the detail of the last failure."""
        counted: Counter[str] = Counter()
        for name, n in outcomes.items():
            if n and name != "rate_limit":
                counted[OK if name in CONTENT else name] += n
        if set(counted) - {OK}:
            self.last = last or self.last
        if not counted:
            return
        if self.state == "probing":
            if self.probed:
                self._judge_probe(now, healthy=counted[OK] > 0)
        elif self.state == "closed":
            self._window.append((now, counted))
            self._forget(now)
            self._judge(now)

    def at(self, now: float) -> State:
        """The state at this time: a pause that is over becomes probing."""
        if self.state == "open" and now >= self.until:
            self.state, self.probed = "probing", False
        return self.state

    def summary(self) -> str:
        """Share and causes of the failures in the window, and the last one."""
        seen = self._seen()
        causes = ", ".join(f"{cause} {n}" for cause, n in seen.most_common() if cause != OK)
        total = sum(seen.values())
        share = (total - seen[OK]) / total if total else 1.0
        return f"{share:.0%} of {total} requests failed ({causes}); last cause: {self.last}"

    def _seen(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for _, outcomes in self._window:
            total += outcomes
        return total

    def _forget(self, now: float) -> None:
        while self._window and self._window[0][0] < now - self.settings.window_s:
            self._window.popleft()

    def _judge(self, now: float) -> None:
        seen = self._seen()
        total = sum(seen.values())
        if total < self.settings.min_requests or (total - seen[OK]) / total <= self.settings.share:
            return
        if all(cause in PERMANENT for cause in seen if cause != OK):
            self.state = "tripped"  # a key or a model that is gone: no waiting heals it
        else:
            self._open(now)

    def _open(self, now: float) -> None:
        if self.pauses >= self.settings.max_pauses:
            self.state = "tripped"
            return
        self.state, self.until = "open", now + self.settings.pause_s * 2**self.pauses
        self.pauses += 1

    def _judge_probe(self, now: float, healthy: bool) -> None:
        if healthy:
            self.state, self.pauses = "closed", 0
            self._window.clear()
        else:
            self._open(now)
