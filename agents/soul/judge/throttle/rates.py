"""Two small controllers: a token bucket for rates, and what an endpoint takes that answers 429.

Both are plain arithmetic on a clock that is passed in, so that tests need no sleeping.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

BURST_S = 1.0  # a bucket holds what flows into it in this time: a minute's quota is never spent in one burst
STEP_S = 0.02  # a slowed bucket is asked no sooner than this
SHORT_S = 0.1  # the pause after a refusal that does not say how long to wait
LONGER = 1.3  # the factor of that pause while nothing is admitted
LONG_S = 5.0  # and its end
JITTER = 0.05  # a pause is longer by up to this share
HORIZON_S = 15.0  # how far back the measured rate looks


class Bucket:
    """A rate per minute. May go negative: a call is charged by estimate and corrected by what it used."""

    def __init__(self, per_minute: float | None, now: float) -> None:
        self.rate = self._most = math.inf if per_minute is None else per_minute / 60.0
        self.slowed = False
        self.capacity = math.inf if per_minute is None else max(1.0, self.rate * BURST_S)
        self.level = self.capacity
        self._then = now

    def slow_down_to(self, rate: float) -> None:
        """Let no more than `rate` a second through, whatever the rate per minute is; inf: only that one holds."""
        if rate == math.inf and not self.slowed:
            return
        self.slowed = rate < self._most
        self.rate = min(rate, self._most)
        self.capacity = 1.5 + self.rate * STEP_S if self.slowed else max(1.0, self.rate * BURST_S)
        self.level = min(self.level, self.capacity)

    def refill(self, now: float) -> None:
        """Let flow in what the time since the last call gives."""
        if self.rate != math.inf:
            self.level = min(self.capacity, self.level + self.rate * (now - self._then))
        self._then = now

    def next_s(self, most: float) -> float:
        """How soon to ask again: at a rate that `slow_down_to` has set, when the next request is due."""
        return max(STEP_S, min(most, (1.0 - self.level) / self.rate)) if self.slowed else most

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


class Throttle:
    """How much an endpoint that refuses requests (429) takes, learnt from its answers alone.

    An endpoint limits requests in flight, or a rate, and seldom says which. So this keeps both, a cap and a rate. The
    first refusal of a *wave* pauses the endpoint for everybody; the others of its wave only count. When the pause is
    over, whatever is in flight has been admitted, so the wave tells how many the endpoint held at once and how many
    it has admitted since the wave before:

    - Never before were so many held without a refusal: the cap falls to what it did hold.
    - As many were held before: the number in flight is not the reason, and the rate falls to what it did admit.

    Both grow again additively, one for so many answers; after a wave not before a hold of many times the pause, so
    that looking for a higher limit costs a small share of the time.

    Attributes:
        most: the cap without any refusal.
        rate: requests a second; inf where no rate limit has shown.
        waves: how many waves there were. A request is sent under the number of its grant: a refusal under an older
            number belongs to a wave that is known already.
        until: the end of the pause; nothing is sent before it.
        refusing_s: from the first refusal after the last answer to the latest one; 0.0 after an answer.
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
        self._held = 0  # requests in flight that the endpoint is known to take
        self._rising: tuple[int, int] | None = None  # requests in flight; answers that are missing until it is known
        self._answered = 0
        self._admitted: deque[tuple[float, int]] = deque([(now, 0)])  # time, how many in all
        self._wave: _Wave | None = None
        self._full = now  # when the last wave began before which something was admitted
        self._burst = 0  # how many were admitted between that and the full moment before
        self._restarted = now  # when the last pause ended
        self._futile = 0  # waves in a row in which nothing was admitted
        self._probed = False  # a cap that a wave had set has been tried
        self._cap_hold = _Hold()
        self._rate_hold = _Hold()

    @property
    def cap(self) -> int:
        return max(1, int(self._cap))

    def heard(
        self, now: float, in_flight: int, answered: int, refused: Mapping[int, int], retry_after: float | None = None
    ) -> None:
        """Take in outcomes of requests.

        Args:
            in_flight: over all processes, without those that are in the outcomes.
            answered: how many ended in any other way than by a refusal.
            refused: how many were refused, by the number of waves under which they were sent.
            retry_after: the longest time that the refusals ask to wait.
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
        """The pause is over, and what is in flight has been admitted: lower the cap or the rate."""
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
            if self._probed or self.rate < math.inf:  # it may be the rate all the same
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
        """To a little less than what was admitted lately. The first estimate is too low, for it counts a pause: it may
        grow at once."""
        seconds = wave.began - self._full
        if self.rate == math.inf:
            self.rate = since / max(seconds, SHORT_S)
            return
        begin = max(self._restarted, wave.began - max(1.0, seconds / 4))
        recent = (self._at(math.inf) - self._at(begin)) / max(wave.began - begin, 1.0)
        self.rate *= min(0.97, max(0.7, 0.97 * recent / self.rate))
        self._rate_hold.again(now, wave.pause)

    def _at(self, then: float) -> int:
        """How many had been admitted at that time."""
        return next((total for at, total in reversed(self._admitted) if at <= then), self._admitted[0][1])


@dataclass
class _Wave:
    """Refusals of requests that were sent before the first of them was heard of; `peak`: in flight at that moment."""

    began: float
    peak: int
    refused: int
    pause: float = 0.0


@dataclass
class _Hold:
    """When a cap or a rate may grow after a wave, and how fast: later and slower after each."""

    until: float = -math.inf
    growth: float = 0.2  # of a rate, in requests a second, for each answer
    times: float = 20.0  # the hold is as many times the pause: a higher limit is looked for in 5 % of the time

    def again(self, now: float, pause: float) -> None:
        self.until = now + self.times * pause
        self.times = min(2 * self.times, 60.0)
        self.growth = 0.1
