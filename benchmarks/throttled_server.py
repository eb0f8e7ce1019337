"""A chat-completions endpoint that answers requests above its limit with 429; `benchmarks.throttle` uses it.

    python -m benchmarks.throttled_server --kind in_flight --limit 8 --header seconds   # prints its base URL

It runs in its own process, ends when its stdin ends, and then prints its counts. A limit is a number of requests in
flight (`in_flight`) or a rate per second, counted as real services do: in a sliding window, in fixed windows, or with a
token bucket. A refusal is sent at once, with or without Retry-After.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from email.utils import formatdate
from typing import Literal, get_args

from benchmarks.fixed_latency_server import _Messages, completion, serve, server_process
from soul.cli.arguments import non_negative_float, positive_float
from soul.cli.error_border import Parser, reports_errors

Kind = Literal["in_flight", "sliding", "fixed", "bucket", "smooth"]
Header = Literal["none", "seconds", "date"]


@dataclass(frozen=True)
class Limit:
    """What an endpoint admits.

    Attributes:
        kind: `in_flight`: requests at the same time. The others are rates: `sliding` and `fixed` windows of one second,
            `bucket` holds one second's worth, `smooth` one request.
        amount: requests in flight, or requests per second.
        header: Retry-After of a refusal: `none`, whole `seconds` (rounded up, at least 1), or an HTTP `date`.
        retry_after_s: the smallest value of the header.
    """

    kind: Kind
    amount: float
    header: Header = "none"
    retry_after_s: float = 1.0

    def best_s(self, requests: int, latency: float) -> float:
        """The shortest possible time for this number of requests, in seconds."""
        if self.kind == "in_flight":
            return math.ceil(requests / self.amount) * latency
        at_once = 1.0 if self.kind == "smooth" else self.amount
        return max(0.0, requests - at_once) / self.amount + latency


class Limiter:
    """Decides on each request; the caller passes the time."""

    def __init__(self, limit: Limit) -> None:
        self.limit = limit
        self.in_flight = 0
        self._admitted: deque[float] = deque()  # times of admission within the last second
        self._level, self._then = (1.0 if limit.kind == "smooth" else limit.amount), 0.0

    def admit(self, now: float) -> float | None:
        """None if the request is admitted; else the seconds until one would be (0.0 if unknown)."""
        amount, kind = self.limit.amount, self.limit.kind
        if kind == "in_flight":
            if self.in_flight >= amount:
                return 0.0
        elif kind in ("sliding", "fixed"):
            opens = now - 1.0 if kind == "sliding" else math.floor(now)
            while self._admitted and self._admitted[0] < opens:
                self._admitted.popleft()
            if len(self._admitted) >= amount:
                return self._admitted[0] - opens if kind == "sliding" else 1.0 + opens - now
            self._admitted.append(now)
        else:
            most = 1.0 if kind == "smooth" else amount
            self._level, self._then = min(most, self._level + amount * (now - self._then)), now
            if self._level < 1.0:
                return (1.0 - self._level) / amount
            self._level -= 1.0
        self.in_flight += 1
        return None

    def headers(self, wait_s: float, wall: float) -> dict[str, str]:
        """The Retry-After header of a refusal, if the limit has one."""
        wait_s = max(wait_s, self.limit.retry_after_s)
        if self.limit.header == "seconds":
            return {"retry-after": str(math.ceil(wait_s))}
        if self.limit.header == "date":
            return {"retry-after": formatdate(math.ceil(wall + wait_s), usegmt=True)}
        return {}


@dataclass
class Counts:
    """Counts of a server; times are seconds from its first request."""

    admitted: int = 0
    refused: int = 0
    peak: int = 0
    refused_at: list[float] = field(default_factory=list)


class _Server:
    def __init__(self, limiter: Limiter, latency: float, answer: str) -> None:
        self.limiter, self.latency, self.answer = limiter, latency, completion(answer)
        self.counts = Counts()
        self._start: float | None = None

    def decide(self) -> bytes | None:
        """The refusal; None if the request is admitted."""
        now = time.monotonic()
        self._start = self._start or now
        wait_s = self.limiter.admit(now)
        if wait_s is None:
            self.counts.admitted += 1
            self.counts.peak = max(self.counts.peak, self.limiter.in_flight)
            return None
        self.counts.refused += 1
        self.counts.refused_at.append(round(now - self._start, 3))
        body = b'{"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}'
        more = "".join(f"{k}: {v}\r\n" for k, v in self.limiter.headers(wait_s, time.time()).items())
        head = f"content-type: application/json\r\n{more}content-length: {len(body)}\r\n\r\n"
        return b"HTTP/1.1 429 Too Many Requests\r\n" + head.encode() + body


class _Throttled(_Messages):
    def __init__(self, server: _Server) -> None:
        super().__init__()
        self._server = server

    def message(self) -> None:
        refusal = self._server.decide()
        if refusal is not None:
            self.transport.write(refusal)
        else:
            asyncio.get_running_loop().call_later(self._server.latency, self._send)

    def _send(self) -> None:
        self._server.limiter.in_flight -= 1
        if not self.transport.is_closing():
            self.transport.write(self._server.answer)


@contextmanager
def throttled(limit: Limit, latency: float, answer: str) -> Iterator[tuple[str, Counts]]:
    """The server in its own process: yields its base URL, and its counts, which are filled in after the block."""
    options = ["--latency", str(latency), "--answer", answer]
    options += ["--kind", limit.kind, "--limit", str(limit.amount), "--header", limit.header]
    options += ["--retry-after", str(limit.retry_after_s)]
    counts = Counts()

    def fill_in(output: str) -> None:
        vars(counts).update(json.loads(output or "{}"))

    with server_process("benchmarks.throttled_server", *options, at_end=fill_in) as url:
        yield url, counts


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m benchmarks.throttled_server", description=__doc__)
    parser.add_argument(
        "--latency", type=non_negative_float, default=0.2, help="seconds from an admitted request to its answer"
    )
    parser.add_argument("--answer", default='{"score": 7, "critique": "Look again."}', help="text of every completion")
    parser.add_argument("--kind", choices=get_args(Kind), default="in_flight")
    parser.add_argument(
        "--limit", type=non_negative_float, default=8, help="requests in flight, or requests per second"
    )
    parser.add_argument("--header", choices=get_args(Header), default="none")
    parser.add_argument(
        "--retry-after", type=positive_float, default=1.0, help="smallest value of the header, in seconds"
    )
    args = parser.parse_args(arguments)
    limiter = Limiter(Limit(args.kind, args.limit, args.header, args.retry_after))
    server = _Server(limiter, args.latency, args.answer)
    asyncio.run(serve(lambda: _Throttled(server)))
    print(json.dumps(asdict(server.counts)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
