"""`FakeOpenAI`: a scripted endpoint, reachable over real HTTP or in process.

Use HTTP to test sockets, timeouts and dropped connections, and the in-process connection for tests that need neither a
port nor a thread. Both share the reply logic in `_respond`.
"""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal, Self, TypeVar

import aiohttp
from aiohttp import web

from soul.judge import Endpoint
from soul.judge.call.http import Connection, Response
from soul.testing.replies import Answer, ChatRequest, Reply, Script, as_function, error_answer

IN_PROCESS_URL = "http://fake.invalid/v1"
ResponseFormat = Literal["json_schema", "json_object", "text"]
ResultT = TypeVar("ResultT")


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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._runner: web.AppRunner | None = None

    # --- over HTTP

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="FakeOpenAI").start()
        self._runner = self._in_thread(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None and self._runner is not None
        self._in_thread(self._stop(self._runner))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._runner = None

    def _in_thread(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start(self) -> web.AppRunner:
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.01)  # 0 would wait without end
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self._port, backlog=1024).start()
        return runner

    async def _stop(self, runner: web.AppRunner) -> None:
        await runner.cleanup()
        rest = asyncio.all_tasks() - {asyncio.current_task()}  # requests in flight
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        content, headers = await request.read(), dict(request.headers)
        with self._counted():
            # In a thread, because a script may wait.
            answer = await asyncio.to_thread(self._respond, request.method, request.path, headers, content)
            await asyncio.sleep(answer.delay)
        if answer.drop and request.transport is not None:
            request.transport.abort()
        return web.Response(status=answer.status, body=answer.body, headers=answer.headers)

    @property
    def url(self) -> str:
        """The base URL: on 127.0.0.1 inside the `with` block, else that of the in-process connection."""
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1" if self._runner else IN_PROCESS_URL

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
        content = json.dumps(body, ensure_ascii=False).encode(errors="replace")
        with self._fake._counted():
            answer = self._fake._respond("POST", "/v1/chat/completions", {}, content)
            await asyncio.sleep(answer.delay)
        if answer.drop:
            raise aiohttp.ServerDisconnectedError
        return Response(answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.body)

    async def close(self) -> None:
        """Nothing: there are no sockets."""
