"""The HTTP client for an endpoint: fast, and safe against anything that a server may send.

It follows no redirects (texts and keys go only to base_url), stores no cookies, limits the size of every answer
(bounded_answer.py), and never mistakes a late or second answer on a reused connection for the answer to the next
request. The proxy of the environment (http_proxy) is used for other machines only.
"""

from __future__ import annotations

import ipaddress
import logging
from typing import Any
from urllib.parse import urlsplit

import openai

from soul.cli.redaction import RedactingFilter
from soul.judge.call.bounded_answer import ENCODING, bounded

try:
    import aiohttp
except ImportError:  # an optional dependency of the SDK
    aiohttp = None  # type: ignore[assignment]

# These loggers write full URLs, with user and password.
for _name in ("httpx", "httpx2", "openai._base_client"):
    logging.getLogger(_name).addFilter(RedactingFilter())

_KEEP_S = 60.0  # how long an unused connection stays open


def http_client(url: str, timeout_s: float, most_bytes: int) -> Any:
    """An HTTP client for the SDK.

    The SDK's aiohttp transport takes a third less CPU time for a call than its default transport, and reuses
    connections. It is used if aiohttp is installed (`pip install 'openai[aiohttp]'`).

    Args:
        url: the base URL.
        timeout_s: for each step of a request; `client.py` applies the timeout of the whole request.
        most_bytes: the size limit of an answer, before and after decompression.
    """
    new_limits = type(openai.DEFAULT_CONNECTION_LIMITS)
    settings: dict[str, Any] = {
        "timeout": timeout_s,
        "headers": {"Accept-Encoding": ENCODING},
        "event_hooks": {"response": [bounded(most_bytes)]},
        "follow_redirects": False,
        "mounts": _direct(urlsplit(url).hostname or ""),
    }
    # `concurrency` limits the connections. A smaller pool would queue calls unseen, and close reusable connections.
    # aiohttp refuses user and password in the URL together with a bearer key.
    if aiohttp is not None and urlsplit(url).username is None:
        client = openai.DefaultAioHttpClient(limits=new_limits(max_connections=0), **settings)
        for transport in (client._transport, *client._mounts.values()):
            if transport is not None:  # a mount without a transport is an address that bypasses the proxy
                transport.client = _session(transport.ssl_context)  # type: ignore[attr-defined]
        return client
    # Do not reuse connections: h11 would read surplus bytes of one answer as the answer to the next request.
    return openai.DefaultAsyncHttpxClient(limits=new_limits(max_keepalive_connections=0), **settings)


def _direct(host: str) -> dict[str, None]:
    """The host, if it is this machine, as an address that bypasses the proxy: a proxy would look on its own machine."""
    try:
        is_local = ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        is_local = host == "localhost" or host.endswith(".localhost")
    shown = f"[{host}]" if ":" in host else host
    return {f"all://{shown}": None} if is_local else {}


def _session(ssl_context: Any) -> Any:
    """A function that creates the transport's aiohttp session, to be called inside the event loop."""

    class CleanConnector(aiohttp.TCPConnector):
        """A connector that reuses a connection only if nothing has arrived on it since its last answer."""

        async def connect(self, *request: Any, **more: Any) -> aiohttp.connector.Connection:
            while True:
                connection = await super().connect(*request, **more)
                if connection.protocol is None or not connection.protocol.should_close:
                    return connection
                connection.close()

    def new_session() -> aiohttp.ClientSession:
        # 0 means no limit; None would mean aiohttp's default of 100.
        connector = CleanConnector(limit=0, keepalive_timeout=_KEEP_S, ssl=ssl_context)
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())

    return new_session
