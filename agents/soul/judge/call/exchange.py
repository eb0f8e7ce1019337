"""One HTTP exchange with an endpoint, the cause of its failure, and how long it asks to wait."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import openai

from soul.errors import Cause, JudgeFailure
from soul.judge.call.completion import Completion

# A 403 that is about one prompt (OpenRouter's moderation), and not about the key.
_MODERATED = re.compile(r"moderation|\b(?:input|prompt|content|message|request)s?\b[^.]{0,40}\bflagged", re.IGNORECASE)

MAX_RETRY_AFTER_S = 60.0
HALF_OF_ITS_RESOLUTION_S = 0.5  # a date is rounded up to whole seconds: half a second too late on average
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")


async def exchange(client: openai.AsyncOpenAI, path: str, body: dict[str, Any]) -> Completion:
    """Send one chat completion request.

    Args:
        path: the full URL, or the path after the base URL.

    Raises:
        JudgeFailure: the answer is too large, damaged or not a completion, or reports an error with status 200.
        Exception: the SDK or its transport failed; `classify` gives the cause.
    """
    # This replaces `chat.completions.create`, which first transforms the body by the SDK's recursive types: 9 ms of CPU
    # time for 40 messages. It asks for bytes, because otherwise the server's charset and content type pick the decoder.
    try:
        answer = await client.post(path, body=body, cast_to=bytes)
    except UnicodeError as error:  # the aiohttp transport encodes the reason in the status line, even invalid bytes
        raise JudgeFailure("connection", f"the answer's status line is not text: {error}") from None
    return Completion.from_json(answer)


def classify(error: BaseException) -> Cause | None:
    """The cause of an exception; None if it is not a failure of the endpoint but a bug, which must be raised."""
    if isinstance(error, JudgeFailure):
        return error.cause
    if isinstance(error, openai.APITimeoutError | TimeoutError):
        return "timeout" if _is_timeout(error) else "connection"
    if isinstance(error, openai.APIConnectionError) or _from_aiohttp(error):
        return "connection"
    if not isinstance(error, openai.APIStatusError):
        return None
    status = error.status_code
    if status == 429:
        # An exhausted quota is answered with 429 too, but waiting does not help.
        return "auth" if error.code == "insufficient_quota" else "rate_limit"
    if status >= 500 or status in (408, 409, 425):
        return "server_error"
    if 300 <= status < 400:
        return "not_found"  # a redirect is not followed: it would send the prompt, and perhaps the key, elsewhere
    if status == 403 and _MODERATED.search(str(error)):
        return "refusal"
    causes: dict[int, Cause] = {401: "auth", 402: "auth", 403: "auth", 404: "not_found"}  # 402: no credit is left
    return causes.get(status, "bad_request")


def retry_after(error: BaseException | None) -> float | None:
    """The seconds that the endpoint asks to wait, at most a minute; None if it names no valid time.

    Retry-After is a number of seconds or an HTTP date; retry-after-ms (OpenAI and Azure) is a number of milliseconds.
    """
    if not isinstance(error, openai.APIStatusError):
        return None
    headers = error.response.headers
    for name, unit in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name, "")
        if _NUMBER.fullmatch(value):
            return min(MAX_RETRY_AFTER_S, float(value) * unit)
    header = headers.get("retry-after", "")
    try:
        at = parsedate_to_datetime(header)
        left = at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)
    except (ValueError, OverflowError):
        return None  # neither a number nor a valid date
    return min(MAX_RETRY_AFTER_S, max(0.0, left.total_seconds() - HALF_OF_ITS_RESOLUTION_S))


def was_sent(error: BaseException) -> bool:
    """Whether a request with this error may have reached the endpoint, and may be charged.

    Errors that the endpoint itself reports (4xx, 5xx, or with status 200) are free, and so is a connection that was
    never made.
    """
    if isinstance(error, openai.APIStatusError) or (isinstance(error, JudgeFailure) and error.cause == "server_error"):
        return False
    names = {kind.__name__ for cause in _causes(error) for kind in type(cause).__mro__}
    if any(_from_aiohttp(cause) for cause in _causes(error)):
        # Ignore the exception type of the SDK's aiohttp transport: it turns a broken connection into a ConnectTimeout.
        return not names & {"ClientConnectorError", "ConnectionTimeoutError", "InvalidURL"}
    return not names & {"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "LocalProtocolError"}


def message_of(error: BaseException) -> str:
    """The message of an exception; for a broken connection that of the transport, because the SDK gives no reason."""
    if isinstance(error, openai.APIStatusError) and 300 <= error.status_code < 400:
        return f"Error code: {error.status_code} - redirects are not followed; is base_url right (.../v1)?"
    cause = error
    while isinstance(error, openai.APIConnectionError) and cause.__cause__ is not None and str(cause.__cause__):
        cause = cause.__cause__
    return str(cause) or "no answer in time"


def _is_timeout(error: BaseException) -> bool:
    """Whether time ran out. The SDK's aiohttp transport reports every broken connection as a timeout, so look for
    aiohttp's own exception in the chain of causes."""
    cause = next(filter(_from_aiohttp, _causes(error)), None)
    return cause is None or isinstance(cause, TimeoutError)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _from_aiohttp(error: BaseException) -> bool:
    """Whether aiohttp raised it. aiohttp is optional, so its classes cannot be imported here."""
    return any(kind.__module__.partition(".")[0] == "aiohttp" for kind in type(error).__mro__)
