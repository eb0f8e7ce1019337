"""One HTTP exchange with an endpoint: a request, and its completion or a typed failure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai

from soul.errors import Cause, JudgeFailure
from soul.judge.call.completion import Completion


async def exchange(client: openai.AsyncOpenAI, path: str, body: dict[str, Any]) -> Completion:
    """Send one chat completion request.

    Args:
        path: the whole URL, or what follows the base URL.

    Raises:
        JudgeFailure: the answer is too large, damaged or no completion.
        Exception: what the SDK or its transport raises; `classify` gives its cause.
    """
    # As `chat.completions.create`, which would rewrite the body by the SDK's recursive types first: 9 ms of CPU for 40
    # messages. Bytes come back: the SDK would decode them by the charset and the parser that the server picks.
    try:
        answer = await client.post(path, body=body, cast_to=bytes)
    except UnicodeError as error:  # the aiohttp transport encodes the status line's reason, whatever bytes it holds
        raise JudgeFailure("connection", f"the answer's head is no text: {error}") from None
    return Completion.from_json(answer)


def classify(error: BaseException) -> Cause | None:
    """The cause of an exception; None where it is not one of the endpoint's failures (a bug: let it raise)."""
    if isinstance(error, JudgeFailure):
        return error.cause
    if isinstance(error, openai.APITimeoutError | TimeoutError):
        return "timeout" if _late(error) else "connection"
    if isinstance(error, openai.APIConnectionError) or _from_aiohttp(error):
        return "connection"
    if not isinstance(error, openai.APIStatusError):
        return None
    status = error.status_code
    if status == 429:
        # An exhausted quota answers 429 too, but no waiting heals it.
        return "auth" if error.code == "insufficient_quota" else "rate_limit"
    if status >= 500 or status in (408, 409, 425):
        return "server_error"
    if 300 <= status < 400:
        return "not_found"  # redirects are not followed: the prompt, and perhaps the key, would go to another address
    return {401: "auth", 403: "auth", 404: "not_found"}.get(status, "bad_request")  # type: ignore[return-value]


def was_sent(error: BaseException) -> bool:
    """Whether a request that failed this way may have reached the endpoint, and cost something.

    Errors that the endpoint itself reports (4xx, 5xx) are free; so is a connection that was never made.
    """
    if isinstance(error, openai.APIStatusError):
        return False
    names = {kind.__name__ for cause in _causes(error) for kind in type(cause).__mro__}
    if any(_from_aiohttp(cause) for cause in _causes(error)):
        # What the SDK's aiohttp transport makes of it is no help: a broken connection becomes a ConnectTimeout.
        return not names & {"ClientConnectorError", "ConnectionTimeoutError", "InvalidURL"}
    return not names & {"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "LocalProtocolError"}


def words_of(error: BaseException) -> str:
    """What an exception says; of a broken connection what the transport said, for the SDK only says that it broke."""
    if isinstance(error, openai.APIStatusError) and 300 <= error.status_code < 400:
        return f"Error code: {error.status_code} - a redirect, which is not followed; is base_url right (.../v1)?"
    cause = error
    while isinstance(error, openai.APIConnectionError) and cause.__cause__ is not None and str(cause.__cause__):
        cause = cause.__cause__
    return str(cause) or "no answer in time"


def _late(error: BaseException) -> bool:
    """Whether it was time that ran out. The SDK's aiohttp transport calls every broken connection a time-out; what
    aiohttp itself called it stands further down the chain of causes."""
    cause = next(filter(_from_aiohttp, _causes(error)), None)
    return cause is None or isinstance(cause, TimeoutError)


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _from_aiohttp(error: BaseException) -> bool:
    """Whether aiohttp raised it. It is an extra, so its classes cannot be named; some reach us as they are."""
    return any(kind.__module__.partition(".")[0] == "aiohttp" for kind in type(error).__mro__)
