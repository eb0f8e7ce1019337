"""Two small controllers: a token bucket for rates, and a concurrency cap that gives way when an endpoint says 429.

Both are plain arithmetic on a clock that is passed in, so that tests need no sleeping.
"""

from __future__ import annotations

import math

BURST_S = 1.0  # a bucket holds what flows into it in this time: a minute's quota is never spent in one burst
SHRINK = 0.8
COOLDOWN_S = 15.0  # one shrink for one wave of 429, however many calls it hits


class Bucket:
    """A rate per minute. May go negative: a call is charged by estimate and corrected by what it used."""

    def __init__(self, per_minute: float | None, now: float) -> None:
        self.rate = math.inf if per_minute is None else per_minute / 60.0
        self.capacity = math.inf if per_minute is None else max(1.0, self.rate * BURST_S)
        self.level = self.capacity
        self._then = now

    def refill(self, now: float) -> None:
        """Let flow in what the time since the last call gives."""
        if self.rate != math.inf:
            self.level = min(self.capacity, self.level + self.rate * (now - self._then))
        self._then = now

    def take(self, wanted: float) -> float:
        """Take up to `wanted`; what is taken leaves the bucket."""
        taken = max(0.0, min(wanted, self.level))
        if self.rate != math.inf:
            self.level -= taken
        return taken

    def give_back(self, amount: float) -> None:
        """Return what was not used; negative where more was used than taken."""
        if self.rate != math.inf:
            self.level = min(self.capacity, self.level + amount)


class AdaptiveCap:
    """Concurrency that shrinks by a fifth on a wave of 429, and grows back by one per cap's worth of successes."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._value = float(most)
        self._shrunk_at = -math.inf

    @property
    def value(self) -> int:
        return max(1, int(self._value))

    def heard(self, now: float, answered: int, rate_limited: int, in_flight: int) -> None:
        """Take in outcomes of requests.

        Args:
            in_flight: how many were in flight over all processes: a cap above that has not been tested.
        """
        if rate_limited and now - self._shrunk_at >= COOLDOWN_S:
            self._value = max(1.0, SHRINK * min(self._value, max(1, in_flight)))
            self._shrunk_at = now
        elif answered and now - self._shrunk_at >= COOLDOWN_S:
            self._value = min(float(self.most), self._value + answered / self._value)
