"""Decide which sample runs next, and estimate how long the rest of a run takes.

A sample of one turn takes a second, a scene of twenty turns a minute, and a long sample that starts last delays the end
of the run. So two samples of every set run first, to measure the set and to show a score, and then the sets with the
longest samples (longest processing time first). The estimate of the time left uses the measured seconds of each set,
the number of concurrent samples and the limits of the endpoints. For a set without a finished sample, it uses the set
with the most similar number of expected calls.
"""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from soul.evaluate.run.settings import SampleRequest
from soul.judge import Endpoint, GatewaySettings, Usage

FIRST = 2  # samples of each set that run before the sets are ordered by length
ALMOST = 0.1  # an overdue sample is expected to end after this share of its set's mean
KEEP_S = 1.0  # an estimate is reused for this long

LimitUse = Mapping[str, float]  # limit -> how much of it a sample uses


def expected_calls(request: SampleRequest) -> float:
    """How many successive calls a sample makes, by its task's declaration; ranks sets that are not measured yet."""
    calls = request.row.task.calls_per_episode
    turns = calls.get("partner", 0.0) + calls.get("environment", 0.0)
    return 1.0 + 2.0 * turns + (calls.get("judge", 0.0) > 0)


class Capacity:
    """The limits of a run's endpoints.

    Args:
        gateway: the endpoints of the roles; those with equal settings share their limits. Juries are ignored.
        policy: the endpoint of the model under test, which has its own limits; None if the run does not call it.
    """

    def __init__(self, gateway: GatewaySettings, policy: Endpoint | None = None) -> None:
        self._gateway, self._policy = gateway, policy
        self._limits: dict[str, float] = {}  # limit -> amount per second
        for endpoint in [*gateway.endpoints, *([policy] if policy else [])]:
            key = self._key(endpoint)
            self._limits[f"{key} in flight"] = endpoint.concurrency
            self._limits[f"{key} requests"] = (endpoint.requests_per_minute or math.inf) / 60
            self._limits[f"{key} tokens"] = (endpoint.tokens_per_minute or math.inf) / 60

    def _key(self, endpoint: Endpoint) -> str:
        return "policy" if endpoint is self._policy else endpoint.model_dump_json()

    def _endpoint(self, role: str, task: str) -> Endpoint | None:
        if role == "policy":
            return self._policy
        asked = self._gateway.asked(self._gateway.section(role, task))
        return asked[0] if len(asked) == 1 else None  # a jury has no single endpoint

    def load(self, task: str, usage: Mapping[str, Usage]) -> LimitUse:
        """How much of each limit a sample used.

        Args:
            usage: role -> its counters.
        """
        amounts: defaultdict[str, float] = defaultdict(float)
        for role, used in usage.items():
            if (endpoint := self._endpoint(role, task)) is not None:
                key = self._key(endpoint)
                amounts[f"{key} in flight"] += used.seconds
                amounts[f"{key} requests"] += used.requests
                amounts[f"{key} tokens"] += used.prompt_tokens + used.completion_tokens
        return amounts

    def least_seconds(self, load: LimitUse) -> float:
        """The shortest time in which the limits allow this load."""
        return max((load.get(name, 0.0) / rate for name, rate in self._limits.items()), default=0.0)


@dataclass
class _Set:
    calls: float
    left: deque[SampleRequest] = field(default_factory=deque)
    started: int = 0
    running: dict[object, float] = field(default_factory=dict)  # sample -> when it started
    ended: int = 0
    seconds: float = 0.0  # of the ended samples, without the time spent waiting for limits
    load: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def mean(self, now: float) -> float:
        """The measured seconds of a sample.

        Running samples count too if they have already taken longer than the mean. Otherwise the mean would be too low,
        because short samples end first.
        """
        mean = self.seconds / self.ended
        longer = [now - start for start in self.running.values() if now - start > mean]
        return (self.seconds + sum(longer)) / (self.ended + len(longer))


class Schedule:
    """The order of the samples of one start, and an estimate of how long they take.

    Args:
        todo: the samples to run; within a set they keep their order.
        at_once: samples that run concurrently.
        capacity: the limits of the endpoints.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        todo: Sequence[SampleRequest],
        at_once: int,
        capacity: Capacity,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.at_once, self._capacity, self._clock = at_once, capacity, clock
        self._sets: dict[str, _Set] = {}
        self._estimate: tuple[float, float | None] | None = None  # when it was made, and the seconds
        self._lock = threading.Lock()  # the live table calls `seconds_left` in another thread
        for request in todo:
            self._sets.setdefault(request.set, _Set(expected_calls(request))).left.append(request)

    def start(self) -> SampleRequest | None:
        """Start the next sample; None if none is left."""
        now = self._clock()
        waiting = [one for one in self._sets.values() if one.left]
        if not waiting:
            return None
        first = [one for one in waiting if one.started < FIRST]
        if first:
            chosen = min(first, key=lambda one: (one.started, -one.calls))
        else:
            chosen = max(waiting, key=lambda one: self._seconds(one, now))
        with self._lock:
            request = chosen.left.popleft()
            chosen.started += 1
            chosen.running[request.key] = now
        return request

    def end(self, request: SampleRequest, usage: Mapping[str, Usage]) -> None:
        """Record that a sample has ended.

        Args:
            usage: role -> its counters.
        """
        queued = sum(used.queued_s for used in usage.values())
        at_least = usage["policy"].seconds if "policy" in usage else 0.0  # its turns run one after another
        one, load = self._sets[request.set], self._capacity.load(request.row.task.name, usage)
        with self._lock:
            spent = self._clock() - one.running.pop(request.key)
            one.seconds += max(spent - queued, min(at_least, spent))
            one.ended += 1
            for name, amount in load.items():
                one.load[name] += amount

    def seconds_left(self) -> float | None:
        """Estimated seconds until the run ends; None before the first sample has ended."""
        now = self._clock()
        if self._estimate is None or now - self._estimate[0] >= KEEP_S:
            with self._lock:
                self._estimate = now, self._computed(now)
        when, seconds = self._estimate
        return None if seconds is None else max(0.0, seconds - (now - when))

    def _computed(self, now: float) -> float | None:
        if not any(one.ended for one in self._sets.values()):
            return None
        sets = [(one, self._seconds(one, now)) for one in self._sets.values()]
        sets.sort(key=lambda pair: -pair[1])  # the order in which they will run
        running, limited = [], 0.0
        for one, seconds in sets:
            rest = [max(seconds - (now - start), ALMOST * seconds) for start in one.running.values()]
            running += rest
            samples = len(one.left) + (sum(rest) / seconds if seconds else 0.0)
            limited += samples * max(seconds / self.at_once, self._capacity.least_seconds(self._load(one)))
        return max(limited, self._last_end(running, sets))

    def _last_end(self, running: Sequence[float], sets: Sequence[tuple[_Set, float]]) -> float:
        """When the last sample ends if the number of concurrent samples is the only limit."""
        places = [*running, *[0.0] * (self.at_once - len(running))]
        heapq.heapify(places)
        for one, seconds in sets:
            for _ in one.left:
                heapq.heapreplace(places, places[0] + seconds)
        return max(places, default=0.0)

    def _seconds(self, one: _Set, now: float) -> float:
        """The expected seconds of a sample of this set, without the time spent waiting for limits."""
        if one.ended:
            return one.mean(now)
        like = self._most_similar(one)
        guess = like.mean(now) * one.calls / like.calls if like else one.calls
        return max([guess, *(now - start for start in one.running.values())]) if like else guess

    def _load(self, one: _Set) -> LimitUse:
        """The mean use of each limit by a sample of this set."""
        like = one if one.ended else self._most_similar(one)
        if like is None:
            return {}
        return {name: amount / like.ended * one.calls / like.calls for name, amount in like.load.items()}

    def _most_similar(self, one: _Set) -> _Set | None:
        """Of the sets with an ended sample, the one with the most similar number of expected calls."""
        measured = [other for other in self._sets.values() if other.ended]
        return min(measured, key=lambda other: abs(math.log(other.calls / one.calls)), default=None)
