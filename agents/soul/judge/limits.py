"""The limits of one endpoint in one process: where calls wait until they may be sent.

A call is admitted when all of these allow it: the cap on requests in flight, which an endpoint's 429s lower (rates.py),
the requests and the tokens per minute, the circuit breaker, and the budget of its run. Calls that have been sent before
go first, then the order of arrival decides. All gateways of a process that ask the same model with the same key and the
same limits share one `Limits`, so their requests count once. A training has one process that asks (`ditto.judging`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import time
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from soul.errors import JudgeFailure
from soul.judge.call.endpoint import Endpoint
from soul.judge.circuit_breaker import BreakerSettings, CircuitBreaker
from soul.judge.rates import Bucket, Throttle
from soul.judge.wait_notice import PATIENCE_S, WaitNotice, calls

logger = logging.getLogger(__name__)
_LOOK_EVERY_S = 1.0  # how long a call waits at most until its budget and its patience are looked at again
_SOONEST_S = 0.001  # a shorter timer may fire a rounding error too early, over and over


@dataclass
class Budget:
    """The budget of a run for all its endpoints together, in US dollars.

    Attributes:
        limit_usd: None: there is no budget.
        spent_usd: what it has spent, before it was resumed too.
    """

    limit_usd: float | None = None
    spent_usd: float = 0.0

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
    patience_s: float


class Limits:
    """Admits the requests to one endpoint. All callers must use one event loop at a time.

    Args:
        endpoint: has the limits.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        breaker: BreakerSettings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoint, self._clock = endpoint, clock
        now = clock()
        self.throttle = Throttle(endpoint.concurrency)
        self.breaker = CircuitBreaker(breaker or BreakerSettings())
        self._requests = Bucket(endpoint.requests_per_minute, now)
        self._tokens = Bucket(endpoint.tokens_per_minute, now)
        self._in_flight = 0
        self._waiters: list[_Waiter] = []  # in the order of their turns
        self._number = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._notice = WaitNotice()
        self._logged_pause = self._looked = -math.inf

    @property
    def outage(self) -> str | None:
        """The reason that the circuit breaker tripped: endpoint, share of failures, last cause; None if it has not."""
        tripped = self.breaker.state == "tripped"
        return f"{self.endpoint.name} is down: {self.breaker.summary()}" if tripped else None

    async def enter(
        self, tokens: float, budget: Budget | None = None, again: bool = False, patience_s: float = math.inf
    ) -> int:
        """Wait until one more request may be sent.

        Args:
            tokens: estimate of the tokens that it will use.
            again: the call has been sent before and its deadline is running, so it goes ahead of new calls.
            patience_s: seconds after which the call gives up, if for all this time the endpoint answered only 429.

        Returns:
            The number of 429 waves so far (rates.py), to be passed to `leave`.

        Raises:
            JudgeFailure: `outage` or `budget`: no more requests will be admitted; `rate_limit`: see `patience_s`.
        """
        waiter = _Waiter(
            max(tokens, 1.0),  # so that no call fits into an empty allowance
            budget or Budget(),
            asyncio.get_running_loop().create_future(),
            (not again, next(self._number)),
            self._clock(),
            patience_s,
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
            detail: the failure in one line, for messages.
            waves: the number that `enter` returned.
            retry_after_s: how long a 429 asks to wait.
        """
        now = self._clock()
        self._in_flight -= 1
        self._tokens.refill(now)
        self._tokens.give_back(max(estimated, 1.0) - used)
        if outcome == "rate_limit":
            self.throttle.refused(now, self._in_flight, waves, retry_after_s)
            if (pause := self.throttle.until - now) > 0 and now - self._logged_pause >= _LOOK_EVERY_S:
                self._logged_pause = now
                logger.info("%s answers 429 (rate limit): paused for %.2f s", self.endpoint.name, pause)
        elif outcome is not None:
            self.throttle.answered(now)
        if outcome is not None:
            state = self.breaker.state
            self.breaker.record(now, outcome, detail)
            self._log_breaker(state, now)
        self._admit()

    def _admit(self) -> None:
        """Let in all who may be sent now, fail those who never will be, and come back when that may change."""
        now = self._clock()
        state = self.breaker.state
        self.breaker.state_at(now)
        self._log_breaker(state, now)
        for bucket in (self._requests, self._tokens):
            bucket.refill(now)
        if now < self.throttle.until:
            self._requests.level = min(self._requests.level, 0.0)
        self._fail_hopeless(now)
        wait_s = 0.0
        while self._waiters and (wait_s := self._wait_s(now)) <= 0.0:
            waiter = self._waiters.pop(0)
            if not waiter.admitted.done():
                self._in_flight += 1
                self._requests.level -= 1.0
                self._tokens.level -= waiter.tokens
                self.breaker.probe_sent |= self.breaker.state == "probing"
                waiter.admitted.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiters:
            self._log_wait(now)
            self._timer = asyncio.get_running_loop().call_later(
                max(_SOONEST_S, min(wait_s, _LOOK_EVERY_S)), self._admit
            )

    def _log_wait(self, now: float) -> None:
        if now - self._looked < _LOOK_EVERY_S:
            return
        self._looked = now
        if now - min(waiter.since for waiter in self._waiters) >= PATIENCE_S:
            kind, text = self._reason(now)
            self._notice.log(now, kind, f"{calls(len(self._waiters))} for {self.endpoint.name}: {text}")

    def _wait_s(self, now: float) -> float:
        """Seconds until the next request may be sent; 0.0: at once; inf: not before another one ends."""
        if self.breaker.state == "open":
            return self.breaker.until - now
        if now < self.throttle.until:
            return self.throttle.until - now
        cap = self.throttle.cap
        if self.breaker.state == "probing":  # a probe is sent alone, so that the next outcome is its own
            cap = 0 if self._in_flight else 1
        if self._in_flight >= cap:
            return math.inf
        return max(self._requests.wait_s(1.0), self._tokens.wait_s(1e-9))

    def _fail_hopeless(self, now: float) -> None:
        outage, refusing_s = self.outage, self.throttle.refusing_s
        kept: list[_Waiter] = []
        for waiter in self._waiters:
            failure = JudgeFailure("outage", outage) if outage else waiter.budget.failure
            if failure is None and refusing_s and min(now - waiter.since, refusing_s) >= waiter.patience_s:
                failure = JudgeFailure("rate_limit", f"every request was refused (429) for {refusing_s:.0f} s")
            if failure is None:
                kept.append(waiter)
            elif not waiter.admitted.done():
                waiter.admitted.set_exception(failure)
        self._waiters = kept

    def _log_breaker(self, before: str, now: float) -> None:
        name, breaker = self.endpoint.name, self.breaker
        if breaker.state == before:
            return
        if breaker.state == "tripped":
            logger.error("circuit breaker for %s tripped, no more requests are sent: %s", name, breaker.summary())
        elif breaker.state == "open":
            pause = breaker.until - now
            logger.warning("circuit breaker for %s open, pausing for %.0f s: %s", name, pause, breaker.summary())
        elif breaker.state == "probing":
            logger.info("circuit breaker for %s: the pause is over, one request tests whether it answers", name)
        else:
            logger.info("circuit breaker for %s closed: it answers again", name)

    def _reason(self, now: float) -> tuple[str, str]:
        """The reason that calls wait: its kind, and a text for the log."""
        breaker, throttle, endpoint = self.breaker, self.throttle, self.endpoint
        timeout = f", with a timeout of {endpoint.timeout_s:g} s"
        if breaker.state == "open":
            left = max(0.0, breaker.until - now)
            return (f"pause {breaker.pauses}", f"paused, next request in {left:.0f} s; {breaker.summary()}")
        if now < throttle.until:
            left = throttle.until - now
            return ("rate_limit", f"it answers 429 (rate limit); next request in {left:.1f} s")
        if breaker.state == "probing":
            return ("probe", f"one request tests whether it answers again{timeout}")
        if self._in_flight >= throttle.cap:
            lowered = f", lowered from {throttle.most} after 429" if throttle.cap < throttle.most else ""
            return ("cap", f"at most {throttle.cap} requests at a time (concurrency{lowered}){timeout} each")
        wanted = {
            "requests_per_minute": (self._requests, float(len(self._waiters))),
            "tokens_per_minute": (self._tokens, sum(waiter.tokens for waiter in self._waiters)),
        }
        needs = {name: bucket.wait_s(amount) for name, (bucket, amount) in wanted.items()}
        setting = max(needs, key=lambda name: needs[name])
        limit = f"the limit is {setting}={getattr(endpoint, setting):g}"
        return (setting, f"{limit}; the calls that wait now need {needs[setting]:.0f} s")


_shared: WeakValueDictionary[tuple[object, ...], Limits] = WeakValueDictionary()


def shared_limits(endpoint: Endpoint) -> Limits:
    """The limits that all gateways of this process share for this address, key, model and these limits."""
    key = (
        *(endpoint.url, endpoint.api_key_env, endpoint.model),
        *(endpoint.concurrency, endpoint.requests_per_minute, endpoint.tokens_per_minute),
    )
    limits = _shared.get(key)
    if limits is None:
        limits = _shared[key] = Limits(endpoint)
    return limits
