"""Count what calls cost in tokens, money and time: per session and role, then merged per step, per task and per run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from soul.judge.call.endpoint import Endpoint
from soul.judge.call.http import Tokens

_BUCKET = math.log(1.05)  # latencies are counted in buckets 5 % wide: compact, and buckets can be added up


@dataclass
class Usage:
    """The counters of one role. `merge` adds them up."""

    calls: int = 0  # calls of `ask`, `chat` and `say`, whether answered from the cache or not
    requests: int = 0  # HTTP requests sent
    retries: int = 0  # requests sent again after a transient error
    reasks: int = 0  # requests sent again after an unusable answer
    cache_hits: int = 0  # calls that needed no request
    failures: Counter[str] = field(default_factory=Counter)  # final failures by cause
    cut_off: int = 0  # turns of a model under test that hit its token limit; they are judged as they are
    prompt_tokens: int = 0  # includes cached_tokens; completion_tokens includes reasoning_tokens
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float = 0.0  # cost of the requests in US dollars, estimated if the endpoint reports no token counts
    # requests whose cost is uncertain: no known price, no token counts, or no answer (then `cost_usd` has the price
    # of the prompt, the least that the request can have cost)
    unpriced: int = 0
    seconds: float = 0.0  # time in requests, summed
    queued_s: float = 0.0  # time spent waiting for the run's limits, summed
    latency: Counter[int] = field(default_factory=Counter)  # log-bucket -> requests that were answered

    def answered(self, endpoint: Endpoint, tokens: Tokens, seconds: float, expected: tuple[float, float]) -> float:
        """Count one answered request, and return its cost in US dollars (0.0 if the price is unknown).

        The expected tokens of prompt and completion stand in for those that the endpoint does not report.
        """
        self.latency[math.ceil(math.log(max(seconds, 1e-6)) / _BUCKET)] += 1
        prompt, completion = tokens.prompt, tokens.completion
        cached = min(tokens.cached, prompt or 0)
        self.prompt_tokens += prompt or 0
        self.cached_tokens += cached
        self.completion_tokens += completion or 0
        self.reasoning_tokens += tokens.reasoning
        self.unpriced += not endpoint.priced or prompt is None or completion is None
        prompt = round(expected[0]) if prompt is None else prompt
        completion = round(expected[1]) if completion is None else completion
        cost = endpoint.cost(prompt, cached, completion)
        self.cost_usd += cost
        return cost

    def unanswered(self, endpoint: Endpoint, prompt_tokens: float) -> float:
        """Count a request that was sent but got no complete answer, and return the least it costs: its prompt."""
        self.unpriced += 1
        cost = endpoint.cost(round(prompt_tokens), 0, 0)
        self.cost_usd += cost
        return cost

    def percentile(self, share: float) -> float | None:
        """The latency in seconds that this share of the requests did not exceed, accurate to 5 %; None without any."""
        total = sum(self.latency.values())
        seen = 0
        for bucket in sorted(self.latency):
            seen += self.latency[bucket]
            if seen >= share * total:
                return math.exp(bucket * _BUCKET)
        return None

    def merge(self, other: Usage) -> None:
        """Add another count to this one."""
        mine = vars(self)
        for name, value in vars(other).items():
            if isinstance(value, Counter):
                mine[name].update(value)
            else:
                mine[name] += value

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back."""
        buckets = {str(bucket): count for bucket, count in self.latency.items()}
        return {**vars(self), "failures": dict(self.failures), "latency": buckets}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Usage:
        """Read `to_json` back."""
        buckets = Counter({int(bucket): count for bucket, count in value["latency"].items()})
        return cls(**{**value, "failures": Counter(value["failures"]), "latency": buckets})


def merged(counts: Iterable[tuple[str, Usage]]) -> dict[str, Usage]:
    """The sum of the counts under each name, such as a role."""
    sums: dict[str, Usage] = {}
    for name, count in counts:
        sums.setdefault(name, Usage()).merge(count)
    return sums


def total(counts: Iterable[Usage]) -> Usage:
    """The sum of several counts."""
    return merged(("", count) for count in counts).get("", Usage())
