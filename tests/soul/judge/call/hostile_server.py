"""A server that answers with raw bytes: whatever a broken, hostile or misconfigured endpoint can send.

It lives in the test's own event loop. The first part of a request's path names the kind of answer, so one server plays
all kinds at once. `requests` counts what arrived of each kind.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

VERDICT = '{"critique": "Look again."}'
FORGED = '{"critique": "FORGED"}'
Play = Callable[["Connection"], Awaitable[None]]
Answer = bytes | Play


class Connection:
    """One connection, after its request has been read (unless the kind does not want to read it)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: HostileServer) -> None:
        self.reader, self.writer, self.server = reader, writer, server
        self.kind = ""
        self.headers: dict[str, str] = {}
        self.body = b""

    async def read_request(self) -> bool:
        """Read one request; False where the client has hung up."""
        try:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        line, *fields = head.split("\r\n")
        self.headers = {k.lower(): v.strip() for k, _, v in (field.partition(":") for field in fields if field)}
        self.body = await self.reader.readexactly(int(self.headers.get("content-length", 0)))
        self.kind = line.split()[1].strip("/").split("/")[0]
        self.server.requests[self.kind] += 1
        return True

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()
        self.server.sent[self.kind] += len(data)

    def reset(self) -> None:
        """Break the connection as a crash does: RST instead of FIN."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


class HostileServer:
    """Plays `kinds`: bytes are sent and the connection is closed; a coroutine function does as it likes."""

    def __init__(self, kinds: Mapping[str, Answer]) -> None:
        self.kinds = kinds
        self.requests: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()  # bytes, by kind
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def url(self, kind: str) -> str:
        return f"http://127.0.0.1:{self.port}/{kind}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(task := asyncio.current_task())
        task.add_done_callback(self._tasks.discard)
        connection = Connection(reader, writer, self)
        try:
            while await connection.read_request():
                answer = self.kinds[connection.kind]
                if isinstance(answer, bytes):
                    await connection.send(answer)
                    break
                await answer(connection)
                if writer.is_closing():
                    break
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass  # the client has hung up, which is its right
        finally:
            writer.close()

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def serving(kinds: Mapping[str, Answer]) -> AsyncIterator[HostileServer]:
    server = HostileServer(kinds)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=1024, limit=2**20)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        await server.stop()


# --- parts of answers


def completion(text: Any = VERDICT, **changes: Any) -> dict[str, Any]:
    """A chat completion as a JSON object; `changes` replaces its fields."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48}
    return {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage, **changes}


def as_body(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def http(
    body: Any = None, status: str = "200 OK", *fields: str, length: bool = True, kind: str = "application/json"
) -> bytes:
    """A whole response. `body` None is the good completion; bytes are sent as they are."""
    content = as_body(completion() if body is None else body)
    head = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", *fields]
    if length:
        head.append(f"Content-Length: {len(content)}")
    return "\r\n".join(head).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + content


def raw(head: str, body: bytes | None = None) -> bytes:
    """A response with its head as it is: `head` stands without its last line break."""
    return head.encode("utf-8", "surrogateescape") + b"\r\n\r\n" + (as_body(completion()) if body is None else body)


def chunked(*parts: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + end
