"""One request after another to one endpoint: retries, deadline, limits, accounting. Everything that talks HTTP is here.

Transient errors (429, 5xx, time-outs, broken connections) are sent again with jitter, or after what Retry-After says;
what cannot heal fails at once. The SDK's own retries are off: two retry loops multiply. Failures are typed, and never
repeat the key.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import openai
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential

from agents.errors import TRANSIENT, Cause, JudgeFailure, MissingKey
from agents.judge.breaker import OK
from agents.judge.completion import Completion
from agents.judge.endpoint import MODES, Endpoint, StructuredMode
from agents.judge.gate import Gate
from agents.judge.usage import Usage
from agents.judge.waiting import Reason, WaitNotice, calls
from agents.message import Message

T = TypeVar("T")
MAX_RETRY_AFTER_S = 60.0
_BACKOFF = wait_random_exponential(multiplier=0.5, max=20.0)
_GUESSED_COMPLETION = 300.0  # tokens, before the first answer tells better


def classify(error: BaseException) -> Cause | None:
    """The cause of an exception; None where it is not one of the endpoint's failures (a bug: let it raise)."""
    if isinstance(error, JudgeFailure):
        return error.cause
    if isinstance(error, openai.APITimeoutError | TimeoutError):
        return "timeout" if _late(error) else "connection"
    if isinstance(error, openai.APIConnectionError):
        return "connection"
    if isinstance(error, openai.APIResponseValidationError | json.JSONDecodeError):
        return "invalid"
    if not isinstance(error, openai.APIStatusError):
        return None
    status = error.status_code
    if status == 429:
        # An exhausted quota answers 429 too, but no waiting heals it.
        return "auth" if error.code == "insufficient_quota" else "rate_limit"
    if status >= 500 or status in (408, 409):
        return "server_error"
    return {401: "auth", 403: "auth", 404: "not_found"}.get(status, "bad_request")  # type: ignore[return-value]


def _words(error: BaseException) -> str:
    """What an exception says; of a broken connection what the transport said, for the SDK only says that it broke."""
    cause = error
    while isinstance(error, openai.APIConnectionError) and cause.__cause__ is not None and str(cause.__cause__):
        cause = cause.__cause__
    return str(cause) or "no answer in time"


def _late(error: BaseException) -> bool:
    """Whether it was time that ran out. The SDK's aiohttp transport calls every broken connection a time-out; what
    aiohttp itself called it stands further down the chain of causes."""
    cause = error.__cause__
    while cause is not None and not type(cause).__module__.startswith("aiohttp"):
        cause = cause.__cause__
    return cause is None or isinstance(cause, TimeoutError)


def retry_after(error: BaseException | None) -> float | None:
    """The seconds that the endpoint asks to wait (Retry-After: a number or an HTTP date); None where it does not."""
    if not isinstance(error, openai.APIStatusError):
        return None
    header = error.response.headers.get("retry-after", "")
    if re.fullmatch(r"\d+(\.\d+)?", header):
        return min(MAX_RETRY_AFTER_S, float(header))
    try:
        at = parsedate_to_datetime(header)
    except ValueError:
        return None  # neither a number nor a date
    left = at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)
    return min(MAX_RETRY_AFTER_S, max(0.0, left.total_seconds()))


def _wait(state: RetryCallState) -> float:
    asked = retry_after(state.outcome.exception() if state.outcome else None)
    return _BACKOFF(state) if asked is None else asked


@dataclass
class Deadline:
    """The end of one call with all its retries and re-asks. The clock starts with its first request: time in the queue
    belongs to the run's limits, not to the endpoint."""

    seconds: float
    _end: float | None = None

    def left(self) -> float:
        """Seconds left; starts the clock."""
        now = time.monotonic()
        if self._end is None:
            self._end = now + self.seconds
        return self._end - now

    def passed(self, state: RetryCallState) -> bool:
        """Tenacity's question, before a wait: is there no time for another attempt?"""
        return self.left() <= state.upcoming_sleep


class Line:
    """The connection to one endpoint. Shared by everyone who asks it; counters are the caller's.

    The client is made with the first request, so that a role which nobody asks needs no key.

    Attributes:
        mode: how structured answers are asked for; `settled` once an answer has come that way (judge.py).
        claimed: around waits for an answer that another process is asking for (judge.py).
    """

    def __init__(self, endpoint: Endpoint, gate: Gate, client: openai.AsyncOpenAI | None = None) -> None:
        self.endpoint, self.gate = endpoint, gate
        self.mode: StructuredMode = MODES[0] if endpoint.structured == "auto" else endpoint.structured
        self.settled = endpoint.structured != "auto"
        self._client = client
        self._url: str | None = None
        self._completion_tokens = _GUESSED_COMPLETION
        self._failed: Cause | None = None  # why the last request that will be sent again failed
        self.claimed = WaitNotice(self._explain_claimed)
        self._retried = WaitNotice(self._explain_retried)

    @property
    def client(self) -> openai.AsyncOpenAI:
        """The SDK's client.

        Raises:
            MissingKey: the key's variable is not set.
        """
        if self._client is None:
            self._client = self.endpoint.client()
        return self._client

    async def close(self) -> None:
        """Close the connections, if there are any."""
        if self._client is not None:
            await self._client.close()

    async def request(
        self,
        messages: Sequence[Message],
        usage: Usage,
        read: Callable[[str], T],
        deadline: Deadline,
        response_format: dict[str, Any] | None = None,
        as_it_is: bool = False,
        seed: int | None = None,
    ) -> T:
        """One chat completion, with retries of what is transient.

        Args:
            read: makes the result from the answer's text; what it raises counts as the request's outcome.
            as_it_is: an empty, cut-off or refusing answer is an answer too: a policy's, which is judged.
            seed: of this request; None: the endpoint's, if it has one.

        Raises:
            JudgeFailure: typed; the detail names model and address.
        """
        try:
            self.client  # noqa: B018 - made here, so that a missing key is this call's failure
        except MissingKey as error:
            raise JudgeFailure("auth", str(error)) from error
        body = self._body(messages, response_format, seed)
        retrying = AsyncRetrying(
            stop=lambda state: stop_after_attempt(self.endpoint.max_attempts)(state) or deadline.passed(state),
            wait=_wait,
            before_sleep=self._note_cause,
            sleep=self._sleep,
            retry=retry_if_exception(lambda error: classify(error) in TRANSIENT),
            reraise=True,
        )
        try:
            async for attempt in retrying:
                with attempt:
                    usage.retries += attempt.retry_state.attempt_number > 1
                    return await self._attempt(body, usage, read, deadline, as_it_is)
        except Exception as error:
            cause = classify(error)
            if cause is None:
                raise
            raise JudgeFailure(cause, self._detail(error)) from None
        raise AssertionError("tenacity ends with a result or an exception")

    def _note_cause(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        self._failed = classify(error) if error is not None else None

    async def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        with self._retried.waiting(lambda: end - time.monotonic()):
            await asyncio.sleep(seconds)

    def _explain_retried(self, waiting: int, left_s: Sequence[float]) -> Reason:
        text = f"{calls(waiting)} to be sent again to {self.endpoint.name}, {max(left_s):.0f} s at most"
        return Reason("retry", f"{text}; the last failure: {self._failed}")

    def _explain_claimed(self, waiting: int, left_s: Sequence[float]) -> Reason:
        text = f"{calls(waiting)} for answers of {self.endpoint.name} that another process is asking for"
        return Reason("claimed", f"{text}, {max(left_s):.0f} s at most")

    def _path(self) -> str:
        """The whole URL: the SDK takes a tenth of its CPU for a call to join a path to its base URL."""
        if self._url is None:
            base = str(self.client.base_url)
            self._url = "/chat/completions" if "?" in base else f"{base.rstrip('/')}/chat/completions"
        return self._url

    async def _attempt(
        self, body: dict[str, Any], usage: Usage, read: Callable[[str], T], deadline: Deadline, as_it_is: bool
    ) -> T:
        estimated = sum(len(m["content"]) for m in body["messages"]) / 4 + self._completion_tokens
        queued = time.perf_counter()
        await self.gate.enter(estimated)
        start = time.perf_counter()
        usage.queued_s += start - queued
        usage.requests += 1
        outcome: str | None = None
        used, cost, detail = estimated, 0.0, ""
        try:
            # The SDK's time-out is one for each read: an answer that trickles in would never meet it.
            async with asyncio.timeout(min(self.endpoint.timeout_s, max(0.0, deadline.left()))):
                # As `chat.completions.create`, which would rewrite the body by the SDK's recursive types first: 9 ms of
                # CPU for 40 messages.
                answer = await self.client.post(self._path(), body=body, cast_to=object)
            completion = Completion.of(answer)
            tokens = completion.usage
            cost = usage.answered(self.endpoint, tokens, time.perf_counter() - start)
            if tokens is not None:
                used = float((tokens.prompt_tokens or 0) + (tokens.completion_tokens or 0))
                self._completion_tokens += 0.1 * ((tokens.completion_tokens or 0) - self._completion_tokens)
            usage.cut_off += as_it_is and completion.cut_off
            result = read(completion.text(as_it_is))
            outcome = OK
            return result
        except Exception as error:
            outcome, detail = classify(error), self._detail(error)
            if outcome == "bad_request" and self._still_detecting(body):
                outcome = None  # the endpoint is well, it only does not know this form
            raise
        finally:
            usage.seconds += time.perf_counter() - start
            self.gate.leave(outcome, estimated, used, cost, detail)

    def _still_detecting(self, body: dict[str, Any]) -> bool:
        """Whether this request tried a form of structured answers that the endpoint is not known to take."""
        form = (body.get("response_format") or {}).get("type", "prompt")
        return form != "prompt" and not (self.settled and form == self.mode)

    def _body(
        self, messages: Sequence[Message], response_format: dict[str, Any] | None, seed: int | None
    ) -> dict[str, Any]:
        endpoint = self.endpoint
        optional = {
            "reasoning_effort": endpoint.reasoning_effort,
            "temperature": endpoint.temperature,
            "top_p": endpoint.top_p,
            "seed": endpoint.seed if seed is None else seed,
            "max_completion_tokens": endpoint.max_output_tokens,
            "response_format": response_format,
        }
        chosen = {key: value for key, value in optional.items() if value is not None}
        return {"model": endpoint.model, "messages": [_sendable(message) for message in messages], **chosen}

    def _detail(self, error: Exception) -> str:
        """One line for traces and logs. Endpoints repeat a wrong key in their answer: it goes."""
        text = error.detail if isinstance(error, JudgeFailure) else _words(error)
        if isinstance(error, JudgeFailure) and text.startswith(self.endpoint.name):
            return text
        key = self._client.api_key if self._client else ""
        text = text.replace(key, "***") if key else text
        return f"{self.endpoint.name}: {text}"


def _sendable(message: Message) -> Message:
    """A policy may write half a surrogate pair, which no request can carry: it goes as U+FFFD."""
    content = message["content"]
    try:
        content.encode()
    except UnicodeEncodeError:
        whole = content.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return {"role": message["role"], "content": whole}
    return message
