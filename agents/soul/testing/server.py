"""`FakeOpenAI`: one scripted endpoint, reachable over real HTTP or in process.

HTTP (standard library only) tests what a client really meets: sockets, timeouts, dropped connections. The in-process
transport is for tests that need neither a port nor a thread. Both share one piece of reply logic, `_respond`.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import openai

from soul.judge import ANY_KEY, Endpoint
from soul.testing.events import as_events
from soul.testing.replies import Answer, ChatRequest, Reply, Script, as_function, error_answer

if TYPE_CHECKING:
    import httpx2 as httpx
else:  # the HTTP library that the installed SDK stands on: httpx2 since openai 3, httpx before
    httpx = importlib.import_module(openai.DefaultAsyncHttpxClient.__bases__[0].__module__)

IN_PROCESS_URL = "http://fake.invalid/v1"
ResponseFormat = Literal["json_schema", "json_object", "text"]


@cache
def refused_url() -> str:
    """The base URL of a port on 127.0.0.1 at which nobody listens: connections are refused at once.

    The port stays bound, without a listener, until the process ends: a port that is free again may be given to the
    next server or, as its own port, to the very client that is to be refused, which then talks to itself.
    """
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    port = held.getsockname()[1]
    held.detach()
    return f"http://127.0.0.1:{port}/v1"


class FakeOpenAI:
    """A chat-completions endpoint with scripted replies and faults.

    Args:
        script: what to answer: a reply, a list of replies (the last one repeats) or a function of the request. A
            function that raises is answered with 400 and kept in `errors`.
        model: the model that `GET /v1/models` lists; requests may name any other.
        supports: the types of `response_format` that are known besides "text", which asks for nothing. A request with
            another one is answered with 400, costs no reply of the script and is found in `refused`.

    Attributes:
        requests: the chat requests so far, in order of arrival, without those in `refused`.
        refused: the chat requests whose `response_format` is not supported, with numbers of their own.
        peak: the highest number of requests that were in flight at the same time.
        errors: exceptions of the script itself.
    """

    def __init__(
        self,
        script: Script,
        model: str = "fake",
        supports: Sequence[ResponseFormat] = ("json_schema", "json_object"),
    ) -> None:
        unknown = [name for name in supports if name not in get_args(ResponseFormat)]
        if unknown:
            raise ValueError(f"supports={supports!r}: {unknown[0]!r} is none of {get_args(ResponseFormat)}")
        self.model = model
        self.supports: tuple[str, ...] = tuple(dict.fromkeys((*supports, "text")))
        self.requests: list[ChatRequest] = []
        self.refused: list[ChatRequest] = []
        self.peak = 0
        self.errors: list[Exception] = []
        self._script: Callable[[ChatRequest], Reply] = as_function(script)
        self._lock = threading.Lock()
        self._in_flight = 0
        self._closing = threading.Event()
        self._server: _Server | None = None

    # --- over HTTP

    def __enter__(self) -> Self:
        self._closing.clear()
        self._server = _Server(self)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True, name="FakeOpenAI").start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()  # wakes what hangs
        if self._server is not None:
            self._server.close()
            self._server = None

    @property
    def url(self) -> str:
        """The base URL: on 127.0.0.1 inside the `with` block, else the one of the in-process transport."""
        return f"http://127.0.0.1:{self._server.server_port}/v1" if self._server else IN_PROCESS_URL

    # --- in process

    def transport(self) -> httpx.MockTransport:
        """The endpoint as a transport for an `AsyncClient` of the SDK's HTTP library; its timeouts hold as usual."""

        async def handle(request: httpx.Request) -> httpx.Response:
            with self._counted():
                answer = self._respond(request.method, request.url.path, dict(request.headers), request.content)
                await _pause(answer.delay, request)
            if answer.drop:
                raise httpx.RemoteProtocolError("Server disconnected without sending a response.", request=request)
            headers = dict(answer.headers)
            if answer.spread or answer.is_stream:
                return httpx.Response(answer.status, headers=headers, stream=_Body(self, answer, request))
            return httpx.Response(answer.status, headers=headers, content=answer.body)

        return httpx.MockTransport(handle)

    def client(self, timeout: float = 60.0) -> openai.AsyncOpenAI:
        """An OpenAI client on the in-process transport, without retries of its own."""
        http = httpx.AsyncClient(transport=self.transport(), timeout=timeout)
        return openai.AsyncOpenAI(
            api_key=ANY_KEY, base_url=IN_PROCESS_URL, http_client=http, timeout=timeout, max_retries=0
        )

    def endpoint(self, **settings: Any) -> Endpoint:
        """An `Endpoint` that points here and wants no key; `settings` override its fields."""
        return Endpoint(**{"model": self.model, "base_url": self.url, "api_key_env": None, **settings})

    # --- the reply logic

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self._in_flight += 1
            self.peak = max(self.peak, self._in_flight)
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= 1

    def _respond(self, method: str, path: str, headers: Mapping[str, str], content: bytes) -> Answer:
        if (method, path) == ("GET", "/v1/models"):
            models = [{"id": self.model, "object": "model", "created": 0, "owned_by": "fake"}]
            return Answer(body=json.dumps({"object": "list", "data": models}).encode())
        if (method, path) != ("POST", "/v1/chat/completions"):
            return error_answer(404, f"FakeOpenAI has no {method} {path}")
        try:
            body = json.loads(content)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return error_answer(400, "the body of the request is not a JSON object")
        accepted = _wanted_format(body) in self.supports
        with self._lock:
            record = self.requests if accepted else self.refused
            request = ChatRequest(len(record), body, {name.lower(): value for name, value in headers.items()})
            record.append(request)
        if not accepted:
            known = " or ".join(repr(name) for name in self.supports)
            message = f"'response_format.type' must be {known}"
            return error_answer(400, message, "invalid_value", param="response_format.type")
        try:
            answer = self._script(request).answer(request)
            return as_events(answer, request) if body.get("stream") else answer
        except Exception as error:  # noqa: BLE001 - a bug in a test's script must reach the test, not die in a thread
            self.errors.append(error)
            return error_answer(400, f"the script of FakeOpenAI raised {error!r}")


def _wanted_format(body: Mapping[str, Any]) -> Any:
    """The type of `response_format` that a request asks for; None where the field makes no sense."""
    wanted = body.get("response_format") or {"type": "text"}
    return wanted.get("type") if isinstance(wanted, dict) else None


async def _pause(seconds: float, request: httpx.Request) -> None:
    """Silence of the endpoint, for as long as the client's read timeout bears it."""
    patience = request.extensions.get("timeout", {}).get("read")
    if patience is not None and seconds > patience:
        await asyncio.sleep(patience)
        raise httpx.ReadTimeout("the fake endpoint hangs", request=request)
    await asyncio.sleep(seconds)


class _Body(httpx.AsyncByteStream):
    """A body in process that arrives piece by piece."""

    def __init__(self, fake: FakeOpenAI, answer: Answer, request: httpx.Request) -> None:
        self._pieces = self._arrive(fake, answer, request)

    def __aiter__(self) -> AsyncGenerator[bytes]:
        return self._pieces

    async def aclose(self) -> None:
        await self._pieces.aclose()  # a client that reads no further is no longer in flight

    @staticmethod
    async def _arrive(fake: FakeOpenAI, answer: Answer, request: httpx.Request) -> AsyncGenerator[bytes]:
        *first, last = answer.pieces
        step = answer.spread / (len(first) + 1)
        with fake._counted():
            for piece in first:
                await _pause(step, request)
                yield piece
            await _pause(step, request)
        yield last


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024  # at 256 some of 300 simultaneous connections wait a second for their second try

    def __init__(self, fake: FakeOpenAI) -> None:
        self.fake = fake
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that goes away is no news
            super().handle_error(request, client_address)

    def close(self) -> None:
        """Stop listening and end kept-alive connections: whoever calls from now on finds nobody."""
        self.shutdown()
        self.server_close()
        for connection in list(self.connections):
            _end(connection)


def _end(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the client was faster


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept alive, as by real endpoints
    disable_nagle_algorithm = True
    server: _Server

    def _handle(self) -> None:
        fake = self.server.fake
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            with fake._counted():
                path = self.path.partition("?")[0]
                answer = fake._respond(self.command, path, dict(self.headers.items()), content)
                if answer.delay:
                    fake._closing.wait(answer.delay)
                last = b"" if answer.drop else self._send_but_last(answer)
            if answer.drop:
                self.close_connection = True
                _end(self.connection)
            else:
                self.wfile.write(last)
        except OSError:
            self.close_connection = True  # the client did not wait

    do_GET = do_POST = _handle  # noqa: N815 - the names that http.server asks for

    def _send_but_last(self, answer: Answer) -> bytes:
        """Send all but the last bytes, and give those: a client that has them may ask anew, so nothing is in flight."""
        pieces = answer.pieces
        chunked = answer.is_stream and self.request_version == "HTTP/1.1"  # as real endpoints stream
        if chunked:
            pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces]
            pieces[-1] += b"0\r\n\r\n"
        framing = ("transfer-encoding", "chunked") if chunked else ("content-length", str(len(answer.body)))
        self.send_response(answer.status)
        for name, value in (*answer.headers.items(), framing):
            self.send_header(name, value)
        self.end_headers()
        for piece in pieces[:-1]:
            self._pause(answer.spread / len(pieces))
            self.wfile.write(piece)
        self._pause(answer.spread / len(pieces))
        return pieces[-1]

    def _pause(self, seconds: float) -> None:
        if seconds and self.server.fake._closing.wait(seconds):
            raise ConnectionAbortedError("the endpoint closes in the middle of an answer")

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: tests read `requests`."""
