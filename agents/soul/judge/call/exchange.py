"""One exchange with an endpoint, the cause of its failure, and how long it asks to wait."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp

from soul.errors import Cause, JudgeFailure
from soul.judge.call.completion import Completion
from soul.judge.call.http import Connection, Response

# A 403 that is about one prompt (OpenRouter's moderation), and not about the key.
_MODERATED = re.compile(r"moderation|\b(?:input|prompt|content|message|request)s?\b[^.]{0,40}\bflagged", re.IGNORECASE)

MAX_RETRY_AFTER_S = 60.0
HALF_OF_ITS_RESOLUTION_S = 0.5  # a date is rounded up to whole seconds: half a second too late on average
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,15})?")
_SHOWN = 2000  # characters of an error's body
# aiohttp's errors for a request that no server has received.
_UNSENT = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.InvalidURL)


class BadStatus(Exception):
    """An answer whose status is an error."""

    def __init__(self, response: Response) -> None:
        error = _error_object(response.body)
        text = error.get("message") or response.body.decode(errors="replace")
        if 300 <= response.status < 400:
            text = "redirects are not followed; is base_url right (.../v1)?"
        super().__init__(f"Error code: {response.status} - {' '.join(str(text).split())[:_SHOWN]}")
        self.status, self.headers, self.code = response.status, response.headers, error.get("code")


def _error_object(body: bytes) -> dict[str, Any]:
    """The error object of a body; empty if it has none."""
    try:
        error = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    error = error.get("error", error) if isinstance(error, dict) else None
    return error if isinstance(error, dict) else {}


async def exchange(connection: Connection, body: dict[str, Any]) -> Completion:
    """Send one chat completion request.

    Raises:
        BadStatus: the endpoint answered with an error.
        JudgeFailure: the answer is too large, damaged or not a completion, or reports an error with status 200.
        Exception: the connection failed; `classify` gives the cause.
    """
    response = await connection.post(body)
    if not 200 <= response.status < 300:
        raise BadStatus(response)
    return Completion.from_json(response.body)


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
    status = error.status
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
    """The seconds that the endpoint asks to wait; None if it names no valid time."""
    return asked_wait(error.headers) if isinstance(error, BadStatus) else None


def asked_wait(headers: Mapping[str, str]) -> float | None:
    """The seconds that an answer's headers ask to wait, at most a minute; None if they name no valid time.

    Retry-After is a number of seconds or an HTTP date; retry-after-ms (OpenAI and Azure) is a number of milliseconds.
    """
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
