"""The connections to one endpoint: send a request's body, and read at most so many bytes of the answer.

It follows no redirects (texts and keys go only to base_url), stores no cookies, and never takes a late or second answer
on a reused connection for the answer to the next request. The proxy of the environment (http_proxy) is used for other
machines only. Plain aiohttp takes a third of the CPU time that the OpenAI SDK takes for a call.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from soul.errors import JudgeFailure

_KEEP_S = 60.0  # how long an unused connection stays open
_ERROR_BYTES = 65_536  # how much of an error's body is read
# Variables that the OpenAI SDK sends as headers; OPENAI_CUSTOM_HEADERS has one header per line.
_HEADERS = {"OPENAI_ORG_ID": "OpenAI-Organization", "OPENAI_PROJECT_ID": "OpenAI-Project"}


class Response(NamedTuple):
    """An answer of an endpoint."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection(Protocol):
    """A way to an endpoint. `soul.testing.FakeOpenAI` has one without sockets."""

    async def post(self, body: dict[str, Any]) -> Response: ...

    async def close(self) -> None: ...


class HttpConnection:
    """The HTTP connections to one endpoint. They belong to the event loop that uses them.

    Args:
        base_url: the base URL, with user and password if it has them; its query is kept.
        key: sent as a bearer key, unless the URL has a user.
        most_bytes: the size limit of an answer.
    """

    def __init__(self, base_url: str, key: str, most_bytes: int) -> None:
        parts = urlsplit(base_url)
        self._url = URL(parts._replace(path=f"{parts.path.rstrip('/')}/chat/completions").geturl())
        self._proxy = _proxy(parts.scheme, parts.hostname or "")
        self._most_bytes = most_bytes
        self._headers = CIMultiDict({"Content-Type": "application/json", "Accept-Encoding": "identity"})
        for variable, name in _HEADERS.items():
            if value := os.environ.get(variable):
                self._headers[name] = value
        if parts.username is None:
            self._headers["Authorization"] = f"Bearer {key}"
        for line in os.environ.get("OPENAI_CUSTOM_HEADERS", "").splitlines():
            name, colon, value = line.partition(":")
            if colon:
                self._headers[name.strip()] = value.strip()
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def post(self, body: dict[str, Any]) -> Response:
        """Send one request.

        Raises:
            JudgeFailure: the answer is too large, or compressed.
            aiohttp.ClientError: the connection failed, or what came is not HTTP.
        """
        data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        async with self._open().post(self._url, data=data, proxy=self._proxy, allow_redirects=False) as response:
            return Response(response.status, response.headers, await self._body(response))

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            connector = _CleanConnector(limit=0, keepalive_timeout=_KEEP_S)  # `concurrency` is the limit
            self._session, self._loop = (
                aiohttp.ClientSession(
                    connector=connector,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    headers=self._headers,
                    auto_decompress=False,  # a few kilobytes of gzip can expand to gigabytes
                    timeout=aiohttp.ClientTimeout(None),  # `client.py` has that of the whole request
                ),
                loop,
            )
        return self._session

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        is_error = response.status >= 300
        most = _ERROR_BYTES if is_error else self._most_bytes
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("", "identity") and not is_error:
            raise JudgeFailure("bad_request", f"the answer is encoded ({encoding[:40]!r}), which nobody asked for")
        whole = bytearray()
        try:
            async for part in response.content.iter_any():
                whole += part
                if len(whole) > most:
                    response.close()
                    if is_error:
                        return bytes(whole[:most])
                    raise JudgeFailure("invalid", f"the answer is larger than {most / 1e6:g} MB")
        except aiohttp.ClientError:
            if not is_error:  # the status of an error is enough
                raise
        return bytes(whole)


class _CleanConnector(aiohttp.TCPConnector):
    """A connector that reuses a connection only if nothing has arrived on it since its last answer."""

    async def connect(self, *request: Any, **more: Any) -> aiohttp.connector.Connection:
        while True:
            connection = await super().connect(*request, **more)
            if connection.protocol is None or not connection.protocol.should_close:
                return connection
            connection.close()


def _proxy(scheme: str, host: str) -> str | None:
    """The proxy for this host; None for this machine, because a proxy would look on its own machine."""
    try:
        is_local = ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        is_local = host == "localhost" or host.endswith(".localhost")
    if is_local or proxy_bypass(host):
        return None
    proxies = getproxies()
    return proxies.get(scheme) or proxies.get("all")
