"""A chat-completions endpoint for benchmarks of clients: a fixed latency, very low CPU use, and a limit if asked for.

    python -m benchmarks.server --latency 0.5                     # prints its base URL; ends when its stdin ends
    python -m benchmarks.server --kind in_flight --limit 8 --header seconds

Standard library only, in its own process. Every request gets the same completion, `latency` seconds after its last byte
has arrived; a request above the limit is refused at once with 429, with or without Retry-After. A limit is a number of
requests in flight or a rate per second, counted as real services do: in a sliding window, in fixed windows, or with a
token bucket. At its end the server prints its counts. It supports only the part of HTTP/1.1 that clients of a JSON
endpoint use. A minimal client got 2,900 answers a second from it on a busy machine, more than any client here asks for.
(`soul.testing.FakeOpenAI` is for tests: it can misbehave, and uses a thread per connection.)
"""

import asyncio
import json
import math
import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any, Literal, get_args

from soul.cli.arguments import non_negative_float, positive_float
from soul.cli.error_border import Parser, reports_errors

ROOT = Path(__file__).resolve().parents[1]
Kind = Literal["in_flight", "sliding", "fixed", "bucket", "smooth"]
Header = Literal["none", "seconds", "date"]
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"
_BACKLOG = 4096  # a benchmark opens all its connections at once
_REFUSAL = b'{"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}'


@dataclass(frozen=True)
class Limit:
    """The requests that an endpoint admits.

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
    """Requests that a server admitted and refused."""

    admitted: int = 0
    refused: int = 0


def _response(status: str, body: bytes, headers: dict[str, str]) -> bytes:
    fields = {"content-type": "application/json", **headers, "content-length": str(len(body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


def completion(answer: str) -> bytes:
    """The complete HTTP response: a completion with this text and its usage."""
    message: dict[str, Any] = {"role": "assistant", "content": answer, "refusal": None, "annotations": []}
    content = {
        "id": "chatcmpl-fixed",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "fixed",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 400, "completion_tokens": 60, "total_tokens": 460},
    }
    return _response("200 OK", json.dumps(content).encode(), {})


class _Connection(asyncio.Protocol):
    """Detects the ends of requests, and answers each."""

    def __init__(self, answer: bytes, latency: float, limiter: Limiter, counts: Counts) -> None:
        self._answer, self._latency, self._limiter, self._counts = answer, latency, limiter, counts
        self._bytes = bytearray()
        self._whole = 0  # length of the current request; 0 until its head has arrived

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        while True:
            if not self._whole:
                head = self._bytes.find(_HEAD_END)
                if head < 0:
                    return
                length = _LENGTH.search(self._bytes, 0, head)
                self._whole = head + len(_HEAD_END) + (int(length.group(1)) if length else 0)
            if len(self._bytes) < self._whole:
                return
            del self._bytes[: self._whole]
            self._whole = 0
            self._decide()

    def _decide(self) -> None:
        wait_s = self._limiter.admit(time.monotonic())
        if wait_s is not None:
            self._counts.refused += 1
            headers = self._limiter.headers(wait_s, time.time())
            self._transport.write(_response("429 Too Many Requests", _REFUSAL, headers))
            return
        self._counts.admitted += 1
        if self._latency:
            asyncio.get_running_loop().call_later(self._latency, self._send)
        else:
            self._send()

    def _send(self) -> None:
        self._limiter.in_flight -= 1
        if not self._transport.is_closing():
            self._transport.write(self._answer)


async def _serve(answer: bytes, latency: float, limit: Limit) -> Counts:
    """Serve on a free port of 127.0.0.1 until stdin ends, so that the server does not outlive its parent."""
    loop, limiter, counts, over = asyncio.get_running_loop(), Limiter(limit), Counts(), asyncio.Event()
    server = await loop.create_server(
        lambda: _Connection(answer, latency, limiter, counts), "127.0.0.1", 0, backlog=_BACKLOG
    )
    loop.add_reader(sys.stdin.fileno(), over.set)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await over.wait()
    server.close()
    return counts


@contextmanager
def served(answer: str, latency: float, limit: Limit | None = None) -> Iterator[tuple[str, Counts]]:
    """The server in its own process: yields its base URL, and its counts, which are filled in after the block."""
    command = [sys.executable, "-m", "benchmarks.server", "--latency", str(latency), "--answer", answer]
    if limit is not None:
        command += ["--kind", limit.kind, "--limit", str(limit.amount), "--header", limit.header]
        command += ["--retry-after", str(limit.retry_after_s)]
    counts = Counts()
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdin is not None
    try:
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError(f"the server did not start (exit {process.wait()})")
        yield url, counts
    finally:
        process.stdin.close()  # the server ends when its stdin ends
        vars(counts).update(json.loads(process.stdout.read() or "{}"))
        process.stdout.close()
        process.wait()


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m benchmarks.server", description=__doc__)
    parser.add_argument(
        "--latency", type=non_negative_float, default=0.5, help="seconds from a request's last byte to the answer"
    )
    parser.add_argument("--answer", default='{"score": 7, "critique": "Look again."}', help="text of every completion")
    parser.add_argument("--kind", choices=get_args(Kind), default="in_flight")
    parser.add_argument(
        "--limit", type=non_negative_float, default=math.inf, help="requests in flight, or requests per second"
    )
    parser.add_argument("--header", choices=get_args(Header), default="none")
    parser.add_argument(
        "--retry-after", type=positive_float, default=1.0, help="smallest value of the header, in seconds"
    )
    args = parser.parse_args(arguments)
    limit = Limit(args.kind, args.limit, args.header, args.retry_after)
    counts = asyncio.run(_serve(completion(args.answer), args.latency, limit))
    print(json.dumps(asdict(counts)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
