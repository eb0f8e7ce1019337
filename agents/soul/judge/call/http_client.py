"""The HTTP client behind an endpoint: fast, and safe against what a server may send.

It follows no redirect (texts and keys go nowhere but to base_url), keeps no cookie, bounds every answer
(bounded_answer.py), and never takes a late or second answer on a kept connection for the answer to the next question.
"""

from __future__ import annotations

import logging
from typing import Any
from urllib.parse import urlsplit

import openai

from soul.cli.redaction import RedactingFilter
from soul.judge.call.bounded_answer import ENCODING, bounded

try:
    import aiohttp
except ImportError:  # an extra of the SDK
    aiohttp = None  # type: ignore[assignment]

# Their lines hold whole URLs, with user and password.
for _name in ("httpx", "httpx2", "openai._base_client"):
    logging.getLogger(_name).addFilter(RedactingFilter())

_KEEP_S = 60.0  # how long an unused connection stays open


def http_client(url: str, timeout_s: float, most_bytes: int) -> Any:
    """A client for the SDK.

    The SDK's aiohttp transport costs a third less CPU a call than its default one, and keeps connections. It is used
    where aiohttp is installed (`pip install 'openai[aiohttp]'`).

    Args:
        url: the base URL that it is for.
        timeout_s: of each step of a request; see `line.py` for the request's own.
        most_bytes: of an answer, before and after decompression.
    """
    new_limits = type(openai.DEFAULT_CONNECTION_LIMITS)
    settings: dict[str, Any] = {
        "timeout": timeout_s,
        "headers": {"Accept-Encoding": ENCODING},
        "event_hooks": {"response": [bounded(most_bytes)]},
        "follow_redirects": False,
    }
    # The cap is `concurrency`; a smaller pool would queue calls out of sight, and close connections it could keep.
    # aiohttp refuses a URL's user and password beside a bearer key.
    if aiohttp is not None and urlsplit(url).username is None:
        client = openai.DefaultAioHttpClient(limits=new_limits(max_connections=0), **settings)
        for transport in (client._transport, *client._mounts.values()):
            if transport is not None:  # a mount without one is an address that goes past the proxy
                transport.client = _session(transport.ssl_context)  # type: ignore[attr-defined]
        return client
    # No connection is kept: h11 reads what is left over from one answer as the answer to the next request.
    return openai.DefaultAsyncHttpxClient(limits=new_limits(max_keepalive_connections=0), **settings)


def _session(ssl_context: Any) -> Any:
    """What makes the transport's aiohttp session, once its event loop runs."""

    class CleanConnector(aiohttp.TCPConnector):
        """Reuses a connection only where nothing has arrived on it since its last answer."""

        async def connect(self, *request: Any, **more: Any) -> aiohttp.connector.Connection:
            while True:
                connection = await super().connect(*request, **more)
                if connection.protocol is None or not connection.protocol.should_close:
                    return connection
                connection.close()

    def make() -> aiohttp.ClientSession:
        # aiohttp takes 0 for "no limit" and would take None for its default, 100.
        connector = CleanConnector(limit=0, keepalive_timeout=_KEEP_S, ssl=ssl_context)
        return aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())

    return make
