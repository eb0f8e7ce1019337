"""`FakeOpenAI`: a scripted endpoint, reachable over real HTTP or in process.

Use HTTP (standard library only) to test sockets, timeouts and dropped connections, and the in-process connection for
tests that need neither a port nor a thread. Both share the reply logic in `_respond`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self

import aiohttp

from soul.judge import Endpoint
from soul.judge.call.http import Connection, Response
from soul.testing.replies import Answer, ChatRequest, Reply, Script, as_function, error_answer

IN_PROCESS_URL = "http://fake.invalid/v1"
ResponseFormat = Literal["json_schema", "json_object", "text"]


@cache
def refused_url() -> str:
    """The base URL of a port on 127.0.0.1 without a listener: connections are refused at once.

    The port stays bound until the process ends. A free port could be given to the next server, or even to the client
    that should be refused, which would then connect to itself.
    """
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    bound.detach()
    return f"http://127.0.0.1:{port}/v1"


class FakeOpenAI:
    """A chat-completions endpoint with scripted replies and faults.

    Args:
        script: what to answer: a reply, a list of replies (the last one repeats) or a function of the request. If the
            function raises, the request is answered with 400 and the exception is added to `errors`.
        model: the model of `endpoint`; requests may name any model.
        supports: the supported types of `response_format`, besides "text". A request with another type is answered with
            400, uses up no reply of the script and is added to `refused`.
        port: where it listens on 127.0.0.1 inside the `with` block; 0: the system chooses.

    Attributes:
        requests: the chat requests so far, in order of arrival, without those in `refused`.
        refused: the chat requests whose `response_format` is not supported; they are numbered separately.
        peak: the highest number of requests in flight at the same time.
        errors: exceptions raised by the script.
    """

    def __init__(
        self,
        script: Script,
        model: str = "fake",
        supports: Sequence[ResponseFormat] = ("json_schema", "json_object"),
        port: int = 0,
    ) -> None:
        self.model = model
        self.supports: tuple[str, ...] = tuple(dict.fromkeys((*supports, "text")))
        self.requests: list[ChatRequest] = []
        self.refused: list[ChatRequest] = []
        self.peak = 0
        self.errors: list[Exception] = []
        self._script: Callable[[ChatRequest], Reply] = as_function(script)
        self._lock = threading.Lock()
        self._in_flight = 0
        self._port = port
        self._closing = threading.Event()
        self._server: _Server | None = None

    # --- over HTTP

    def __enter__(self) -> Self:
        self._closing.clear()
        self._server = _Server(self, self._port)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True, name="FakeOpenAI").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()  # ends the delays of requests in flight
        if self._server is not None:
            self._server.close()
            self._server = None

    @property
    def url(self) -> str:
        """The base URL: on 127.0.0.1 inside the `with` block, else that of the in-process connection."""
        return f"http://127.0.0.1:{self._server.server_port}/v1" if self._server else IN_PROCESS_URL

    # --- in process

    def connection(self) -> Connection:
        """A way to this fake without sockets, for `Judge.connect`."""
        return _InProcess(self)

    def endpoint(self, **settings: Any) -> Endpoint:
        """An `Endpoint` for this fake, which needs no key; `settings` override its fields."""
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
        if (method, path) != ("POST", "/v1/chat/completions"):
            return error_answer(404, f"FakeOpenAI has no {method} {path}")
        try:
            body = json.loads(content)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return error_answer(400, "the body of the request is not a JSON object")
        wanted = (body.get("response_format") or {"type": "text"}).get("type")
        accepted = wanted in self.supports
        with self._lock:
            record = self.requests if accepted else self.refused
            request = ChatRequest(len(record), body, {name.lower(): value for name, value in headers.items()})
            record.append(request)
        if not accepted:
            known = " or ".join(repr(name) for name in self.supports)
            return error_answer(400, f"'response_format.type' must be {known}", "invalid_value")
        try:
            return self._script(request).answer(request)
        except Exception as error:  # noqa: BLE001 - report a bug in the script to the test instead of losing the thread
            self.errors.append(error)
            return error_answer(400, f"the script of FakeOpenAI raised {error!r}")


class _InProcess:
    """A connection to a fake of this process."""

    def __init__(self, fake: FakeOpenAI) -> None:
        self._fake = fake

    async def post(self, body: dict[str, Any]) -> Response:
        content = json.dumps(body, ensure_ascii=False).encode()
        with self._fake._counted():
            answer = self._fake._respond("POST", "/v1/chat/completions", {}, content)
            await asyncio.sleep(answer.delay)
        if answer.drop:
            raise aiohttp.ServerDisconnectedError
        return Response(answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.body)

    async def close(self) -> None:
        """Nothing: there are no sockets."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024  # with 256, some of 300 simultaneous connections have to wait a second and try again

    def __init__(self, fake: FakeOpenAI, port: int) -> None:
        self.fake = fake
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a client that disconnects is not an error
            super().handle_error(request, client_address)

    def close(self) -> None:
        """Stop listening and close kept-alive connections, so that later requests fail."""
        self.shutdown()
        self.server_close()
        for connection in list(self.connections):
            _end(connection)


def _end(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # the client has closed it already


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections alive, as real endpoints do
    disable_nagle_algorithm = True
    server: _Server

    def _handle(self) -> None:
        fake = self.server.fake
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        try:
            with fake._counted():
                path = self.path.partition("?")[0]
                answer = fake._respond(self.command, path, dict(self.headers.items()), content)
                fake._closing.wait(answer.delay)
                if answer.drop:
                    self.close_connection = True
                    _end(self.connection)
                    return
                self.send_response(answer.status)
                for name, value in (*answer.headers.items(), ("content-length", str(len(answer.body)))):
                    self.send_header(name, value)
                self.end_headers()
            # A client that has the body may send its next request, so this one no longer counts as in flight.
            self.wfile.write(answer.body)
        except OSError:
            self.close_connection = True  # the client has disconnected

    do_GET = do_POST = _handle  # noqa: N815 - http.server prescribes these names

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: tests can read `requests`."""
