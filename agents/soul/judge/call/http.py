"""One exchange with an endpoint over HTTP: send a request, read the completion, or name the cause of the failure.

It follows no redirects (texts and keys go only to base_url), stores no cookies, and never takes a late or second answer
on a reused connection for the answer to the next request. The proxy of the environment (http_proxy) is used for other
machines only. A malformed part of a completion counts as missing, so that paid tokens are counted even if the text is
unusable. Plain aiohttp takes half of the CPU time that the OpenAI SDK takes for a call.
"""

import asyncio
import ipaddress
import json
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies

import aiohttp
from yarl import URL

from soul.errors import BadSettings, Cause, JudgeFailure

MAX_RETRY_AFTER_S = 60.0
HALF_OF_ITS_RESOLUTION_S = 0.5  # a date is rounded up to whole seconds: half a second too late on average
_KEEP_S = 60.0  # how long an unused connection stays open
_SHOWN = 2000  # characters of an error's body
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")
# Variables that the OpenAI SDK sends as headers.
_HEADERS = {"OPENAI_ORG_ID": "OpenAI-Organization", "OPENAI_PROJECT_ID": "OpenAI-Project"}
# Proxies that aiohttp can use.
_PROXY = re.compile(r"https?://([^\s/@]*@)?(\[[0-9a-fA-F:.]+\]|[^\s/:@]+)(:[0-9]{1,5})?/?")
# aiohttp's errors for a request that no server has received.
_UNSENT = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.InvalidURL)
# A 403 that is about one prompt (OpenRouter's moderation), and not about the key.
_MODERATED = re.compile(r"moderation|\b(?:input|prompt|content|message|request)s?\b[^.]{0,40}\bflagged", re.IGNORECASE)
# 402: no credit is left. 409 and 425 pass by themselves. All other 4xx are `bad_request`.
_CAUSES: Mapping[int, Cause] = {
    **dict.fromkeys((401, 402, 403), "auth"),
    404: "not_found",
    **dict.fromkeys((408, 409, 425), "server_error"),
    429: "rate_limit",
}


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

    The key is sent as a bearer key, unless the base URL has a user. The query of the base URL is kept.
    """

    def __init__(self, base_url: str, key: str) -> None:
        parts = urlsplit(base_url)
        self._url = URL(parts._replace(path=f"{parts.path.rstrip('/')}/chat/completions").geturl())
        self._through_proxy = not is_this_machine(parts.hostname or "")
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        self._headers |= {name: os.environ[variable] for variable, name in _HEADERS.items() if variable in os.environ}
        _check_environment(parts.scheme if self._through_proxy else "")
        if parts.username is None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def post(self, body: dict[str, Any]) -> Response:
        """Send one request."""
        # A policy may write unpaired surrogates, which UTF-8 cannot encode: they are sent as "?".
        data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
        async with self._open().post(self._url, data=data, allow_redirects=False) as response:
            return Response(response.status, response.headers, await response.read())

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self._loop = loop
            self._session = aiohttp.ClientSession(
                connector=_CleanConnector(limit=0, keepalive_timeout=_KEEP_S),  # `concurrency` is the limit
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
                trust_env=self._through_proxy,
                timeout=aiohttp.ClientTimeout(None),  # `client.py` has that of the whole request
            )
        return self._session


def _check_environment(scheme: str) -> None:
    """Raise BadSettings for a variable that no request could be sent with.

    Args:
        scheme: of the address, if a proxy may be used.
    """
    for variable in _HEADERS:
        if not re.fullmatch("[ -~]*", value := os.environ.get(variable, "")):
            raise BadSettings(
                f"{variable}={value!r} cannot be sent as a header: set it to plain characters, or unset it."
            )
    certificates = os.environ.get("SSL_CERT_FILE")
    if scheme == "https" and certificates and not os.path.isfile(certificates):
        raise BadSettings(f"SSL_CERT_FILE={certificates} is not a file. Correct it, or unset it.")
    proxy = getproxies().get(scheme, "")
    if proxy and not _PROXY.fullmatch(proxy):
        shown = proxy.rpartition("@")[2]  # without a password
        raise BadSettings(f"{scheme}_proxy={shown!r} is not an HTTP proxy: write http://host:port, or unset it.")


class _CleanConnector(aiohttp.TCPConnector):
    """A connector that reuses a connection only if nothing has arrived on it since its last answer."""

    async def connect(self, *request: Any, **more: Any) -> aiohttp.connector.Connection:
        while True:
            connection = await super().connect(*request, **more)
            if connection.protocol is None or not connection.protocol.should_close:
                return connection
            connection.close()


def is_this_machine(host: str) -> bool:
    """True for the loopback addresses: a proxy would look for the server on its own machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"


# --- a completion


class Tokens(NamedTuple):
    """The tokens that a request used, as the endpoint reports them; None: unknown."""

    prompt: int | None = None
    completion: int | None = None
    cached: int = 0  # part of the prompt, from the provider's cache
    reasoning: int = 0  # part of the completion


class Completion(NamedTuple):
    """The tokens of a chat completion, and its first choice as it came."""

    tokens: Tokens
    choice: Any

    @property
    def cut_off(self) -> bool:
        """True if the answer was cut off at the token limit."""
        return bool(_at(self.choice, "finish_reason") == "length")

    def text(self, accept_any: bool) -> str:
        """The text of the answer; with `accept_any`, even if it is empty, truncated or a refusal."""
        if not isinstance(self.choice, dict):
            raise JudgeFailure("invalid", "the endpoint's answer has no choices")
        finish = self.choice.get("finish_reason")
        if finish == "error":  # the text, if there is any, is a part of an answer
            raise JudgeFailure("server_error", f"the model broke off: {_reason(self.choice.get('error'))}")
        # Separate reasoning fields (`reasoning_content`, `reasoning`) are not part of the answer.
        content, refusal = _text(_at(self.choice, "message", "content")), _text(_at(self.choice, "message", "refusal"))
        if accept_any:
            return content or refusal
        if refusal:
            raise JudgeFailure("refusal", refusal[:200])
        if self.cut_off:
            raise JudgeFailure("truncated", "the answer hit the token limit")
        if finish == "content_filter":
            raise JudgeFailure("refusal", "the endpoint's content filter cut the answer")
        if not content.strip():
            raise JudgeFailure("empty", "the endpoint answered without text")
        return content

    def first_token(self) -> str:
        """The candidates for the first token of the answer: a JSON object, token -> log-probability."""
        tokens = _at(self.choice, "logprobs", "content")
        listed = _at(tokens[0], "top_logprobs") if isinstance(tokens, list) and tokens else None
        found = {str(_at(one, "token")): _at(one, "logprob") for one in listed or ()}
        if not found or not all(type(value) in (int, float) and value <= 0.01 for value in found.values()):  # not NaN
            raise JudgeFailure("invalid", "the endpoint gives no log-probabilities (top_logprobs) of its first token")
        return json.dumps(found)


def read_completion(body: bytes) -> Completion:
    """Read a response body."""
    try:
        answer = json.loads(body.decode("utf-8-sig"))
    except (ValueError, RecursionError) as damage:
        problem = f"the endpoint's answer is not a chat completion ({damage}); is base_url right (.../v1)?"
        raise JudgeFailure("invalid", problem) from None
    choices, error = _at(answer, "choices"), _at(answer, "error")
    if error and not choices:
        raise JudgeFailure("server_error", f"the endpoint reports an error: {_reason(error)}")
    usage = _at(answer, "usage")
    tokens = Tokens(
        _count(_at(usage, "prompt_tokens")),
        _count(_at(usage, "completion_tokens")),
        _count(_at(usage, "prompt_tokens_details", "cached_tokens")) or 0,
        _count(_at(usage, "completion_tokens_details", "reasoning_tokens")) or 0,
    )
    return Completion(tokens, choices[0] if isinstance(choices, list) and choices else None)


def _at(value: Any, *path: str) -> Any:
    """The value at this path in nested objects; None if anything on the way is missing or not an object."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _count(value: Any) -> int | None:
    """A token count; None if it is missing, negative or not an integer (true, "12" and 12.0 are not)."""
    return value if type(value) is int and value >= 0 else None


def _text(content: Any) -> str:
    """The text of a message, which may come in parts; parts with reasoning are not text."""
    if isinstance(content, list):
        parts = (part for part in content if _at(part, "type") == "text")
        return "".join(str(part.get("text") or "") for part in parts)
    return content if isinstance(content, str) else ""


def _reason(error: Any) -> str:
    message = error.get("message") if isinstance(error, dict) else error
    return " ".join(str(message or "no reason is given").split())[:200]


# --- failures


class BadStatus(Exception):
    """An answer whose status is an error."""

    def __init__(self, response: Response) -> None:
        try:
            whole = json.loads(response.body)
        except (ValueError, RecursionError):
            whole = None
        error = _at(whole, "error") or whole
        text = _at(error, "message") or response.body.decode(errors="replace")
        if 300 <= response.status < 400:
            text = "redirects are not followed; is base_url right (.../v1)?"
        super().__init__(f"Error code: {response.status} - {' '.join(str(text).split())[:_SHOWN]}")
        self.status, self.headers, self.code = response.status, response.headers, _at(error, "code")


async def exchange(connection: Connection, body: dict[str, Any]) -> Completion:
    """Send one chat completion request."""
    response = await connection.post(body)
    if not 200 <= response.status < 300:
        raise BadStatus(response)
    return read_completion(response.body)


def classify(error: BaseException) -> Cause | None:
    """The cause of an exception; None if it is not a failure of the endpoint but a bug, which must be raised."""
    if isinstance(error, JudgeFailure):
        return error.cause
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, aiohttp.ClientError | ConnectionError):
        return "connection"
    if not isinstance(error, BadStatus):
        return None
    if error.status == 429 and error.code == "insufficient_quota":  # waiting does not help
        return "auth"
    if error.status == 403 and _MODERATED.search(str(error)):
        return "refusal"
    if error.status >= 500:
        return "server_error"
    if 300 <= error.status < 400:
        return "not_found"  # a redirect is not followed: it would send the prompt, and perhaps the key, elsewhere
    return _CAUSES.get(error.status, "bad_request")


def retry_after(error: BaseException) -> float | None:
    """The seconds that an answer's headers ask to wait, at most a minute; None if they name no valid time.

    Retry-After is a number of seconds or an HTTP date; retry-after-ms (OpenAI and Azure) is a number of milliseconds.
    """
    headers = error.headers if isinstance(error, BadStatus) else {}
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name, "")
        if _NUMBER.fullmatch(value):
            return min(MAX_RETRY_AFTER_S, float(value) * unit)
    try:
        at = parsedate_to_datetime(headers.get("retry-after", ""))
        left = at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)
    except (ValueError, OverflowError):
        return None  # neither a number nor a valid date
    return min(MAX_RETRY_AFTER_S, max(0.0, left.total_seconds() - HALF_OF_ITS_RESOLUTION_S))


def was_sent(error: BaseException) -> bool:
    """True if a request with this error may have reached the endpoint, and may be charged.

    Errors that the endpoint itself reports (4xx, 5xx, or with status 200) are free, and so is a connection that was
    never made.
    """
    reported = isinstance(error, JudgeFailure) and error.cause == "server_error"
    return not reported and not isinstance(error, (BadStatus, *_UNSENT))


def message_of(error: BaseException) -> str:
    """The message of an exception."""
    return str(error) or "no answer in time"
