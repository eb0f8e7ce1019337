"""The request gate: where the calls of one process wait until the run's limits admit them to an endpoint.

The gate itself admits the calls that its last `Grant` covers. A background task reports to `SharedLimits` while any
call is in flight or waiting. So a call needs no round trip to the limits, and yet the caps of the whole run hold.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from bisect import insort
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from soul.errors import JudgeFailure
from soul.judge.throttle.circuit_breaker import OK
from soul.judge.throttle.shared_limits import Grant, Report, SharedLimits
from soul.judge.throttle.wait_notice import Reason, WaitNotice, calls

logger = logging.getLogger(__name__)

SyncLimits = Callable[[Report], Awaitable[Grant]]  # sends a report to the run's limits and returns their grant
LINGER_S = 0.05  # an idle gate keeps its slots for this long, because the next call often follows soon
NOTHING = Grant(slots=0, requests=0.0, tokens=0.0, again_s=0.0)


def in_process(limits: SharedLimits) -> SyncLimits:
    """The `SyncLimits` for limits that live in this process."""

    async def sync(report: Report) -> Grant:
        return limits.sync(report)

    return sync


@dataclass(eq=False)
class _Waiter:
    tokens: float
    admitted: asyncio.Future[None]
    turn: tuple[bool, int]
    since: float
    patience_s: float


class RequestGate:
    """The gate to one endpoint in one process. All its callers must share an event loop.

    Args:
        endpoint_key: the key of the endpoint in `SharedLimits`.
        process: the name of this process, unique in the run.
        sync_limits: reports to the run's limits and returns their grant.
    """

    def __init__(self, endpoint_key: str, process: str, sync_limits: SyncLimits) -> None:
        self.endpoint_key, self.process = endpoint_key, process
        self._sync_limits = sync_limits
        self._grant = NOTHING
        self._requests = self._tokens = 0.0  # what is left of the grant
        self._surplus = 0.0  # tokens that calls reserved and did not use
        self._in_flight = 0
        self._waiters: list[_Waiter] = []  # in the order of their turns
        self._number = itertools.count()
        self._outcomes: Counter[str] = Counter()
        self._refused: Counter[int] = Counter()
        self._retry_after: float | None = None
        self._waves = 0
        self._cost_usd, self._last_failure = 0.0, ""
        self._served = True  # whether the last grant covered everything that was asked for
        self._wake: asyncio.Event | None = None
        self._contact: asyncio.Task[None] | None = None
        self._reason: Reason | None = None  # why calls wait, according to the last grant
        self._notice = WaitNotice(self._explain)

    async def enter(self, tokens: float, again: bool = False, patience_s: float = math.inf) -> int:
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
        tokens = max(tokens, 1.0)  # so that no call fits into an empty allowance
        if not self._waiters and self._fits():
            self._admit(tokens)
            return self._waves
        loop = asyncio.get_running_loop()
        turn = (not again, next(self._number))
        waiter = _Waiter(tokens, loop.create_future(), turn, loop.time(), patience_s)
        insort(self._waiters, waiter, key=lambda other: other.turn)
        self._request_sync(urgent=self._served)
        try:
            with self._notice.waiting():
                await waiter.admitted
            return self._waves
        except asyncio.CancelledError:
            if waiter.admitted.done() and not waiter.admitted.cancelled() and not waiter.admitted.exception():
                self._requests += 1.0  # it was admitted at the same moment, but has sent nothing
                self.leave(None, tokens, 0.0)
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
                self._release_soon()
            raise

    def leave(
        self,
        outcome: str | None,
        estimated: float,
        used: float,
        cost_usd: float = 0.0,
        detail: str = "",
        waves: int = 0,
        retry_after_s: float | None = None,
    ) -> None:
        """Report that a request is over.

        Args:
            outcome: "ok", a cause, or None if the request was cancelled or says nothing about the endpoint.
            estimated, used: tokens, as estimated in `enter` and as actually used.
            cost_usd: its cost in US dollars.
            detail: the failure in one line, for messages.
            waves: the number that `enter` returned.
            retry_after_s: how long a 429 asks to wait.
        """
        in_flight_before = self._in_flight
        self._in_flight -= 1
        if outcome is not None:
            self._outcomes[outcome] += 1
        if outcome == "rate_limit":
            self._refused[waves] += 1
            self._retry_after = max(self._retry_after or 0.0, retry_after_s or 0.0) or None
            if waves == self._waves:
                self._grant = NOTHING  # admit no call until the run's limits know of this refusal
        # Return unused tokens to the shared bucket; reusing our own refund would bypass the rate limit.
        self._tokens += min(0.0, estimated - used)
        self._surplus += max(0.0, estimated - used)
        self._cost_usd += cost_usd
        self._last_failure = detail or self._last_failure
        self._pump()
        failed = outcome not in (None, OK)
        has_free_slot = self._in_flight < in_flight_before  # no waiting call of this process could take the slot
        self._request_sync(urgent=failed or (self._grant.contended and has_free_slot))
        self._release_soon()

    def _release_soon(self) -> None:
        """Return the slots of an idle gate after a moment."""
        if self._in_flight == 0 and not self._waiters and self._wake is not None:
            asyncio.get_running_loop().call_later(LINGER_S, self._wake.set)

    def _explain(self, waiting: int, _: Sequence[float]) -> Reason:
        reason = self._reason or Reason("limits", f"for the run's limits of {self.endpoint_key} to answer")
        return Reason(reason.kind, f"{calls(waiting)} {reason.text}")

    def _fits(self) -> bool:
        return self._in_flight < self._grant.slots and self._requests >= 1.0 and self._tokens > 0.0

    def _admit(self, tokens: float) -> None:
        self._in_flight += 1
        self._requests -= 1.0
        self._tokens -= tokens

    def _pump(self) -> None:
        while self._waiters and self._fits():
            waiter = self._waiters.pop(0)
            if not waiter.admitted.done():
                self._admit(waiter.tokens)
                waiter.admitted.set_result(None)

    def _request_sync(self, urgent: bool) -> None:
        """Make sure that this gate reports to the limits: at once if it is urgent, else at the next heartbeat."""
        if self._contact is None or self._contact.done():
            self._wake = asyncio.Event()
            self._contact = asyncio.get_running_loop().create_task(self._keep_in_touch(self._wake))
        elif urgent and self._wake is not None:
            self._wake.set()

    async def _keep_in_touch(self, wake: asyncio.Event) -> None:
        while True:
            wake.clear()
            report = self._report()
            try:
                grant = await self._sync_limits(report)
            except Exception as error:  # noqa: BLE001 - any error must fail the waiting calls, which else wait for ever
                logger.exception("the run's limits are out of reach: %d waiting calls fail", len(self._waiters))
                self._outcomes.update(report.outcomes)  # report them again if the limits come back
                self._cost_usd += report.cost_usd
                self._fail_waiters(JudgeFailure("outage", f"the run's limits are out of reach: {error!r}"))
                return
            self._apply(grant, report)
            self._fail_impatient(grant.refusing_s)
            if grant.stop is not None:
                self._fail_waiters(JudgeFailure(grant.stop.cause, grant.stop.detail))
            self._pump()
            if report.in_flight == report.waiting == 0 and not self._in_flight and not self._waiters:
                return  # this gate holds no slots, so it need not report
            if self._waiters and self._served:
                continue  # new calls arrived during the sync
            try:
                await asyncio.wait_for(wake.wait(), grant.again_s)
            except TimeoutError:
                continue  # the next heartbeat

    def _report(self) -> Report:
        finite = not math.isinf(self._requests), not math.isinf(self._tokens)
        report = Report(
            endpoint_key=self.endpoint_key,
            process=self.process,
            in_flight=self._in_flight,
            waiting=len(self._waiters),
            tokens_waiting=sum(waiter.tokens for waiter in self._waiters),
            outcomes=dict(self._outcomes),
            refused=dict(self._refused),
            retry_after_s=self._retry_after,
            unused_requests=self._requests if finite[0] else 0.0,
            unused_tokens=self._tokens + self._surplus if finite[1] else 0.0,
            cost_usd=self._cost_usd,
            last_failure=self._last_failure,
        )
        # The report returns the rest of the grant, so admit no call until the next grant arrives.
        self._grant = NOTHING
        self._requests = self._tokens = self._surplus = 0.0
        self._outcomes.clear()
        self._refused.clear()
        self._retry_after = None
        self._cost_usd, self._last_failure = 0.0, ""
        return report

    def _apply(self, grant: Grant, report: Report) -> None:
        self._grant, self._reason, self._waves = grant, grant.reason, grant.waves
        self._requests += grant.requests
        self._tokens += grant.tokens  # add: calls that ended during the sync may have overdrawn it
        self._served = (
            grant.slots >= report.in_flight + report.waiting
            and grant.requests >= report.waiting
            and grant.tokens >= report.tokens_waiting
        )

    def _fail_impatient(self, refusing_s: float) -> None:
        """Fail the calls whose patience is over while the endpoint answers only 429."""
        if not refusing_s:
            return
        now = asyncio.get_running_loop().time()
        for waiter in [w for w in self._waiters if min(now - w.since, refusing_s) >= w.patience_s]:
            self._waiters.remove(waiter)
            if not waiter.admitted.done():
                detail = f"every request was refused (429) for {refusing_s:.0f} s"
                waiter.admitted.set_exception(JudgeFailure("rate_limit", detail))

    def _fail_waiters(self, failure: JudgeFailure) -> None:
        while self._waiters:
            waiter = self._waiters.pop(0)
            if not waiter.admitted.done():
                waiter.admitted.set_exception(failure)
