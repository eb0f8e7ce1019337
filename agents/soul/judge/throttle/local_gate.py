"""A process's door to one endpoint: calls wait here until the run's limits let them through.

The gate admits what the last `Grant` covers on its own, and keeps in touch with `SharedLimits` in the background while
it has anything in flight or waiting. So a call costs no round trip, and the caps of the whole run hold.
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

SyncLimits = Callable[[Report], Awaitable[Grant]]
LINGER_S = 0.05
NOTHING = Grant(slots=0, requests=0.0, tokens=0.0, again_s=0.0)


def in_process(limits: SharedLimits) -> SyncLimits:
    """Limits that live in this process."""

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
    """One endpoint's gate in one process; all its users share an event loop."""

    def __init__(self, line: str, process: str, port: SyncLimits) -> None:
        self.line, self.process = line, process
        self._port = port
        self._grant = NOTHING
        self._requests = self._tokens = 0.0  # what is left of the grant
        self._surplus = 0.0  # tokens that calls were charged and did not use
        self._in_flight = 0
        self._waiters: list[_Waiter] = []  # in the order of their turns
        self._number = itertools.count()
        self._outcomes: Counter[str] = Counter()
        self._refused: Counter[int] = Counter()
        self._retry_after: float | None = None
        self._waves = 0
        self._cost_usd, self._last_failure = 0.0, ""
        self._served = True  # the last grant covered everything that was asked for
        self._wake: asyncio.Event | None = None
        self._contact: asyncio.Task[None] | None = None
        self._reason: Reason | None = None  # why calls wait, as the last grant said
        self._notice = WaitNotice(self._explain)

    async def enter(self, tokens: float, again: bool = False, patience_s: float = math.inf) -> int:
        """Wait until one more request may be sent.

        Args:
            tokens: estimate of what it will use.
            again: the call has been sent before, and its deadline runs: it goes before those that have not.
            patience_s: the call gives up when it has waited for so long and the endpoint answered nothing but 429 for
                so long.

        Returns:
            A number for `leave`: under which of its waves of 429 the endpoint gets this request.

        Raises:
            JudgeFailure: `outage` or `budget`: no request will be let through any more; `rate_limit`: see `patience_s`.
        """
        tokens = max(tokens, 1.0)  # where nothing is left, nothing fits
        if not self._waiters and self._fits():
            self._admit(tokens)
            return self._waves
        loop = asyncio.get_running_loop()
        turn = (not again, next(self._number))
        waiter = _Waiter(tokens, loop.create_future(), turn, loop.time(), patience_s)
        insort(self._waiters, waiter, key=lambda one: one.turn)
        self._touch(urgent=self._served)
        try:
            with self._notice.waiting():
                await waiter.admitted
            return self._waves
        except asyncio.CancelledError:
            if waiter.admitted.done() and not waiter.admitted.cancelled() and not waiter.admitted.exception():
                self._requests += 1.0  # admitted in the same moment, and nothing was sent
                self.leave(None, tokens, 0.0)
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
                self._hand_back_soon()
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
        """The request is over.

        Args:
            outcome: "ok", a cause, or None where it was given up before it could tell anything.
            estimated, used: tokens, as announced and as it turned out.
            waves: what `enter` returned.
            retry_after_s: how long a 429 asks to wait.
        """
        before = self._in_flight
        self._in_flight -= 1
        if outcome is not None:
            self._outcomes[outcome] += 1
        if outcome == "rate_limit":
            self._refused[waves] += 1
            self._retry_after = max(self._retry_after or 0.0, retry_after_s or 0.0) or None
            if waves == self._waves:
                self._grant = NOTHING  # until the run's limits have heard of it
        # A surplus is for everyone: who lived off his own would know no rate.
        self._tokens += min(0.0, estimated - used)
        self._surplus += max(0.0, estimated - used)
        self._cost_usd += cost_usd
        self._last_failure = detail or self._last_failure
        self._pump()
        bad = outcome not in (None, OK)
        unused = self._in_flight < before  # a slot that no call of this process may use, or has use for
        self._touch(urgent=bad or (self._grant.contended and unused))
        self._hand_back_soon()

    def _hand_back_soon(self) -> None:
        """Where nothing is left to do the slots go back; not at once, for the next call is often near."""
        if self._in_flight == 0 and not self._waiters and self._wake is not None:
            asyncio.get_running_loop().call_later(LINGER_S, self._wake.set)

    def _explain(self, waiting: int, _: Sequence[float]) -> Reason:
        reason = self._reason or Reason("limits", f"for the run's limits of {self.line} to answer")
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

    def _touch(self, urgent: bool) -> None:
        """Make sure that the limits hear of this gate: now where it is urgent, else at the next beat."""
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
                grant = await self._port(report)
            except Exception as error:  # noqa: BLE001 - whatever it is, who waits must hear of it, or would wait for ever
                logger.exception("the run's limits are out of reach")
                self._outcomes.update(report.outcomes)  # told again, should they come back
                self._cost_usd += report.cost_usd
                self._refuse(JudgeFailure("outage", f"the run's limits are out of reach: {error!r}"))
                return
            self._apply(grant, report)
            self._give_up(grant.refusing_s)
            if grant.stop is not None:
                self._refuse(JudgeFailure(grant.stop.cause, grant.stop.detail))
            self._pump()
            if report.in_flight == report.waiting == 0 and not self._in_flight and not self._waiters:
                return  # nothing is held: silence costs nobody anything
            if self._waiters and self._served:
                continue  # they came while we asked
            try:
                await asyncio.wait_for(wake.wait(), grant.again_s)
            except TimeoutError:
                continue  # the next beat

    def _report(self) -> Report:
        finite = not math.isinf(self._requests), not math.isinf(self._tokens)
        report = Report(
            line=self.line,
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
        # Until the answer is here nothing is admitted: what was granted has been handed back.
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
        self._tokens += grant.tokens  # what ended meanwhile has corrected it already
        self._served = (
            grant.slots >= report.in_flight + report.waiting
            and grant.requests >= report.waiting
            and grant.tokens >= report.tokens_waiting
        )

    def _give_up(self, refusing_s: float) -> None:
        """Let those go who have heard nothing but 429 for as long as their patience lasts."""
        if not refusing_s:
            return
        now = asyncio.get_running_loop().time()
        for waiter in [one for one in self._waiters if min(now - one.since, refusing_s) >= one.patience_s]:
            self._waiters.remove(waiter)
            if not waiter.admitted.done():
                detail = f"every request was refused (429) for {refusing_s:.0f} s"
                waiter.admitted.set_exception(JudgeFailure("rate_limit", detail))

    def _refuse(self, failure: JudgeFailure) -> None:
        while self._waiters:
            waiter = self._waiters.pop(0)
            if not waiter.admitted.done():
                waiter.admitted.set_exception(failure)
