"""Limits that are global to a run: many processes share one budget of concurrency, requests, tokens and money.

Every process has a `RequestGate` for each endpoint (`local_gate.py`), which reports requests in flight, waiting calls
and outcomes to one `SharedLimits`, a few times a second rather than once a call. The reply grants slots and allowances
until the next report. A process uses its grant without asking again, and all grants together never exceed the cap, so
the cap holds at every moment. A single process calls `SharedLimits` directly; on a cluster it lives in a Ray actor
(`ditto.judging.limits`). It never waits and does no I/O.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from soul.judge.throttle.circuit_breaker import BreakerSettings, CircuitBreaker, State
from soul.judge.throttle.rates import Bucket, Throttle
from soul.judge.throttle.wait_notice import Reason

logger = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
POLL_S = 0.05  # how soon a process reports again if its grant did not cover everything
SPACED_S = 0.004  # with many processes, the mean time between two reports of processes that wait for slots
CONTENDED_S = 0.2  # how soon a process reports again while others wait for slots
TURN_S = 1.0  # with fewer slots than processes, how long a process keeps its slot before it is another's turn
FADED_S = 5.0  # a process that has not reported for this long keeps its slots but gets no share of the others
SILENT_S = 120.0  # a process that has not reported for this long is considered dead, and its slots are freed


@dataclass(frozen=True)
class EndpointLimits:
    """The limits of one endpoint."""

    name: str  # for messages: model and address
    concurrency: int
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    breaker: BreakerSettings = BreakerSettings()
    timeout_s: float | None = None  # timeout of one request, for messages


@dataclass(frozen=True)
class Report:
    """What a process reports about one endpoint, since its last report.

    Attributes:
        tokens_waiting: estimated tokens of the waiting calls.
        outcomes: finished requests: "ok" or a cause -> count.
        refused: requests that ended with 429: `waves` of their grant -> count.
        retry_after_s: the longest wait that these refusals ask for; None if none of them names one.
        unused_requests: the part of the request allowance that is returned.
        unused_tokens: the part of the token allowance that is returned; negative if more was used than granted.
    """

    endpoint_key: str
    process: str
    in_flight: int = 0
    waiting: int = 0
    tokens_waiting: float = 0.0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[int, int] = field(default_factory=dict)
    retry_after_s: float | None = None
    unused_requests: float = 0.0
    unused_tokens: float = 0.0
    cost_usd: float = 0.0
    last_failure: str = ""


@dataclass(frozen=True)
class Stop:
    """Why no more calls will be admitted for the rest of the run."""

    cause: Literal["outage", "budget"]
    detail: str


@dataclass(frozen=True)
class Grant:
    """What a process may do until it reports again.

    Attributes:
        slots: how many requests may be in flight at the same time.
        requests, tokens: how many more requests may be started, and how many tokens they may use (inf: no limit).
        again_s: report again after this many seconds at the latest.
        contended: other processes wait for slots, so return free ones at once.
        stop: if given, no more calls will be admitted.
        reason: why calls beyond this grant must wait; its text follows "5 calls wait".
        waves: the number of 429 waves so far (rates.py); refusals are reported by this number.
        refusing_s: for how long the endpoint has answered only 429, from the first to the latest; 0.0 if it answers.
    """

    slots: int
    requests: float
    tokens: float
    again_s: float
    contended: bool = False
    stop: Stop | None = None
    reason: Reason | None = None
    waves: int = 0
    refusing_s: float = 0.0


@dataclass(eq=False)
class _Process:
    in_flight: int = 0
    held: int = 0  # slots that it may be using right now
    demand: int = 0  # requests in flight plus waiting calls
    waiting: int = 0
    tokens_waiting: float = 0.0
    last_report_s: float = 0.0
    has_turn: bool = False  # whether it holds slots
    since: float = 0.0  # when has_turn last changed
    allowed_s: float = -math.inf  # when a rate last admitted calls of it


class _EndpointState:
    def __init__(self, settings: EndpointLimits, now: float) -> None:
        self.settings = settings
        self.throttle = Throttle(settings.concurrency, now)
        self.requests = Bucket(settings.requests_per_minute, now)
        self.tokens = Bucket(settings.tokens_per_minute, now)
        self.breaker = CircuitBreaker(settings.breaker)
        self.processes: dict[str, _Process] = {}

    def record(self, report: Report, now: float) -> _Process:
        """Record a report."""
        for name in [name for name, p in self.processes.items() if now - p.last_report_s > SILENT_S]:
            if held := self.processes.pop(name).held:
                text = "process %s has not reported for %.0f s: freeing its %d slots for %s"
                logger.warning(text, name, SILENT_S, held, self.settings.name)
        process = self.processes.setdefault(report.process, _Process())
        if not process.demand:
            process.since = now
        process.last_report_s = now
        process.demand = report.in_flight + report.waiting
        process.waiting, process.tokens_waiting = report.waiting, report.tokens_waiting
        process.in_flight = report.in_flight
        process.held = report.in_flight  # a process starts no request between its report and the grant
        self.requests.refill(now)
        self.tokens.refill(now)
        self.requests.give_back(report.unused_requests)
        self.tokens.give_back(report.unused_tokens)
        answered = sum(report.outcomes.values()) - report.outcomes.get("rate_limit", 0)
        in_flight = sum(p.held for p in self.processes.values())
        waves, state = self.throttle.waves, self.breaker.state
        self.throttle.record(now, in_flight, answered, report.refused, report.retry_after_s)
        self.requests.slow_down_to(self.throttle.rate)
        if now < self.throttle.until:
            self.requests.level = min(self.requests.level, 0.0)
        self.breaker.record(now, report.outcomes, report.last_failure)
        if self.throttle.waves > waves:
            pause = self.throttle.until - now
            logger.info("%s answers 429 (rate limit): paused for %.2f s", self.settings.name, pause)
        if self.breaker.state != state:
            self._log_breaker(now)
        return process

    def _log_breaker(self, now: float) -> None:
        name, breaker = self.settings.name, self.breaker
        if breaker.state == "tripped":
            logger.error("circuit breaker for %s tripped, no more requests are sent: %s", name, breaker.summary())
        elif breaker.state == "open":
            pause = breaker.until - now
            logger.warning("circuit breaker for %s open, pausing for %.0f s: %s", name, pause, breaker.summary())
        elif breaker.state == "probing":
            logger.info("circuit breaker for %s: the pause is over, one request tests whether it answers", name)
        else:
            logger.info("circuit breaker for %s closed: it answers again", name)

    def grant(self, process: _Process, now: float) -> Grant:
        """What this process may do next."""
        paused = self.breaker.state == "open"
        state = self.breaker.state_at(now)
        if paused and state == "probing":
            self._log_breaker(now)
        if state == "tripped":
            detail = f"{self.settings.name} is down: {self.breaker.summary()}"
            return Grant(0, 0.0, 0.0, HEARTBEAT_S, stop=Stop("outage", detail))
        if state == "open":
            again_s = min(HEARTBEAT_S, max(POLL_S, self.breaker.until - now))
            return Grant(0, 0.0, 0.0, again_s, reason=self._paused(now))
        waves, refusing_s = self.throttle.waves, self.throttle.refusing_s
        if now < self.throttle.until:
            again_s = min(HEARTBEAT_S, max(0.001, self.throttle.until - now))
            return Grant(0, 0.0, 0.0, again_s, reason=self._refused(now), waves=waves, refusing_s=refusing_s)
        in_use = sum(p.held for p in self.processes.values())
        cap = self.throttle.cap
        if state == "probing":
            # A probe is sent alone, so that the next outcome is its own.
            cap = 1 if self.breaker.probe_sent or not in_use else 0
        slots = self._slots(process, cap, now)
        requests, tokens = self._allowances(process, slots, now)
        self._note_turn(process, now, able=process.in_flight > 0 or (requests > 0 and tokens > 0))
        self.breaker.probe_sent |= state == "probing" and slots > 0
        contended = any(p.demand > p.held for p in self.processes.values())
        served = slots >= process.demand and requests >= process.waiting and tokens >= process.tokens_waiting
        if served:
            again_s = CONTENDED_S if contended else HEARTBEAT_S
        elif requests == tokens == math.inf:  # a process that keeps its slots busy needs no quick answer
            again_s = max(POLL_S, min(HEARTBEAT_S, SPACED_S * len(self.processes)))
        else:
            again_s = self.requests.next_s(POLL_S)
        reason = None if served else self._reason(process, state, slots, requests, tokens)
        return Grant(slots, requests, tokens, again_s, contended, reason=reason, waves=waves, refusing_s=refusing_s)

    def _refused(self, now: float) -> Reason:
        left = self.throttle.until - now
        text = (
            f"for {self.settings.name}: it answers 429 (rate limit); next request in {left:.1f} s; {self._capacity()}"
        )
        return Reason("rate_limit", text)

    def _capacity(self) -> str:
        """What the endpoint accepts, judging by its 429s."""
        throttle = self.throttle
        rate = "" if throttle.rate == math.inf else f" and {throttle.rate:.3g} a second"
        return f"it accepts about {throttle.cap} requests at a time{rate}"

    def _paused(self, now: float) -> Reason:
        left, summary = max(0.0, self.breaker.until - now), self.breaker.summary()
        kind = f"pause {self.breaker.pauses}"
        return Reason(kind, f"for {self.settings.name}: paused, next request in {left:.0f} s at most; {summary}")

    def _reason(self, process: _Process, state: State, slots: int, requests: float, tokens: float) -> Reason:
        """Why some calls of a process must wait."""
        name, cap = self.settings.name, self.throttle.cap
        timeout = f", with a timeout of {self.settings.timeout_s:g} s" if self.settings.timeout_s else ""
        if state == "probing":
            return Reason("probe", f"for {name}: one request tests whether it answers again{timeout}")
        at_once = slots > process.in_flight
        for bucket, missing, setting in (
            (self.requests, requests < process.waiting, "requests_per_minute"),
            (self.tokens, tokens < process.tokens_waiting, "tokens_per_minute"),
        ):
            if bucket is self.requests and bucket.slowed and missing and at_once:
                return Reason("rate", f"for {name}: it has answered 429 (rate limit); {self._capacity()}")
            if bucket.rate != math.inf and missing and at_once:
                total = self._total("waiting" if bucket is self.requests else "tokens_waiting")
                seconds = max(0.0, total - bucket.level) / bucket.rate
                limit = f"the limit is {setting}={60 * bucket.rate:g}"
                text = f"for {name}: {limit}; the calls that wait now need {seconds:.0f} s"
                return Reason(setting, text)
        lowered = f", lowered from {self.throttle.most} after 429" if cap < self.throttle.most else ""
        return Reason("cap", f"for {name}: at most {cap} requests at a time (concurrency{lowered}){timeout} each")

    def _slots(self, process: _Process, cap: int, now: float) -> int:
        """The slots that this process may use now: its fair share, and some room to grow before the next report."""
        if not process.demand:
            process.held = 0
            return 0
        shares, spare = self._shares(cap, now)
        # A last spare slot goes to the first process that asks. Never grant another process's fair share.
        room = min(max(spare // len(shares), min(spare, 1)), max(4, process.demand // 4))
        others = sum(max(p.held, shares.get(p, 0)) for p in self.processes.values() if p is not process)
        target = shares[process] + room
        process.held = max(process.held, min(target, cap - others))
        return min(target, process.held)

    def _shares(self, cap: int, now: float) -> tuple[dict[_Process, int], int]:
        """The max-min fair share of each process with demand, and the number of slots left over.

        Max-min fair: no process gets more than it asks for, and slots it does not need go to the others.
        """
        faded = [p for p in self.processes.values() if now - p.last_report_s > FADED_S]
        busy = sorted((p for p in self.processes.values() if p.demand and p not in faded), key=lambda p: p.demand)
        left = max(0, cap - sum(p.held for p in faded))
        if left < len(busy):
            first = sorted(busy, key=lambda p: self._rank(p, now))[:left]
            return {p: int(p in first) for p in busy}, 0
        shares = {}
        for position, process in enumerate(busy):
            shares[process] = min(process.demand, left // (len(busy) - position))
            left -= shares[process]
        return shares, left

    def _rank(self, process: _Process, now: float) -> tuple[int, float]:
        """The sort key if there are fewer slots than processes.

        First come processes whose turn has just begun, then those without a slot, longest wait first, then those whose
        turn is over, latest turn first.
        """
        if not process.has_turn:
            return 1, process.since
        return (0 if now - process.since < TURN_S else 2), -process.since

    def _note_turn(self, process: _Process, now: float, able: bool) -> None:
        # A turn begins only when the rate admits a request. Otherwise turns could end before a slow rate admits any.
        has_turn = process.held > 0
        if has_turn != process.has_turn or (has_turn and not able):
            process.has_turn, process.since = has_turn, now

    def _allowances(self, process: _Process, slots: int, now: float) -> tuple[float, float]:
        """The allowance of requests and of tokens.

        Both are 0 if one of them or a slot is missing: the process could not use the other, and would keep it from the
        rest as long as it asks.
        """
        if not slots:
            return 0.0, 0.0
        at_once = slots > process.in_flight
        per_call = process.tokens_waiting / process.waiting if process.waiting else 0.0
        before = self._before(process, now) if at_once else 0
        requests = self._part(self.requests, process.waiting, self._total("waiting"), 1.0, at_once, before)
        total = self._total("tokens_waiting")
        tokens = self._part(self.tokens, process.tokens_waiting, total, per_call, at_once, before)
        if requests > 0 and tokens > 0:
            process.allowed_s = now
            return requests, tokens
        self.requests.give_back(requests)
        self.tokens.give_back(tokens)
        return 0.0, 0.0

    def _before(self, process: _Process, now: float) -> int:
        """How many other processes a scarce rate admits first: their calls wait with a free slot, and for longer."""
        return sum(
            p.waiting > 0
            and p.held > p.in_flight
            and p.allowed_s < process.allowed_s
            and now - p.last_report_s < FADED_S
            for p in self.processes.values()
        )

    def _total(self, field_name: str) -> float:
        return float(sum(getattr(p, field_name) for p in self.processes.values()))

    def _part(self, bucket: Bucket, wanted: float, total: float, per_call: float, at_once: bool, before: int) -> float:
        """The part of the bucket for this process, in proportion to what it wants.

        A process with a free slot gets enough for one call or nothing: otherwise many processes could each hold a
        fraction of a call for ever. One call each is left in the bucket for those `before` it.
        """
        if bucket.rate == math.inf:
            return math.inf
        share = bucket.level * wanted / total if wanted else 0.0
        if share < per_call:
            level = bucket.level - before * per_call
            share = per_call if at_once and level >= min(per_call, 1.0) else 0.0
        return bucket.take(share)


class SharedLimits:
    """The limits of a run: one object that every process reports to. It is not thread-safe; `sync` never waits.

    Args:
        endpoints: the limits of each endpoint, by key.
        budget_usd: what the run may spend over all endpoints; None: no budget.
        spent_usd: what a resumed run has spent already.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        endpoints: Mapping[str, EndpointLimits],
        budget_usd: float | None = None,
        spent_usd: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._endpoints = {key: _EndpointState(settings, clock()) for key, settings in endpoints.items()}
        self.budget_usd = budget_usd
        self.spent_usd = spent_usd

    def sync(self, report: Report) -> Grant:
        """Record a report and return a grant. The slots of all processes together never exceed the cap."""
        now = self._clock()
        endpoint = self._endpoints[report.endpoint_key]
        self.spent_usd += report.cost_usd
        process = endpoint.record(report, now)
        if self.budget_usd is not None and self.spent_usd >= self.budget_usd:
            detail = f"${self.spent_usd:.2f} of judge.budget_usd=${self.budget_usd:.2f} are spent"
            return Grant(0, 0.0, 0.0, HEARTBEAT_S, stop=Stop("budget", detail))
        return endpoint.grant(process, now)

    @property
    def outage(self) -> str | None:
        """Why a circuit breaker tripped: endpoint, share of failures and last cause; None if none has tripped."""
        for endpoint in self._endpoints.values():
            if endpoint.breaker.state == "tripped":
                return f"{endpoint.settings.name}: {endpoint.breaker.summary()}"
        return None

    def outcomes(self) -> dict[str, Counter[str]]:
        """The outcomes in the window of each endpoint's breaker: name -> outcome -> count."""
        return {e.settings.name: e.breaker.window_counts() for e in self._endpoints.values()}
