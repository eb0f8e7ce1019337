"""The load of a run on its endpoints, for plans: calls x tokens x price, and the time that the limits allow at least.

Plans assume a length for answers, and a warm cache makes a run cheaper.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace

from soul.judge.call.endpoint import Endpoint
from soul.judge.roles import BY_TASK

JURY = "jury "  # a member's section is this and its number


@dataclass(frozen=True)
class Load:
    """The calls that one role, or the judge of one task, gets in a training step or an evaluation."""

    section: str  # the role, or `judge.by_task.<task>`
    endpoint: Endpoint
    calls: float  # expected number of calls
    # tokens_in, tokens_out: expected prompt and completion tokens of all these calls together
    tokens_in: float
    tokens_out: float
    latency_s: float | None = None  # seconds for one call; None if unknown

    @property
    def role(self) -> str:
        """The role; that of a jury's member and of a task's own judge is "judge"."""
        return "judge" if self.section.startswith((BY_TASK, JURY)) else self.section

    @property
    def cost_usd(self) -> float | None:
        """The expected cost in US dollars; None if the price is unknown."""
        if not self.endpoint.priced:
            return None
        return self.endpoint.cost(int(self.tokens_in), 0, int(self.tokens_out))

    def bounds(self) -> dict[str, float]:
        """The minimum time in seconds that each limit imposes on these calls: limit -> seconds."""
        endpoint, tokens = self.endpoint, self.tokens_in + self.tokens_out
        seconds: dict[str, float] = {}
        if (rate := endpoint.tokens_per_minute) is not None:
            seconds[f"{self.section}.tokens_per_minute={rate:,.0f}"] = 60 * tokens / rate
        if (rate := endpoint.requests_per_minute) is not None:
            seconds[f"{self.section}.requests_per_minute={rate:,.0f}"] = 60 * self.calls / rate
        if self.latency_s is not None:
            name = f"{self.latency_s:.2f} s per call at {self.section}.concurrency={endpoint.concurrency}"
            seconds[name] = self.calls * self.latency_s / endpoint.concurrency
        return seconds


def total_cost(loads: Iterable[Load]) -> float | None:
    """US dollars; None if a price is unknown."""
    costs = [load.cost_usd for load in loads]
    return None if None in costs else sum(cost for cost in costs if cost is not None)


def least_seconds(loads: Iterable[Load]) -> tuple[float, str] | None:
    """The shortest time that the limits allow, and the tightest limit; None without limits."""
    bounds = [(seconds, limit) for load in loads for limit, seconds in load.bounds().items()]
    return max(bounds, default=None)


def summed(loads: Iterable[Load], key: Callable[[Load], Hashable]) -> list[Load]:
    """One load for all with the same key, under the first one's section."""
    groups: defaultdict[Hashable, list[Load]] = defaultdict(list)
    for load in loads:
        groups[key(load)].append(load)
    names = ("calls", "tokens_in", "tokens_out")
    return [
        replace(group[0], **{name: sum(getattr(load, name) for load in group) for name in names})
        for group in groups.values()
    ]
