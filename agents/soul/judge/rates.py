"""Two small controllers: a token bucket for rates, and a throttle that adapts to an endpoint that answers 429.

Both are pure arithmetic on a clock that callers pass in (seconds, monotonic), so that tests need not sleep.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

BURST_S = 1.0  # a bucket holds what flows in during this time, so that no burst uses up the quota of a minute
STEP_S = 0.02  # a slowed bucket holds one request and what flows in during this time, because timers are late
SHORT_S = 0.1  # the first pause after a refusal that does not say how long to wait
LONGER = 1.3  # while nothing is admitted, each pause is longer than the last by this factor
LONG_S = 5.0  # the longest such pause
MEASURED_S = 1.0  # the rate that an endpoint admits is measured over this time, or a longer one
JITTER = 0.05  # a pause is extended at random by up to this share
MANY = 10  # answers since the last wave, after which a refusal lowers the cap or the rate without a pause
EASED = 0.9  # by this factor
CAP_HOLD_S = 2.0
HOLD_S = 1.0  # how long neither grows after a wave
GROWTH = 3.0  # of the rate in each second, in requests per second; or a tenth of the rate, if that is more


class Bucket:
    """A token bucket for a rate per minute.

    The level may become negative, because a call reserves an estimate, which its actual use corrects later.
    """

    def __init__(self, per_minute: float | None, now: float) -> None:
        self.rate = self._most = math.inf if per_minute is None else per_minute / 60.0
        self.slowed = False
        self.capacity = math.inf if per_minute is None else max(1.0, self.rate * BURST_S)
        self.level = self.capacity
        self._then = now

    def slow_down_to(self, rate: float) -> None:
        """Limit the rate to `rate` per second in addition to the rate per minute; inf: remove this limit."""
        if rate == math.inf and not self.slowed:
            return
        self.slowed = rate < self._most
        self.rate = min(rate, self._most)
        self.capacity = 1.0 + self.rate * STEP_S if self.slowed else max(1.0, self.rate * BURST_S)
        self.level = min(self.level, self.capacity)

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
    """Learns the capacity of an endpoint that refuses requests with 429, from its answers alone.

    An endpoint limits either the requests in flight or a rate, and rarely says which. So this keeps both a cap and a
    rate. Refusals come in *waves*, each of which counts once: the first one, and those of requests that were already
    on their way. A refused call waits by itself for as long as the endpoint asks.

    - At first, and when nothing was answered for a second, far too much is sent. Such a wave pauses the endpoint for
      all calls. At the end of the pause, all requests still in flight have been admitted, so the refusals can be
      counted: the cap falls to the number that the endpoint did hold; from the second pause on it halves at most, and
      the rate falls to the one that the endpoint admitted.
    - Otherwise a little too much is sent, by this process or by another with the same key. What is reached falls: the
      cap to the number that was held, or the rate by the share of refusals, a tenth at least.

    Both are then held for a moment, and grow again additively: the cap by one after as many answers, the rate with
    time.

    Attributes:
        most: the cap before any refusal (the setting `concurrency`).
        rate: requests per second; inf until a rate limit has shown.
        waves: the number of waves so far. A request carries the number from its admission, so a refusal with an older
            number belongs to a known wave.
        until: the end of the pause; no request is sent before it.
        refusing_s: seconds from the first refusal since the last answer to the latest refusal; 0.0 after an answer.
    """

    def __init__(self, most: int, now: float, rng: random.Random | None = None) -> None:
        self.most = most
        self.rate = math.inf
        self.waves = 0
        self.until = -math.inf
        self.refusing_s = 0.0
        self._refusing_since: float | None = None
        self._rng = rng or random.Random()
        self._cap = float(most)
        self._wave: _Wave | None = None  # during a pause
        self._futile = 0  # consecutive pauses without an answer between them
        self._answered = self._refused = 0  # since the last wave
        self._all_answered = 0
        self._cap_held_until = self._held_until = self._grown = self._last_answer = now
        self._goal = 0.0  # the rate up to which it grows fast, because the endpoint has admitted it before
        self._excess_s = 0.0  # what pauses took beyond MEASURED_S
        self._marks = [(now, 0)] * 2  # two times, at least MEASURED_S apart, and how many were answered by then

    @property
    def cap(self) -> int:
        """The number of requests that may be in flight, at least 1."""
        return max(1, int(self._cap))

    def answered(self, now: float) -> None:
        """Record a request that ended without a refusal."""
        self._answered += 1
        self._all_answered += 1
        self._last_answer = now
        self._refusing_since, self.refusing_s = None, 0.0
        if now - self._excess_s - self._marks[1][0] >= MEASURED_S:
            self._marks = [self._marks[1], (now - self._excess_s, self._all_answered)]
        if self._wave is None and now >= self._cap_held_until:
            self._cap = min(float(self.most), self._cap + 1.0 / self._cap)
        if self._wave is None and now >= self._held_until:
            seconds, self._grown = now - max(self._grown, self._held_until), now
            self.rate += seconds * GROWTH * (1.0 + now - self._held_until) + max(0.0, self._goal - self.rate) / 5

    def refused(self, now: float, in_flight: int, wave: int, retry_after: float | None = None) -> None:
        """Record a request that ended with a refusal.

        Args:
            in_flight: the other requests in flight.
            wave: `waves` when it was admitted.
            retry_after: how many seconds it asks to wait; None: it does not say.
        """
        self._refusing_since = now if self._refusing_since is None else self._refusing_since
        self.refusing_s = now - self._refusing_since
        unknown = self.rate == math.inf
        if self._wave is not None:
            self._wave.refused += 1
            self.until = max(self.until, now + self._jittered(retry_after or 0.0))
            return
        self._refused += 1
        if wave != self.waves:
            return
        if self._answered < MANY if unknown else now - self._last_answer >= MEASURED_S:
            self._futile = 0 if self._answered else self._futile + 1
            pause = max(retry_after or 0.0, min(LONG_S, SHORT_S * LONGER ** min(self._futile, 50)))
            self._wave = _Wave(now, in_flight + 1, self._jittered(pause))
            self.until = now + self._wave.pause
        elif unknown or in_flight + 1 >= self.cap or now >= self._held_until:
            self._ease(now, in_flight + 1)
        else:
            return
        self.waves += 1
        self._answered = self._refused = 0

    def advance(self, now: float, in_flight: int) -> None:
        """End the pause if its time is over."""
        if self._wave is not None and now >= self.until:
            wave, self._wave = self._wave, None
            self._settle(wave, now, in_flight)
            self._held_until, self._cap_held_until = now + HOLD_S, now + CAP_HOLD_S

    def _jittered(self, seconds: float) -> float:
        return seconds * self._rng.uniform(1.0, 1.0 + JITTER)

    def _ease(self, now: float, in_flight: int) -> None:
        others = max(0.5, self._answered / (self._answered + self._refused - 1)) if self._answered else 0.5
        if self.rate == math.inf and now < self._cap_held_until:  # the cap is known, so it is not the reason
            self.rate = self._goal = self._measured(now, in_flight - 1)
            self._held_until = now + HOLD_S
        elif in_flight >= self.cap or self.rate == math.inf:
            self._cap = max(1.0, min(self._cap, in_flight - 1) * others)
            self._cap_held_until = now + CAP_HOLD_S
        else:
            self.rate *= min(EASED, others)
            self._goal = self.rate
            self._held_until = now + HOLD_S

    def _settle(self, wave: _Wave, now: float, in_flight: int) -> None:
        """Lower cap and rate at the end of a pause, when all requests in flight have been admitted."""
        held, is_first = wave.peak - wave.refused, self._cap == self.most and self.rate == math.inf
        least = 1.0 if is_first and held > 0 else self._cap / 2
        self._cap = max(1.0, least, min(float(held), self._cap))
        self._excess_s += max(0.0, now - wave.began - MEASURED_S)
        if not is_first:
            self.rate = min(self.rate * EASED, max(self._measured(now, in_flight), 1.0 / MEASURED_S))
            self._goal = self._goal if self._futile else self.rate

    def _measured(self, now: float, in_flight: int) -> float:
        """The rate that the endpoint has admitted lately, per second; these requests in flight are admitted too."""
        passed = now - self._excess_s
        then, answered = self._marks[passed - self._marks[1][0] >= MEASURED_S]
        return (self._all_answered + in_flight - answered) / max(MEASURED_S, passed - then)


@dataclass
class _Wave:
    """Refusals of requests that were sent before the first of these refusals was known.

    Attributes:
        peak: requests in flight when the first refusal was recorded.
    """

    began: float
    peak: int
    pause: float
    refused: int = 1
