"""A chat-completions endpoint with a fixed latency and very low CPU use, on which benchmarks measure clients.

    python -m benchmarks.fixed_latency_server --latency 0.5       # prints its base URL; ends when its stdin ends

Standard library only, in its own process. Every request gets the same completion, `latency` seconds after its last byte
has arrived. It supports only the part of HTTP/1.1 that clients of a JSON endpoint use: Content-Length and keep-alive.
(`soul.testing.FakeOpenAI` is for tests: it can misbehave, and uses a thread per connection.)
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from soul.cli.arguments import non_negative_float
from soul.cli.error_border import Parser, reports_errors

ROOT = Path(__file__).resolve().parents[1]
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"
_BACKLOG = 4096  # a benchmark opens all its connections at once


def completion(answer: str) -> bytes:
    """The complete HTTP response: a completion with this text and its usage."""
    message: dict[str, Any] = {"role": "assistant", "content": answer, "refusal": None, "annotations": []}
    body = json.dumps(
        {
            "id": "chatcmpl-fixed",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "fixed",
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": 400,
                "completion_tokens": 60,
                "total_tokens": 460,
                "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
            },
        }
    ).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


class _Messages(asyncio.Protocol):
    """A connection that only detects the ends of messages; server and self-test both use it."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._whole = 0  # length of the current message; 0 until its head has arrived

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

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
            self.message()

    def message(self) -> None:
        """Called when a whole message has arrived."""
        raise NotImplementedError


class _Answering(_Messages):
    def __init__(self, answer: bytes, latency: float) -> None:
        super().__init__()
        self._answer, self._latency = answer, latency
        self._loop = asyncio.get_running_loop()

    def message(self) -> None:
        if self._latency:
            self._loop.call_later(self._latency, self._send)
        else:
            self._send()

    def _send(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(self._answer)


class _Asking(_Messages):
    """One connection of the self-test: sends the next request as soon as the last one is answered."""

    def __init__(self, request: bytes, times: int) -> None:
        super().__init__()
        self._request, self._left = request, times
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(self._request)

    def message(self) -> None:
        self._left -= 1
        if self._left:
            self.transport.write(self._request)
        elif not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the server closed the connection"))


async def serve(protocol: Callable[[], asyncio.Protocol]) -> None:
    """Serve on a free port of 127.0.0.1 until stdin ends, so that the server does not outlive its parent."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, "127.0.0.1", 0, backlog=_BACKLOG)
    over = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), over.set)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await over.wait()
    server.close()


@contextmanager
def server_process(module: str, *options: str, at_end: Callable[[str], None] | None = None) -> Iterator[str]:
    """Run a server in its own process; yields its base URL. `at_end` gets the rest of its output."""
    command = [sys.executable, "-m", module, *options]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdin is not None
    try:
        url = process.stdout.readline().strip()
        if not url:
            raise RuntimeError(f"{module} did not start (exit {process.wait()})")
        yield url
    finally:
        process.stdin.close()  # the server ends when its stdin ends
        output = process.stdout.read()
        process.stdout.close()
        process.wait()
        if at_end:
            at_end(output)


def served(answer: str, latency: float) -> AbstractContextManager[str]:
    """The server in its own process; yields its base URL."""
    return server_process("benchmarks.fixed_latency_server", "--latency", str(latency), "--answer", answer)


async def _ask_all(url: str, requests: int, connections: int, body_bytes: int) -> float:
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {host}\r\ncontent-length: {body_bytes}\r\n\r\n"
    request = head.encode() + b"x" * body_bytes
    loop = asyncio.get_running_loop()
    start = time.perf_counter()
    asking = [
        (await loop.create_connection(lambda: _Asking(request, requests // connections), host, int(port)))[1]
        for _ in range(connections)
    ]
    await asyncio.gather(*(one.done for one in asking))
    seconds = time.perf_counter() - start
    for one in asking:
        one.transport.close()
    return requests // connections * connections / seconds


def maximum_rate(answer: str, requests: int = 20_000, connections: int = 64, body_bytes: int = 1500) -> float:
    """Requests per second that the server answers without latency to a minimal client: the best of three runs."""
    with served(answer, 0.0) as url:
        return max(asyncio.run(_ask_all(url, requests, min(connections, requests), body_bytes)) for _ in range(3))


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m benchmarks.fixed_latency_server", description=__doc__)
    parser.add_argument(
        "--latency", type=non_negative_float, default=0.5, help="seconds from a request's last byte to the answer"
    )
    parser.add_argument("--answer", default='{"score": 7, "critique": "Look again."}', help="text of every completion")
    args = parser.parse_args(arguments)
    response = completion(args.answer)
    asyncio.run(serve(lambda: _Answering(response, args.latency)))


if __name__ == "__main__":
    sys.exit(main())
