"""Two small controllers: a token bucket for rates, and a throttle that adapts to an endpoint that answers 429.

Both are pure arithmetic on a clock that callers pass in (seconds, monotonic), so that tests need not sleep.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

BURST_S = 1.0  # a bucket holds what flows in during this time, so that no burst uses up the quota of a minute
STEP_S = 0.02  # how soon a gate may ask a slowed bucket again
SHORT_S = 0.1  # the first pause after a refusal that does not say how long to wait
LONGER = 1.3  # while nothing is admitted, each pause is longer than the last by this factor
LONG_S = 5.0  # the longest such pause
JITTER = 0.05  # a pause is extended at random by up to this share
HORIZON_S = 15.0  # the measured rate covers this much of the past


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
        self.capacity = 1.5 + self.rate * STEP_S if self.slowed else max(1.0, self.rate * BURST_S)
        self.level = min(self.level, self.capacity)

    def refill(self, now: float) -> None:
        """Add what has flowed in since the last call."""
        if self.rate != math.inf:
            self.level = min(self.capacity, self.level + self.rate * (now - self._then))
        self._then = now

    def next_s(self, most: float) -> float:
        """Seconds until asking again makes sense: `most`, or when a slowed bucket admits the next request."""
        return max(STEP_S, min(most, (1.0 - self.level) / self.rate)) if self.slowed else most

    def take(self, wanted: float) -> float:
        """Take up to `wanted` out of the bucket, and return the amount taken."""
        taken = max(0.0, min(wanted, self.level))
        if self.rate != math.inf:
            self.level -= taken
        return taken

    def give_back(self, amount: float) -> None:
        """Put back what was not used; a negative amount charges what was used beyond the amount taken."""
        if self.rate != math.inf:
            self.level = min(self.capacity, self.level + amount)


class Throttle:
    """Learns the capacity of an endpoint that refuses requests with 429, from its answers alone.

    An endpoint limits either the requests in flight or a rate, and rarely says which. So this keeps both a cap and a
    rate. Refusals come in *waves*: the first one pauses the endpoint for all processes, and the others, of requests
    that were already on their way, are only counted. At the end of the pause, all requests that are still in flight
    have been admitted. So the wave shows how many requests the endpoint held at once, and how many it has admitted
    since the wave before:

    - If it never held that many without a refusal, the cap is the reason: it falls to the number that it did hold.
    - If it held that many before, the cap is not the reason: the rate falls to the rate that it did admit.

    Both grow again additively with each answer. After a wave they are first held for many times the pause, so that
    probing for a higher limit takes only a small share of the time.

    Attributes:
        most: the cap before any refusal (the setting `concurrency`).
        rate: requests per second; inf until a rate limit has shown.
        waves: the number of waves so far. A request carries the number from its grant, so a refusal with an older
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
        self._held = 0  # the number of requests in flight that the endpoint is known to accept
        self._rising: tuple[int, int] | None = None  # a higher number on trial; answers needed until it is confirmed
        self._answered = 0
        self._admitted: deque[tuple[float, int]] = deque([(now, 0)])  # (time, total number admitted so far)
        self._wave: _Wave | None = None
        self._full = now  # start of the last wave before which any request was admitted
        self._burst = 0  # requests admitted between that wave and the one before it
        self._restarted = now  # end of the last pause
        self._futile = 0  # consecutive waves without an admitted request
        self._probed = False  # whether a cap set by a wave has been tried
        self._cap_hold = _Hold()
        self._rate_hold = _Hold()

    @property
    def cap(self) -> int:
        """The number of requests that may be in flight, at least 1."""
        return max(1, int(self._cap))

    def record(
        self, now: float, in_flight: int, answered: int, refused: Mapping[int, int], retry_after: float | None = None
    ) -> None:
        """Record outcomes of requests.

        Args:
            in_flight: requests in flight over all processes, without those in the outcomes.
            answered: how many requests ended without a refusal.
            refused: how many requests were refused: `waves` at the time of their grant -> count.
            retry_after: the longest wait in seconds that the refusals ask for.
        """
        self._answered += answered
        if answered:
            self._refusing_since, self.refusing_s = None, 0.0
        number = sum(refused.values())
        if self._wave is not None and number:
            self._wave.refused += number
            self.until = max(self.until, now + self._jittered(retry_after or 0.0))
        elif refused.get(self.waves):
            self.waves += 1
            self._wave = _Wave(now, in_flight + number, number)
            self._wave.pause = self._jittered(
                max(retry_after or 0.0, min(LONG_S, SHORT_S * LONGER ** min(self._futile, 50)))
            )
            self.until = now + self._wave.pause
        if number:
            self._refusing_since = now if self._refusing_since is None else self._refusing_since
            self.refusing_s = now - self._refusing_since
        if self._wave is not None:
            if now >= self.until:
                self._settle(self._wave, now, in_flight)
        else:
            self._grow(now, in_flight, answered)

    def _jittered(self, seconds: float) -> float:
        return seconds * self._rng.uniform(1.0, 1.0 + JITTER)

    def _grow(self, now: float, in_flight: int, answered: int) -> None:
        total = self._answered + in_flight
        self._admitted.append((now, total))
        while self._admitted[0][0] < now - HORIZON_S:
            self._admitted.popleft()
        if self._rising is None and in_flight > self._held:
            self._rising = in_flight, in_flight
        elif self._rising is not None:
            level, missing = self._rising
            self._rising = level, missing - answered
            if missing <= answered:
                self._held, self._rising = max(self._held, level), None
        if answered and now >= self._cap_hold.until:
            self._cap = min(float(self.most), self._cap + answered / self._cap)
        if self.rate < math.inf and now >= self._rate_hold.until:
            self.rate += answered * self._rate_hold.growth

    def _settle(self, wave: _Wave, now: float, in_flight: int) -> None:
        """Lower the cap or the rate at the end of a pause, when all requests in flight have been admitted."""
        self._wave, self._rising = None, None
        admitted = self._answered + in_flight
        since = admitted - self._at(self._full)
        held = max(1, wave.peak - wave.refused)
        if since <= 0:
            self._futile += 1
            self.rate = min(self.rate, max(self._burst / (now - self._full), 1.0 / wave.pause))
        elif wave.peak > self._held:
            self._cap = float(min(held, self.cap))
            self._cap_hold.again(now, wave.pause)
            self._held = held
            if self._probed or self.rate < math.inf:  # the rate may be the reason nevertheless
                self._lower_rate(wave, since, now)
            self._probed = True
        else:
            self._lower_rate(wave, since, now)
            self._held = max(held, self._held // 2)
        if since > 0:
            self._futile, self._burst = 0, since
            self._full = wave.began
            self._admitted.append((wave.began, admitted))
        self._restarted = now

    def _lower_rate(self, wave: _Wave, since: int, now: float) -> None:
        """Lower the rate to a little less than what was admitted recently.

        The first estimate is too low, because its time span includes a pause, so it may grow again at once.
        """
        seconds = wave.began - self._full
        if self.rate == math.inf:
            self.rate = since / max(seconds, SHORT_S)
            return
        begin = max(self._restarted, wave.began - max(1.0, seconds / 4))
        recent = (self._at(math.inf) - self._at(begin)) / max(wave.began - begin, 1.0)
        self.rate *= min(0.97, max(0.7, 0.97 * recent / self.rate))
        self._rate_hold.again(now, wave.pause)

    def _at(self, then: float) -> int:
        """The total number of requests admitted up to that time."""
        return next((total for at, total in reversed(self._admitted) if at <= then), self._admitted[0][1])


@dataclass
class _Wave:
    """A wave: refusals of requests that were sent before the first of these refusals was known.

    Attributes:
        peak: requests in flight when the first refusal was recorded.
    """

    began: float
    peak: int
    refused: int
    pause: float = 0.0


@dataclass
class _Hold:
    """When a cap or a rate may grow after a wave, and how fast. Each further wave makes it later and slower."""

    until: float = -math.inf
    growth: float = 0.2  # growth of a rate with each answer, in requests per second
    times: float = 20.0  # the hold lasts this many pauses, so that probing takes at most 5 % of the time

    def again(self, now: float, pause: float) -> None:
        self.until = now + self.times * pause
        self.times = min(2 * self.times, 60.0)
        self.growth = 0.1
