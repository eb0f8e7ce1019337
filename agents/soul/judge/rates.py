"""Two small controllers: a token bucket for rates, and a throttle that adapts to an endpoint that answers 429.

Both are pure arithmetic on a clock that callers pass in (seconds, monotonic), so that tests need not sleep.
"""

from __future__ import annotations

import math
import random

BURST_S = 1.0  # a bucket holds what flows in during this time, so that no burst uses up the quota of a minute
SHORT_S = 0.1  # the first pause after a refusal that does not say how long to wait
LONGER = 1.3  # while nothing is admitted, each pause is longer than the last by this factor
LONG_S = 5.0  # the longest such pause
ROUNDED_S = 1.0  # Retry-After has whole seconds, rounded up, so it asks for up to a second too much
JITTER = 0.05  # a pause is extended at random by up to this share
HOLD_S = 2.0  # how long the cap does not grow after a wave


class Bucket:
    """A token bucket for a rate per minute.

    The level may become negative, because a call reserves an estimate, which its actual use corrects later.
    """

    def __init__(self, per_minute: float | None, now: float) -> None:
        self.rate = math.inf if per_minute is None else per_minute / 60.0
        self.capacity = self.level = max(1.0, self.rate * BURST_S)
        self._then = now

    def refill(self, now: float) -> None:
        """Add what has flowed in since the last call."""
        flowed = math.inf if self.rate == math.inf else self.rate * (now - self._then)
        self.level = min(self.capacity, self.level + flowed)
        self._then = now

    def wait_s(self, least: float) -> float:
        """Seconds until the bucket holds `least`; 0.0 if it does."""
        return 0.0 if self.level >= least else (least - self.level) / self.rate

    def give_back(self, amount: float) -> None:
        """Put back what was not used; a negative amount charges what was used beyond the amount taken."""
        self.level = min(self.capacity, self.level + amount)


class Throttle:
    """Learns how many requests an endpoint takes at a time, from its answers alone.

    The cap grows by one after as many answers, and falls when requests are refused with 429. Refusals come in *waves*:
    the first one, and those of requests that were already on their way. A wave halves the cap at most, and not below
    the number of requests that the endpoint holds; the first wave of all finds that number at once. A single refusal at
    the cap only lowers the cap. Otherwise the reason is a rate, or somebody else with the same key, and the endpoint is
    paused for all calls. A refused call waits by itself for as long as the endpoint asks.

    Attributes:
        most: the cap before any refusal (the setting `concurrency`).
        waves: the number of waves so far. A request carries the number from its admission, so a refusal with an older
            number belongs to a known wave.
        until: the end of the pause; no request is sent before it.
        refusing_s: seconds from the first refusal since the last answer to the latest refusal; 0.0 after an answer.
    """

    def __init__(self, most: int, rng: random.Random | None = None) -> None:
        self.most = most
        self.waves = 0
        self.until = -math.inf
        self.refusing_s = 0.0
        self._refusing_since: float | None = None
        self._rng = rng or random.Random()
        self._cap, self._least = float(most), 1.0
        self._futile = 0  # consecutive waves without an answer between them
        self._held_until = -math.inf  # the cap does not grow before

    @property
    def cap(self) -> int:
        """The number of requests that may be in flight, at least 1."""
        return max(1, int(self._cap))

    def answered(self, now: float) -> None:
        """Record a request that ended without a refusal."""
        self._futile = 0
        self._refusing_since, self.refusing_s = None, 0.0
        if now >= self._held_until:
            self._cap = min(float(self.most), self._cap + 1.0 / self._cap)

    def refused(self, now: float, in_flight: int, wave: int, retry_after: float | None = None) -> None:
        """Record a request that ended with a refusal.

        Args:
            in_flight: the other requests in flight.
            wave: `waves` when it was admitted.
            retry_after: how many seconds it asks to wait; None: it does not say.
        """
        self._refusing_since = now if self._refusing_since is None else self._refusing_since
        self.refusing_s = now - self._refusing_since
        is_new = wave == self.waves
        if is_new:
            self.waves += 1
            self._futile += 1
            self._least = self._cap / 2 if self.waves > 1 or not in_flight else 1.0
            self._held_until = now + HOLD_S
        alone = in_flight == 0 and retry_after is not None
        if not is_new or self._futile > 1 or in_flight + 1 < self.cap or alone:
            pause = min(LONG_S, SHORT_S * LONGER ** min(self._futile, 50))
            if retry_after is not None:
                pause = max(pause, retry_after - ROUNDED_S)
            self.until = max(self.until, now + pause * self._rng.uniform(1.0, 1.0 + JITTER))
        self._cap = max(1.0, self._least, min(self._cap, float(in_flight)))
