"""The limits of one endpoint in one process: where calls wait until they may be sent.

A call is admitted when all of these allow it: the cap on requests in flight, which the endpoint's 429s lower, the
requests and the tokens per minute, the circuit breaker, and the budget of its run. Calls that have been sent before go
first, then the order of arrival decides. All gateways of a process that ask the same model with the same key and the
same limits share one `Limits`. A training run has one process that asks (`ditto.judging`).

`Bucket`, `Throttle` and `CircuitBreaker` are arithmetic on a clock that is passed in (seconds, monotonic).
"""

import asyncio
import itertools
import logging
import math
import random
import time
from bisect import insort
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from weakref import WeakValueDictionary

from soul.errors import CONTENT, PERMANENT, JudgeFailure
from soul.judge.call.endpoint import Endpoint

logger = logging.getLogger(__name__)

OK = "ok"  # the outcome of a request that was answered; any other outcome is a cause
BURST_S = 1.0  # a bucket holds what flows in during this time, so that no burst uses up the quota of a minute
SHORT_S = 0.1  # the first pause after a 429 that does not say how long to wait
LONGER = 1.3  # while nothing is admitted, each pause is longer than the last by this factor
LONG_S = 5.0  # the longest such pause
ROUNDED_S = 1.0  # Retry-After has whole seconds, rounded up, so it asks for up to a second too much
JITTER = 0.05  # a pause is extended at random by up to this share, so that several runs do not come back together
HOLD_S = 2.0  # how long the cap does not grow after a wave
_WINDOW_S = 60.0  # of the circuit breaker
_LOOK_EVERY_S = 1.0  # how long a call waits at most until its budget is looked at again
_SOONEST_S = 0.001  # a shorter timer may fire a rounding error too early, over and over
_PATIENCE_S, _REPEAT_S = 2.0, 10.0  # a shorter wait is not worth a log line; between two lines


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
        """Record a refused request, with the number of others in flight and the number of waves at its admission."""
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


class CircuitBreaker:
    """Stops sending to an endpoint that fails as a whole, tries again, and finally gives up.

    If too large a share of a sliding window's requests fails, it opens: no request is sent during a pause. Then one
    request at a time probes the endpoint. A success closes the breaker, a failure opens it again for twice as long.
    After a few pauses in a row it trips for good, and the run saves and stops. 429 is the throttle's business. An
    unusable answer (a refusal, a wrong schema) counts as a success, because a pause would not help;
    judge.max_failure_rate limits those.

    Args:
        min_requests: the breaker stays closed with fewer requests in the window.
        share: it opens if a larger share of the window failed.
        pause_s: the first pause; each further one is twice as long.
        max_pauses: it trips after this many pauses in a row.
    """

    def __init__(self, min_requests: int = 20, share: float = 0.5, pause_s: float = 30.0, max_pauses: int = 3) -> None:
        self._min_requests, self._most, self._pause_s, self._max_pauses = min_requests, share, pause_s, max_pauses
        self.state: Literal["closed", "open", "probing", "tripped"] = "closed"
        self.until = 0.0  # the end of the pause
        self._pauses = 0  # in a row
        self._last = ""  # detail of the last failure
        self._window: deque[tuple[float, str]] = deque()
        self._counts: Counter[str] = Counter()  # the outcomes in the window

    def record(self, now: float, outcome: str, detail: str) -> None:
        """Record an outcome, "ok" or a cause, and the detail of a failure."""
        if outcome == "rate_limit":
            return
        if outcome in CONTENT:
            outcome = OK
        if outcome != OK:
            self._last = detail or self._last
        if self.state == "probing" and outcome == OK:
            self.state, self._pauses = "closed", 0
            self._window.clear()
            self._counts.clear()
        elif self.state == "probing":
            self._open(now)
        elif self.state == "closed":  # while it is open, outcomes are from before the pause
            self._window.append((now, outcome))
            self._counts[outcome] += 1
            while self._window[0][0] < now - _WINDOW_S:
                self._counts[self._window.popleft()[1]] -= 1
            if len(self._window) < self._min_requests or self._share() <= self._most:
                return
            if all(cause in PERMANENT for cause, n in self._counts.items() if cause != OK and n):
                self.state = "tripped"  # waiting does not help against a wrong key or an unknown model
            else:
                self._open(now)

    def summary(self) -> str:
        """Share and causes of the failures in the window, and the last failure."""
        causes = ", ".join(f"{cause} {n}" for cause, n in self._counts.most_common() if cause != OK and n)
        return f"{self._share():.0%} of {len(self._window)} requests failed ({causes}); last cause: {self._last}"

    def _share(self) -> float:
        return 1.0 - self._counts[OK] / len(self._window) if self._window else 1.0

    def _open(self, now: float) -> None:
        if self._pauses >= self._max_pauses:
            self.state = "tripped"
            return
        self.state, self.until = "open", now + self._pause_s * 2**self._pauses
        self._pauses += 1


@dataclass
class Budget:
    """The budget of a run for all its endpoints together, in US dollars."""

    limit_usd: float | None = None  # None: there is no budget
    spent_usd: float = 0.0  # what it has spent, before it was resumed too

    @property
    def failure(self) -> JudgeFailure | None:
        """The failure of every further request; None while there is money left."""
        if self.limit_usd is None or self.spent_usd < self.limit_usd:
            return None
        return JudgeFailure("budget", f"${self.spent_usd:.2f} of judge.budget_usd=${self.limit_usd:.2f} are spent")


@dataclass(eq=False)
class _Waiter:
    tokens: float
    budget: Budget
    admitted: asyncio.Future[None]
    turn: tuple[bool, int]
    since: float


class Limits:
    """Admits the requests to one endpoint. All callers must use one event loop at a time."""

    def __init__(
        self, endpoint: Endpoint, breaker: CircuitBreaker | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.endpoint, self._clock = endpoint, clock
        now = clock()
        self.throttle = Throttle(endpoint.concurrency)
        self.breaker = breaker or CircuitBreaker()
        self._requests = Bucket(endpoint.requests_per_minute, now)
        self._tokens = Bucket(endpoint.tokens_per_minute, now)
        self._in_flight = 0
        self._waiters: list[_Waiter] = []  # in the order of their turns
        self._number = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._logged = -math.inf

    @property
    def outage(self) -> str | None:
        """The reason that no more requests are sent: endpoint and failures; None while it is not down."""
        if self.breaker.state == "tripped":
            return f"{self.endpoint.name} is down: {self.breaker.summary()}"
        if (seconds := self.throttle.refusing_s) >= self.endpoint.deadline_s:
            return f"{self.endpoint.name} is down: it has answered nothing but 429 (rate limit) for {seconds:.0f} s"
        return None

    async def enter(self, tokens: float, budget: Budget | None = None, again: bool = False) -> int:
        """Wait until one more request may be sent. Returns the number of 429 waves so far, for `leave`.

        Args:
            tokens: estimate of the tokens that it will use.
            again: the call has been sent before and its deadline is running, so it goes ahead of new calls.
        """
        waiter = _Waiter(
            max(tokens, 1.0),  # so that no call fits into an empty allowance
            budget or Budget(),
            asyncio.get_running_loop().create_future(),
            (not again, next(self._number)),
            self._clock(),
        )
        insort(self._waiters, waiter, key=lambda other: other.turn)
        self._admit()
        try:
            await waiter.admitted
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif not waiter.admitted.cancelled() and not waiter.admitted.exception():
                self._requests.give_back(1.0)  # it was admitted at the same moment, but has sent nothing
                self.leave(None, waiter.tokens, 0.0)
            raise
        return self.throttle.waves

    def leave(
        self,
        outcome: str | None,
        estimated: float,
        used: float,
        detail: str = "",
        waves: int = 0,
        retry_after_s: float | None = None,
    ) -> None:
        """Report that a request is over.

        Args:
            outcome: "ok", a cause, or None if the request was cancelled or says nothing about the endpoint.
            estimated, used: tokens, as estimated in `enter` and as actually used.
            waves: the number that `enter` returned.
        """
        now = self._clock()
        self._in_flight -= 1
        self._tokens.refill(now)
        self._tokens.give_back(max(estimated, 1.0) - used)
        if outcome == "rate_limit":
            self.throttle.refused(now, self._in_flight, waves, retry_after_s)
        elif outcome is not None:
            self.throttle.answered(now)
            before = self.breaker.state
            self.breaker.record(now, outcome, detail)
            if self.breaker.state != before:
                self._log_breaker(now)
        self._admit()

    def _admit(self) -> None:
        """Let in all who may be sent now, fail those who never will be, and come back when that may change."""
        now = self._clock()
        for bucket in (self._requests, self._tokens):
            bucket.refill(now)
        if now < self.throttle.until:
            self._requests.level = min(self._requests.level, 0.0)
        self._fail_hopeless()
        wait_s = 0.0
        while self._waiters and (wait_s := self._wait_s(now)) <= 0.0:
            waiter = self._waiters.pop(0)
            if not waiter.admitted.done():
                self._in_flight += 1
                self._requests.level -= 1.0
                self._tokens.level -= waiter.tokens
                if self.breaker.state == "open":
                    self.breaker.state = "probing"
                waiter.admitted.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiters:
            self._log_wait(now)
            self._timer = asyncio.get_running_loop().call_later(
                max(_SOONEST_S, min(wait_s, _LOOK_EVERY_S)), self._admit
            )

    def _wait_s(self, now: float) -> float:
        """Seconds until the next request may be sent; 0.0: at once; inf: not before another one ends."""
        pause_s = max(self.breaker.until if self.breaker.state == "open" else now, self.throttle.until) - now
        if pause_s > 0:
            return pause_s
        # A probe is sent alone, so that the next outcome is its own.
        cap = self.throttle.cap if self.breaker.state == "closed" else 1
        if self._in_flight >= cap:
            return math.inf
        return max(self._requests.wait_s(1.0), self._tokens.wait_s(1e-9))

    def _fail_hopeless(self) -> None:
        outage = self.outage
        kept: list[_Waiter] = []
        for waiter in self._waiters:
            failure = JudgeFailure("outage", outage) if outage else waiter.budget.failure
            if failure is None:
                kept.append(waiter)
            elif not waiter.admitted.done():
                waiter.admitted.set_exception(failure)
        self._waiters = kept

    def _log_breaker(self, now: float) -> None:
        name, breaker = self.endpoint.name, self.breaker
        if breaker.state == "tripped":
            logger.error("circuit breaker for %s tripped, no more requests are sent: %s", name, breaker.summary())
        elif breaker.state == "open":
            pause = breaker.until - now
            logger.warning("circuit breaker for %s open, pausing for %.0f s: %s", name, pause, breaker.summary())
        else:
            logger.info("circuit breaker for %s closed: it answers again", name)

    def _log_wait(self, now: float) -> None:
        """Log why calls wait: one line every ten seconds for all of them."""
        if now - self._logged < _REPEAT_S or now - min(waiter.since for waiter in self._waiters) < _PATIENCE_S:
            return
        self._logged = now
        endpoint, throttle = self.endpoint, self.throttle
        if self.breaker.state != "closed":
            reason = f"paused, then one request tests it; {self.breaker.summary()}"
        elif now < throttle.until or throttle.cap < throttle.most:
            reason = f"it answers 429 (rate limit); at most {throttle.cap} requests at a time"
        elif self._in_flight >= throttle.cap:
            reason = f"at most {throttle.cap} requests at a time (concurrency)"
        else:
            rates = ("requests_per_minute", "tokens_per_minute")
            limits = [f"{name}={limit:g}" for name in rates if (limit := getattr(endpoint, name)) is not None]
            reason = f"the limit is {', '.join(limits)}"
        count = len(self._waiters)
        calls = "1 call waits" if count == 1 else f"{count:,} calls wait"
        logger.warning("%s for %s: %s", calls, endpoint.name, reason)


_shared: WeakValueDictionary[tuple[object, ...], Limits] = WeakValueDictionary()


def shared_limits(endpoint: Endpoint) -> Limits:
    """The limits that all gateways of this process share for this address, key, model and these limits."""
    key = (
        *(endpoint.url, endpoint.api_key_env, endpoint.model),
        *(endpoint.concurrency, endpoint.requests_per_minute, endpoint.tokens_per_minute, endpoint.timeout_s),
    )
    limits = _shared.get(key)
    if limits is None:
        limits = _shared[key] = Limits(endpoint)
    return limits
