"""`FakeOpenAI`: one scripted endpoint, reachable over real HTTP or in process.

HTTP (standard library only) tests what a client really meets: sockets, timeouts, dropped connections. The in-process
transport is for tests that need neither a port nor a thread. Both share one piece of reply logic, `_respond`.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import openai

from agents.judge import ANY_KEY, Endpoint
from agents.testing.replies import Answer, ChatRequest, Reply, Script, as_function, error_answer

if TYPE_CHECKING:
    import httpx2 as httpx
else:  # the HTTP library that the installed SDK stands on: httpx2 since openai 3, httpx before
    httpx = importlib.import_module(openai.DefaultAsyncHttpxClient.__bases__[0].__module__)

IN_PROCESS_URL = "http://fake.invalid/v1"


class FakeOpenAI:
    """A chat-completions endpoint with scripted replies and faults.

    Args:
        script: what to answer: a reply, a list of replies (the last one repeats) or a function of the request. A
            function that raises is answered with 400 and kept in `errors`.
        model: the model that `GET /v1/models` lists; requests may name any other.

    Attributes:
        requests: the chat requests so far, in order of arrival.
        peak: the highest number of requests that were in flight at the same time.
        errors: exceptions of the script itself.
    """

    def __init__(self, script: Script, model: str = "fake") -> None:
        self.model = model
        self.requests: list[ChatRequest] = []
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
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True, name="FakeOpenAI").start()
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
                patience = request.extensions.get("timeout", {}).get("read")
                if patience is not None and answer.delay > patience:
                    await asyncio.sleep(patience)
                    raise httpx.ReadTimeout("the fake endpoint hangs", request=request)
                await asyncio.sleep(answer.delay)
            if answer.drop:
                raise httpx.RemoteProtocolError("Server disconnected without sending a response.", request=request)
            return httpx.Response(answer.status, headers=dict(answer.headers), content=answer.body)

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
        body = json.loads(content)
        if body.get("stream"):
            return error_answer(400, "FakeOpenAI does not stream")
        with self._lock:
            request = ChatRequest(len(self.requests), body, {name.lower(): value for name, value in headers.items()})
            self.requests.append(request)
        try:
            return self._script(request).answer(request)
        except Exception as error:  # noqa: BLE001 - a bug in a test's script must reach the test, not die in a thread
            self.errors.append(error)
            return error_answer(400, f"the script of FakeOpenAI raised {error!r}")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, fake: FakeOpenAI) -> None:
        self.fake = fake
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

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

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        super().finish()

    def _handle(self) -> None:
        fake = self.server.fake
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        with fake._counted():
            answer = fake._respond(self.command, self.path, dict(self.headers.items()), content)
            if answer.delay:
                fake._closing.wait(answer.delay)
        if answer.drop:
            self.close_connection = True
            _end(self.connection)
            return
        try:
            self.send_response(answer.status)
            for name, value in {**answer.headers, "content-length": str(len(answer.body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.body)
        except OSError:
            self.close_connection = True  # the client did not wait

    do_GET = do_POST = _handle  # noqa: N815 - the names that http.server asks for

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: tests read `requests`."""
