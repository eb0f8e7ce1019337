"""Send requests to one endpoint, with retries, a deadline, rate limits and accounting.

A 429 does not count as a failed attempt, because the endpoint has not accepted the request. The call goes back to the
request gate, which knows when the endpoint may be asked again, and waits there until its deadline. After other
transient errors (5xx, timeouts, broken connections) the request is sent again with jittered backoff, or after
Retry-After, up to `max_attempts` times. Permanent errors fail at once. The SDK's own retries are off, because nested
retry loops multiply. Failures are typed and never contain the API key.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import openai
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential

from soul.errors import TRANSIENT, Cause, JudgeFailure, MissingKey
from soul.judge.call.completion import Tokens
from soul.judge.call.endpoint import MODES, MOST_TOKENS, Endpoint, StructuredMode
from soul.judge.call.exchange import classify, exchange, message_of, was_sent
from soul.judge.call.retry_after import retry_after
from soul.judge.call.usage import Usage
from soul.judge.throttle.circuit_breaker import OK
from soul.judge.throttle.local_gate import RequestGate
from soul.judge.throttle.wait_notice import FailureNotice, Reason, WaitNotice, calls
from soul.message import Message

logger = logging.getLogger(__name__)
T = TypeVar("T")
_BACKOFF = wait_random_exponential(multiplier=0.5, max=20.0)
_GUESSED_COMPLETION = 300.0  # expected completion tokens before the first answer
_LIMIT = "max_completion_tokens"
# What an endpoint answers that knows no such limit, or whose context or own limit is shorter.
_REFUSES_LIMIT = re.compile(r"max_(completion_|new_)?tokens|context length|output tokens", re.IGNORECASE)


def _wait(state: RetryCallState) -> float:
    requested = retry_after(state.outcome.exception() if state.outcome else None)
    return _BACKOFF(state) if requested is None else requested


@dataclass
class Deadline:
    """The deadline of one call, including all retries and re-asks.

    The clock starts with the first request, because time spent in the queue is not the endpoint's fault.

    Attributes:
        failed: the cause of the endpoint's last answer to this call, if that was a failure. It is the cause of the call
            when the deadline passes before another answer.
    """

    seconds: float
    failed: Cause | None = None
    _end: float | None = None

    @property
    def runs(self) -> bool:
        """Whether the clock has started."""
        return self._end is not None

    def left(self) -> float:
        """The seconds left; starts the clock."""
        now = time.monotonic()
        if self._end is None:
            self._end = now + self.seconds
        return self._end - now

    def passed(self, state: RetryCallState) -> bool:
        """Whether there is no time for another attempt after the upcoming sleep (a stop condition for tenacity)."""
        return self.left() <= state.upcoming_sleep


class EndpointClient:
    """The client for one endpoint, shared by all its callers. Each caller passes its own counters.

    The SDK's client is created with the first request, so that a role that is never used needs no key.

    Attributes:
        mode: how structured answers are asked for (judge.py).
        settled: whether the endpoint is known to accept this mode.
        claimed: wrap waits for an answer that another process is fetching in this (judge.py).
        takes_limit: whether our limit on the tokens of an answer is sent.
    """

    def __init__(self, endpoint: Endpoint, gate: RequestGate, client: openai.AsyncOpenAI | None = None) -> None:
        self.endpoint, self.gate = endpoint, gate
        self.mode: StructuredMode = MODES[0] if endpoint.structured == "auto" else endpoint.structured
        self.settled = endpoint.structured != "auto"
        self._client = client
        self._url: str | None = None
        self._completion_tokens = _GUESSED_COMPLETION
        self.claimed = WaitNotice(self._explain_claimed)
        self._backing_off = 0  # calls that wait to be sent again
        self._failures = FailureNotice(endpoint.name)
        self.takes_limit = True

    @property
    def client(self) -> openai.AsyncOpenAI:
        """The SDK's client, created on first use."""
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
        accept_any: bool = False,
        seed: int | None = None,
        most_tokens: int | None = MOST_TOKENS,
    ) -> T:
        """Request one chat completion, with retries after transient errors.

        Args:
            read: turns the answer's text into the result. An exception that it raises is the outcome of the request.
            accept_any: also accept an empty, truncated or refusing answer. A policy's answer is judged as it is.
            seed: for this request; None: the endpoint's, if it has one.
            most_tokens: of the answer, if the endpoint's settings have no limit; None: no limit.

        Raises:
            JudgeFailure: the cause says why; the detail names model and address.
        """
        try:
            self.client  # noqa: B018 - create it here, so that a missing key fails this call
        except MissingKey as error:
            raise JudgeFailure("auth", str(error)) from error
        body = self._body(messages, response_format, seed, most_tokens)
        retrying = AsyncRetrying(
            stop=lambda state: stop_after_attempt(self.endpoint.max_attempts)(state) or deadline.passed(state),
            wait=_wait,
            before_sleep=lambda state: self._note_failure(state, deadline),
            sleep=self._sleep,
            retry=retry_if_exception(lambda error: classify(error) in TRANSIENT - {"rate_limit"}),
            reraise=True,
        )
        try:
            async for attempt in retrying:
                with attempt:
                    usage.retries += attempt.retry_state.attempt_number > 1
                    return await self._until_taken(body, usage, read, deadline, accept_any)
        except Exception as error:
            cause = classify(error)
            if cause is None:
                raise
            if cause == "timeout" and deadline.failed is not None and deadline.left() <= 0:
                detail = f"the call's deadline of {deadline.seconds:g} s passed while it was sent again"
                raise JudgeFailure(deadline.failed, self._detail(JudgeFailure(deadline.failed, detail))) from None
            raise JudgeFailure(cause, self._detail(error)) from None
        raise AssertionError("tenacity ends with a result or an exception")

    def _note_failure(self, state: RetryCallState, deadline: Deadline) -> None:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, Exception):
            deadline.failed = classify(error)
            attempts = f"attempt {state.attempt_number} of {self.endpoint.max_attempts}"
            pause = state.upcoming_sleep
            logger.debug(
                "%s failed (%s), retrying in %.1f s: %s", attempts, deadline.failed, pause, self._detail(error)
            )

    async def _sleep(self, seconds: float) -> None:
        self._backing_off += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self._backing_off -= 1

    def _explain_claimed(self, waiting: int, left_s: Sequence[float]) -> Reason:
        text = f"{calls(waiting)} for answers of {self.endpoint.name} that another process is fetching"
        return Reason("claimed", f"{text}, {max(left_s):.0f} s at most")

    def _path(self) -> str:
        """The full URL, joined once: the SDK spends a tenth of its CPU time per call on joining path and base URL."""
        if self._url is None:
            base = str(self.client.base_url)
            self._url = "/chat/completions" if "?" in base else f"{base.rstrip('/')}/chat/completions"
        return self._url

    async def _until_taken(
        self, body: dict[str, Any], usage: Usage, read: Callable[[str], T], deadline: Deadline, accept_any: bool
    ) -> T:
        """One attempt, in which the request is sent again until the endpoint stops answering 429.

        If the endpoint refuses our limit on the answer's tokens, the request is sent without it. Most do so because
        their context or their own limit is shorter, which then bounds the answer.

        Raises:
            JudgeFailure: `rate_limit` at the deadline, or at once if the endpoint asks to wait beyond the deadline.
        """
        while True:
            try:
                return await self._attempt(body, usage, read, deadline, accept_any)
            except openai.APIStatusError as error:
                if self._refuses_limit(body, error):
                    del body[_LIMIT]
                    self.takes_limit = "context length" in message_of(error)  # a shorter prompt may leave room
                    usage.retries += 1
                    continue
                if classify(error) != "rate_limit":
                    raise
                deadline.failed = "rate_limit"
                requested, left = retry_after(error) or 0.0, deadline.left()
                if left <= requested:
                    deadline_s = f"deadline_s={self.endpoint.deadline_s:g} leaves {max(0.0, left):.0f} s"
                    detail = f"{message_of(error)}; it asks to wait for {requested:.0f} s, but {deadline_s}"
                    raise JudgeFailure("rate_limit", detail) from error
                usage.retries += 1

    async def _admitted(self, estimated: float, deadline: Deadline) -> int:
        """Wait at the gate. A call that has been sent before waits until its deadline at most."""
        if not deadline.runs:
            return await self.gate.enter(estimated, patience_s=deadline.seconds)
        within = asyncio.timeout(max(0.0, deadline.left()))
        try:
            async with within:
                return await self.gate.enter(estimated, again=True)
        except TimeoutError:
            if not within.expired():
                raise
            detail = f"the call's deadline of {deadline.seconds:g} s passed while it waited to be sent again"
            raise JudgeFailure(deadline.failed or "timeout", detail) from None

    async def _attempt(
        self, body: dict[str, Any], usage: Usage, read: Callable[[str], T], deadline: Deadline, accept_any: bool
    ) -> T:
        characters = sum(len(m["content"]) for m in body["messages"])
        prompt = characters / 4  # a rough estimate: English has about four characters per token
        estimated = prompt + self._completion_tokens
        queued = time.perf_counter()
        waves = await self._admitted(estimated, deadline)
        start = time.perf_counter()
        usage.queued_s += start - queued
        usage.requests += 1
        tokens: Tokens | None = None
        outcome: str | None = None
        used, cost, detail, retry_after_s = estimated, 0.0, "", None
        try:
            # The SDK's timeout applies to each read, so an answer that trickles in would never time out.
            async with asyncio.timeout(min(self.endpoint.timeout_s, max(0.0, deadline.left()))):
                completion = await exchange(self.client, self._path(), body)
            deadline.failed = None
            tokens = completion.tokens(characters, body.get(_LIMIT))
            expected = (prompt, self._completion_tokens)
            cost = usage.answered(self.endpoint, tokens, time.perf_counter() - start, expected)
            if tokens.prompt_tokens is not None and tokens.completion_tokens is not None:
                used = float(tokens.prompt_tokens + tokens.completion_tokens)
                self._completion_tokens += 0.1 * (tokens.completion_tokens - self._completion_tokens)
            usage.cut_off += accept_any and completion.cut_off
            result = read(completion.text(accept_any))
            outcome = OK
            return result
        except Exception as error:
            outcome, detail, retry_after_s = classify(error), self._detail(error), retry_after(error)
            if outcome in TRANSIENT and outcome != "rate_limit":  # the gate logs waits after a 429
                self._failures.add(outcome, detail, self._backing_off)
            if outcome == "bad_request" and (self._still_detecting(body) or self._refuses_limit(body, error)):
                outcome = None  # the endpoint is healthy; it just does not support this mode or this limit
            if tokens is None and was_sent(error):
                cost = usage.unanswered(self.endpoint, prompt)
            raise
        except asyncio.CancelledError:  # the caller gave up, but the endpoint may still answer and charge for it
            if tokens is None:
                cost = usage.unanswered(self.endpoint, prompt)
            raise
        finally:
            usage.seconds += time.perf_counter() - start
            self.gate.leave(outcome, estimated, used, cost, detail, waves, retry_after_s)

    def _still_detecting(self, body: dict[str, Any]) -> bool:
        """Whether this request tried a mode of structured answers that the endpoint is not known to support."""
        form = (body.get("response_format") or {}).get("type", "prompt")
        return form != "prompt" and not (self.settled and form == self.mode)

    def _refuses_limit(self, body: dict[str, Any], error: Exception) -> bool:
        """True if this answer refuses a limit that the user did not set."""
        ours = _LIMIT in body and self.endpoint.max_output_tokens is None
        return ours and classify(error) == "bad_request" and bool(_REFUSES_LIMIT.search(message_of(error)))

    def _body(
        self,
        messages: Sequence[Message],
        response_format: dict[str, Any] | None,
        seed: int | None,
        most_tokens: int | None,
    ) -> dict[str, Any]:
        endpoint = self.endpoint
        ours = most_tokens if self.takes_limit else None
        optional = {
            "reasoning_effort": endpoint.reasoning_effort,
            "temperature": endpoint.temperature,
            "top_p": endpoint.top_p,
            "seed": endpoint.seed if seed is None else seed,
            _LIMIT: endpoint.max_output_tokens or ours,
            "response_format": response_format,
        }
        chosen = {key: value for key, value in optional.items() if value is not None}
        return {"model": endpoint.model, "messages": [_sendable(message) for message in messages], **chosen}

    def _detail(self, error: Exception) -> str:
        """One line for traces and logs. The API key is removed: some endpoints repeat a wrong key in their answer."""
        text = error.detail if isinstance(error, JudgeFailure) else message_of(error)
        if isinstance(error, JudgeFailure) and text.startswith(self.endpoint.name):
            return text
        key = self._client.api_key if self._client else ""
        return f"{self.endpoint.name}: {self.endpoint.without_secrets(text, key)}"


def _sendable(message: Message) -> Message:
    """The message with unpaired surrogates as U+FFFD: a policy may write them, and UTF-8 cannot encode them."""
    content = message["content"]
    try:
        content.encode()
    except UnicodeEncodeError:
        whole = content.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return {"role": message["role"], "content": whole}
    return message
