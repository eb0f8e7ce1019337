"""Limits that are global to a run: many processes share one budget of concurrency, requests, tokens and money.

Every process keeps a `RequestGate` per endpoint (`local_gate.py`) and reports to one `SharedLimits` a few times a
second, not once a call: requests in flight, calls that wait, and outcomes. The answer grants slots and allowances until
the next report. A process may use its grant without asking again, and all grants together never exceed the cap, so the
cap holds at every moment. In one process `SharedLimits` is called directly; on a cluster it lives in a Ray actor
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
POLL_S = 0.05  # how soon a process that could not be served asks again
CONTENDED_S = 0.2  # how soon one asks again who holds what others may want
TURN_S = 1.0  # with fewer slots than processes: how long a process keeps its slot while others have none
FADED_S = 5.0  # a process that was not heard of for so long keeps what it holds, and has no share in the rest
SILENT_S = 120.0  # a process that was not heard of for so long is gone, and its slots are free


@dataclass(frozen=True)
class EndpointLimits:
    """The limits of one endpoint ("line": what goes over it is counted together)."""

    name: str  # for messages: model and address
    concurrency: int
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    breaker: BreakerSettings = BreakerSettings()
    timeout_s: float | None = None  # seconds of one request, for messages


@dataclass(frozen=True)
class Report:
    """What a process tells of one line, since its last report.

    Attributes:
        outcomes: finished requests: "ok" or a cause, how often.
        refused: those that ended with 429, by the `waves` of the grant under which they were sent.
        retry_after_s: the longest time that these refusals ask to wait; None where none says.
        unused_requests: allowance handed back; unused_tokens is negative where more was used than granted.
        tokens_waiting: estimated tokens of the calls that wait.
    """

    line: str
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
    """No call will be let through any more, and why."""

    cause: Literal["outage", "budget"]
    detail: str


@dataclass(frozen=True)
class Grant:
    """What a process may do until it reports again.

    Attributes:
        slots: requests in flight at the same time.
        requests, tokens: how many more may be started (inf: no such limit).
        again_s: report again after this time at the latest.
        contended: others wait for slots; hand back at once what is not needed.
        reason: why the calls that this grant does not cover have to wait; its text follows "5 calls wait".
        waves: how many waves of 429 the endpoint has sent (rates.py); requests are reported under this number.
        refusing_s: for how long the endpoint has answered nothing but 429, first to latest; 0.0: it answers.
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
    held: int = 0  # slots it may be using right now
    demand: int = 0
    waiting: int = 0
    tokens_waiting: float = 0.0
    heard: float = 0.0
    has_turn: bool = False  # it holds slots
    since: float = 0.0  # the time from which it has or lacks its turn


class _EndpointState:
    def __init__(self, settings: EndpointLimits, now: float) -> None:
        self.settings = settings
        self.throttle = Throttle(settings.concurrency, now)
        self.requests = Bucket(settings.requests_per_minute, now)
        self.tokens = Bucket(settings.tokens_per_minute, now)
        self.breaker = CircuitBreaker(settings.breaker)
        self.processes: dict[str, _Process] = {}

    def hear(self, report: Report, now: float) -> _Process:
        """Take in a report."""
        for name in [name for name, p in self.processes.items() if now - p.heard > SILENT_S]:
            del self.processes[name]
        process = self.processes.setdefault(report.process, _Process())
        if not process.demand:
            process.since = now
        process.heard = now
        process.demand = report.in_flight + report.waiting
        process.waiting, process.tokens_waiting = report.waiting, report.tokens_waiting
        process.in_flight = report.in_flight
        process.held = report.in_flight  # between a report and its grant a process starts nothing new
        self.requests.refill(now)
        self.tokens.refill(now)
        self.requests.give_back(report.unused_requests)
        self.tokens.give_back(report.unused_tokens)
        answered = sum(report.outcomes.values()) - report.outcomes.get("rate_limit", 0)
        in_flight = sum(p.held for p in self.processes.values())
        waves, state = self.throttle.waves, self.breaker.state
        self.throttle.heard(now, in_flight, answered, report.refused, report.retry_after_s)
        self.requests.slow_down_to(self.throttle.rate)
        if now < self.throttle.until:
            self.requests.level = min(self.requests.level, 0.0)
        self.breaker.heard(now, report.outcomes, report.last_failure)
        if self.throttle.waves > waves:
            pause = self.throttle.until - now
            logger.info("%s answers 429 (rate limit): paused for %.2f s", self.settings.name, pause)
        if self.breaker.state != state:
            level = {"tripped": logging.ERROR, "open": logging.WARNING}.get(self.breaker.state, logging.INFO)
            summary = self.breaker.summary() if self.breaker.state != "closed" else "it answers again"
            logger.log(level, "circuit breaker of %s: %s; %s", self.settings.name, self.breaker.state, summary)
        return process

    def grant(self, process: _Process, now: float) -> Grant:
        """What this process may do next."""
        state = self.breaker.at(now)
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
            cap = 1 if self.breaker.probed or not in_use else 0  # a probe goes alone: what comes back is its outcome
        slots = self._slots(process, cap, now)
        requests, tokens = self._allowances(process, slots)
        self._note_turn(process, now, able=process.in_flight > 0 or (requests > 0 and tokens > 0))
        self.breaker.probed |= state == "probing" and slots > 0
        contended = any(p.demand > p.held for p in self.processes.values())
        served = slots >= process.demand and requests >= process.waiting and tokens >= process.tokens_waiting
        again_s = self.requests.next_s(POLL_S) if not served else CONTENDED_S if contended else HEARTBEAT_S
        reason = None if served else self._reason(process, state, slots, requests, tokens)
        return Grant(slots, requests, tokens, again_s, contended, reason=reason, waves=waves, refusing_s=refusing_s)

    def _refused(self, now: float) -> Reason:
        left = self.throttle.until - now
        text = (
            f"for {self.settings.name}: it answers 429 (rate limit) and is asked again in {left:.1f} s; {self._taken()}"
        )
        return Reason("rate_limit", text)

    def _taken(self) -> str:
        """What the endpoint takes, as far as its 429 have shown."""
        throttle = self.throttle
        rate = "" if throttle.rate == math.inf else f" and {throttle.rate:.3g} a second"
        return f"it takes about {throttle.cap} at a time{rate}"

    def _paused(self, now: float) -> Reason:
        left, summary = max(0.0, self.breaker.until - now), self.breaker.summary()
        kind = f"pause {self.breaker.pauses}"
        return Reason(kind, f"for {self.settings.name}, which is asked again in {left:.0f} s at most: {summary}")

    def _reason(self, process: _Process, state: State, slots: int, requests: float, tokens: float) -> Reason:
        """Why a process has to wait whose calls were not all granted."""
        name, cap = self.settings.name, self.throttle.cap
        within = f", for {self.settings.timeout_s:g} s at most" if self.settings.timeout_s else ""
        if state == "probing":
            return Reason("probe", f"for {name}: one request tries whether it answers again{within}")
        at_once = slots > process.in_flight
        for bucket, missing, setting in (
            (self.requests, requests < process.waiting, "requests_per_minute"),
            (self.tokens, tokens < process.tokens_waiting, "tokens_per_minute"),
        ):
            if bucket is self.requests and bucket.slowed and missing and at_once:
                return Reason("rate", f"for {name}, which has answered 429 (rate limit): {self._taken()}")
            if bucket.rate != math.inf and missing and at_once:
                total = self._total("waiting" if bucket is self.requests else "tokens_waiting")
                seconds = max(0.0, total - bucket.level) / bucket.rate
                limit = f"the limit is {setting}={60 * bucket.rate:g}"
                text = f"for {name}: {limit}; the calls that wait now need {seconds:.0f} s"
                return Reason(setting, text)
        lowered = f" after rate-limit answers, instead of {self.throttle.most}" if cap < self.throttle.most else ""
        return Reason("cap", f"for {name}: no more than {cap} at a time{lowered} (concurrency){within} each")

    def _slots(self, process: _Process, cap: int, now: float) -> int:
        """The slots that this process may use now: its share, and room to grow without asking first."""
        if not process.demand:
            process.held = 0
            return 0
        due, spare = self._shares(cap, now)
        # Where hardly anything is spare it goes to whoever asks first; but what is due to another stays his.
        room = min(max(spare // len(due), min(spare, 1)), max(4, process.demand // 4))
        others = sum(max(p.held, due.get(p, 0)) for p in self.processes.values() if p is not process)
        fair = due[process] + room
        process.held = max(process.held, min(fair, cap - others))
        return min(fair, process.held)

    def _shares(self, cap: int, now: float) -> tuple[dict[_Process, int], int]:
        """Max-min fair: nobody gets more than he asks for while another lacks; and what is left over then."""
        faded = [p for p in self.processes.values() if now - p.heard > FADED_S]
        busy = sorted((p for p in self.processes.values() if p.demand and p not in faded), key=lambda p: p.demand)
        left = max(0, cap - sum(p.held for p in faded))
        if left < len(busy):
            first = sorted(busy, key=lambda p: self._rank(p, now))[:left]
            return {p: int(p in first) for p in busy}, 0
        due = {}
        for position, process in enumerate(busy):
            due[process] = min(process.demand, left // (len(busy) - position))
            left -= due[process]
        return due, left

    def _rank(self, process: _Process, now: float) -> tuple[int, float]:
        """Where slots do not go round: first whose turn has just begun, then who has waited longest for one; and of
        those whose turn is over the last that got it."""
        if not process.has_turn:
            return 1, process.since
        return (0 if now - process.since < TURN_S else 2), -process.since

    def _note_turn(self, process: _Process, now: float, able: bool) -> None:
        # As long as it waits for the rate its turn has not begun, or a slow rate would meet the same one each time.
        has_turn = process.held > 0
        if has_turn != process.has_turn or (has_turn and not able):
            process.has_turn, process.since = has_turn, now

    def _allowances(self, process: _Process, slots: int) -> tuple[float, float]:
        """Requests and tokens. Neither where one of them or a slot is lacking: it could not be used, and is lost to
        the others for as long as this process asks for it again and again."""
        if not slots:
            return 0.0, 0.0
        at_once = slots > process.in_flight
        one = process.tokens_waiting / process.waiting if process.waiting else 0.0
        requests = self._part(self.requests, process.waiting, self._total("waiting"), 1.0, at_once)
        tokens = self._part(self.tokens, process.tokens_waiting, self._total("tokens_waiting"), one, at_once)
        if requests > 0 and tokens > 0:
            return requests, tokens
        self.requests.give_back(requests)
        self.tokens.give_back(tokens)
        return 0.0, 0.0

    def _total(self, of: str) -> float:
        return float(sum(getattr(p, of) for p in self.processes.values()))

    def _part(self, bucket: Bucket, wanted: float, total: float, one: float, at_once: bool) -> float:
        """This process's part of what is in the bucket, by what waits where; but never too little for one call that has
        its slot, or many processes would each hold a fraction for ever."""
        if bucket.rate == math.inf:
            return math.inf
        share = bucket.level * wanted / total if wanted else 0.0
        if share < one:
            share = one if at_once and bucket.level >= min(one, 1.0) else 0.0
        return bucket.take(share)


class SharedLimits:
    """The run's limits. One object, asked by every process; not thread-safe, and it need not be: `sync` never waits.

    Args:
        lines: the endpoints by key.
        budget_usd: what the run may spend over all lines; None: no budget.
        spent_usd: what it spent before (a resumed run).
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        lines: Mapping[str, EndpointLimits],
        budget_usd: float | None = None,
        spent_usd: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._lines = {key: _EndpointState(settings, clock()) for key, settings in lines.items()}
        self.budget_usd = budget_usd
        self.spent_usd = spent_usd

    def sync(self, report: Report) -> Grant:
        """Take in a report and grant what may follow. Granted slots of all processes never exceed the cap."""
        now = self._clock()
        line = self._lines[report.line]
        self.spent_usd += report.cost_usd
        process = line.hear(report, now)
        if self.budget_usd is not None and self.spent_usd >= self.budget_usd:
            detail = f"${self.spent_usd:.2f} of judge.budget_usd=${self.budget_usd:.2f} are spent"
            return Grant(0, 0.0, 0.0, HEARTBEAT_S, stop=Stop("budget", detail))
        return line.grant(process, now)

    @property
    def outage(self) -> str | None:
        """What tripped a breaker: endpoint, share and last cause; None while all is well."""
        for line in self._lines.values():
            if line.breaker.state == "tripped":
                return f"{line.settings.name}: {line.breaker.summary()}"
        return None

    def outcomes(self) -> dict[str, Counter[str]]:
        """The window of each line's breaker, for people."""
        return {line.settings.name: line.breaker._seen() for line in self._lines.values()}
