"""Decide which sample runs next, and estimate how long the rest of a run takes.

A sample of one turn takes a second, a scene of twenty turns a minute, and a long sample that starts last delays the end
of the run. So two samples of every set run first, to measure the set and to show a score, and then the sets with the
longest samples (longest processing time first). The time left is the largest of three bounds: the measured seconds of
the remaining samples over the number of concurrent samples, what they take of an endpoint's limits, and the longest
sample.
"""

from __future__ import annotations

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


def expected_calls(request: SampleRequest) -> float:
    """How many successive calls a sample makes, by its task's declaration; ranks sets that are not measured yet."""
    calls = request.row.task.calls_per_episode
    turns = calls.get("partner", 0.0) + calls.get("environment", 0.0)
    return 1.0 + 2.0 * turns + (calls.get("judge", 0.0) > 0)


EndpointOf = Callable[[str, str], Endpoint | None]  # role and task -> who is asked; None: its limits do not count


def endpoints_of(gateway: GatewaySettings, policy: Endpoint | None = None) -> EndpointOf:
    """The endpoint with each role.

    Args:
        policy: the model under test; None if the run does not call it.
    """

    def endpoint_of(role: str, task: str) -> Endpoint | None:
        if role == "policy":
            return policy
        asked = gateway.asked(gateway.section(role, task))
        return asked[0] if len(asked) == 1 else None  # a jury has no single endpoint

    return endpoint_of


def least_seconds(used: Usage, endpoint: Endpoint) -> float:
    """The shortest time in which the limits of an endpoint allow these calls."""
    per_minute = (
        (used.requests, endpoint.requests_per_minute),
        (used.prompt_tokens + used.completion_tokens, endpoint.tokens_per_minute),
    )
    return max(
        used.seconds / endpoint.concurrency, *(60 * amount / rate if rate else 0.0 for amount, rate in per_minute)
    )


@dataclass
class _Set:
    """The samples of one set.

    Attributes:
        seconds: of the ended samples, without the time spent waiting for limits.
        limits: endpoint -> the least seconds that its limits allow for the ended samples.
    """

    calls: float
    left: deque[SampleRequest] = field(default_factory=deque)
    started: int = 0
    running: dict[object, float] = field(default_factory=dict)  # sample -> when it started
    ended: int = 0
    seconds: float = 0.0
    limits: defaultdict[Endpoint, float] = field(default_factory=lambda: defaultdict(float))

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
        endpoint_of: see `endpoints_of`.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        todo: Sequence[SampleRequest],
        at_once: int,
        endpoint_of: EndpointOf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.at_once, self._endpoint_of, self._clock = at_once, endpoint_of, clock
        self._sets: dict[str, _Set] = {}
        self._lock = threading.Lock()  # the live table calls `seconds_left` in another thread
        for request in todo:
            self._sets.setdefault(request.set, _Set(expected_calls(request))).left.append(request)

    def start(self) -> SampleRequest | None:
        """Start the next sample; None if none is left."""
        now = self._clock()
        waiting = [one for one in self._sets.values() if one.left]
        if not waiting:
            return None
        if first := [one for one in waiting if one.started < FIRST]:
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
        one = self._sets[request.set]
        with self._lock:
            spent = self._clock() - one.running.pop(request.key)
            one.seconds += max(spent - queued, min(at_least, spent))
            one.ended += 1
            for role, used in usage.items():
                if endpoint := self._endpoint_of(role, request.row.task.name):
                    one.limits[endpoint] += least_seconds(used, endpoint)

    def seconds_left(self) -> float | None:
        """Estimated seconds until the run ends; None before the first sample has ended."""
        now = self._clock()
        with self._lock:
            if not any(one.ended for one in self._sets.values()):
                return None
            rests, limits = [0.0], defaultdict[Endpoint, float](float)
            for one in self._sets.values():
                seconds = self._seconds(one, now)
                of_set = [max(seconds - (now - start), ALMOST * seconds) for start in one.running.values()]
                of_set += [seconds] * len(one.left)
                rests += of_set
                like = one if one.ended else self._most_similar(one)
                if like is not None and seconds:
                    samples = sum(of_set) / seconds * one.calls / like.calls
                    for endpoint, least in like.limits.items():
                        limits[endpoint] += samples * least / like.ended
        return max(sum(rests) / self.at_once, max(rests), *limits.values())

    def _seconds(self, one: _Set, now: float) -> float:
        """The expected seconds of a sample of this set, without the time spent waiting for limits."""
        if one.ended:
            return one.mean(now)
        like = self._most_similar(one)
        if like is None:
            return one.calls
        guess = like.mean(now) * one.calls / like.calls
        return max([guess, *(now - start for start in one.running.values())])

    def _most_similar(self, one: _Set) -> _Set | None:
        """Of the sets with an ended sample, the one with the most similar number of expected calls."""
        measured = [other for other in self._sets.values() if other.ended]
        return min(measured, key=lambda other: abs(math.log(other.calls / one.calls)), default=None)
