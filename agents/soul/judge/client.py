"""Send requests to one endpoint, with retries, a deadline, limits, accounting and the cache.

A 429 does not count as a failed attempt, because the endpoint has not accepted the request. The call goes back to the
limits, which know when the endpoint may be asked again, and waits there until its deadline. After other transient
errors (5xx, timeouts, broken connections) the request is sent again with jittered backoff, or after Retry-After, up to
`max_attempts` times. Permanent errors fail at once. Failures are typed and never contain the API key.

`Completions` is what a judge needs of it. A training worker has another implementation, which sends each request
to the run's judge actor (`ditto.judging.actor`); so a request and its answer are plain data.
"""

import asyncio
import logging
import os
import random
import re
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from soul.errors import CONTENT, TRANSIENT, Cause, JudgeFailure, MissingKey
from soul.judge.cache import Cache, Source
from soul.judge.call import structured
from soul.judge.call.endpoint import MODES, MOST_TOKENS, Endpoint, StructuredMode
from soul.judge.call.http import Connection, Tokens, classify, exchange, message_of, retry_after, was_sent
from soul.judge.call.usage import Usage
from soul.judge.limits import OK, SHORT_S, Budget, Limits
from soul.message import Message

logger = logging.getLogger(__name__)
_GUESSED_COMPLETION = 300.0  # expected completion tokens before the first answer
_LIMIT = "max_completion_tokens"
CANDIDATES = 20  # for a token with their log-probabilities: the most that OpenAI and vLLM give
# What an endpoint answers that knows no such limit, or whose context or own limit is shorter.
_REFUSES_LIMIT = re.compile(r"max_(completion_|new_)?tokens|context length|output tokens", re.IGNORECASE)


def backoff_s(attempt: int) -> float:
    """The seconds to wait after this many failed attempts: at random, so that calls do not come back together."""
    return random.uniform(0.0, min(20.0, 0.5 * 2**attempt))


@dataclass(frozen=True)
class Request:
    """A question to a model."""

    messages: tuple[Message, ...]
    # the JSON object that the answer must be; None: a text. The messages are then one of the system, whose text the
    # form may extend, and one of the user.
    form: structured.Form | None = None
    key: bytes | None = None  # the answer's key in the cache; None: it is sampled anew
    fresh: bool = False  # ask although there is an answer in the cache, because that one is of no use
    reask: int = 0  # how often the caller has asked before
    # also accept an empty, truncated or refusing answer. A policy's answer is judged as it is.
    accept_any: bool = False
    seed: int | None = None  # for this request; None: the endpoint's, if it has one
    most_tokens: int | None = MOST_TOKENS  # of the answer, if the endpoint's settings have no limit; None: no limit
    # answer with the first token's candidates instead: a JSON object, token -> log-probability
    first_token: bool = False


class Completed(NamedTuple):
    """The text of an answer, and where it comes from."""

    text: str
    source: Source


class Completions(Protocol):
    """The receiver of a judge's requests."""

    @property
    def endpoint(self) -> Endpoint: ...

    async def complete(self, request: Request, usage: Usage) -> Completed:
        """The answer to a request, or a JudgeFailure; what it costs is added to `usage`."""
        ...

    async def close(self) -> None: ...


class EndpointClient:
    """The client for one endpoint, shared by all its callers in this process. Each caller passes its own counters.

    The connection is created with the first request, so that a role that is never used needs no key.

    Attributes:
        mode: how structured answers are asked for.
        settled: whether the endpoint is known to accept this mode.
        takes_limit: whether our limit on the tokens of an answer is sent.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        limits: Limits | None = None,
        budget: Budget | None = None,
        cache: Cache | None = None,
        connection: Connection | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.limits, self.budget, self.cache = limits or Limits(endpoint), budget or Budget(), cache
        self.mode: StructuredMode = MODES[0] if endpoint.structured == "auto" else endpoint.structured
        self.settled = endpoint.structured != "auto"
        self.takes_limit = True
        self._connection = connection
        self._completion_tokens = _GUESSED_COMPLETION

    @property
    def connection(self) -> Connection:
        """The way to the endpoint, created on first use."""
        if self._connection is None:
            self._connection = self.endpoint.connection()
        return self._connection

    async def close(self) -> None:
        """Close the connections and the cache, if there are any."""
        if self._connection is not None:
            await self._connection.close()
        if self.cache is not None:
            self.cache.close()

    async def complete(self, request: Request, usage: Usage) -> Completed:
        """The answer to a request (see `Completions`)."""
        if request.key is None or self.cache is None:
            return Completed(await self._fetch(request, usage), "endpoint")
        fetch = partial(self._fetch, request, usage)
        return Completed(*await self.cache.once(request.key, request.reask, request.fresh, fetch))

    async def _fetch(self, request: Request, usage: Usage) -> str:
        """Ask the endpoint; for a structured answer in the best mode that it supports.

        The first answers tell which mode that is: an endpoint without `json_schema` answers it with 400.
        """
        if request.form is None:
            body = self._body(request, request.messages, None)
            if request.first_token:
                body |= {"logprobs": True, "top_logprobs": CANDIDATES, _LIMIT: 1}
            return await self._retried(body, usage, request.accept_any)
        refusal: JudgeFailure | None = None
        system, question = request.messages
        for mode in MODES[MODES.index(self.mode) :]:
            if self.settled and mode != self.mode:
                continue
            instructions = structured.instructions_with_schema(system["content"], request.form, mode)
            messages: tuple[Message, ...] = ({"role": "system", "content": instructions}, question)
            body = self._body(request, messages, structured.response_format(request.form, mode))
            try:
                text = await self._retried(body, usage, request.accept_any)
            except JudgeFailure as failure:
                if failure.cause == "bad_request" and (not self.settled or self.mode != mode):
                    refusal = refusal or failure
                    logger.debug("%s does not accept %s: trying the next mode", self.endpoint.name, mode)
                    continue
                if failure.cause in CONTENT - {"refusal"}:  # a moderation refuses before the mode is looked at
                    self.mode, self.settled = mode, True  # the mode was accepted; only the answer is unusable
                raise
            self.mode, self.settled = mode, True
            return text
        assert refusal is not None
        raise refusal  # every mode was refused, so the mode is not the problem

    async def _retried(self, body: dict[str, Any], usage: Usage, accept_any: bool) -> str:
        """The text of one chat completion, asked for again after transient errors.

        If the endpoint refuses our limit on the answer's tokens, the request is sent without it. Most do so because
        their context or their own limit is shorter, which then bounds the answer.
        """
        try:
            self.connection  # noqa: B018 - create it here, so that a missing key fails this call
        except MissingKey as error:
            raise JudgeFailure("auth", str(error)) from error
        clock = asyncio.get_running_loop().time
        ends: float | None = None  # the first request starts the clock: the queue is not the endpoint's fault
        failed: Cause | None = None  # the cause of the last answer
        attempt = 1
        while True:
            # A rough estimate: English has about four characters per token.
            prompt = sum(len(message["content"]) for message in body["messages"]) / 4
            queued = time.perf_counter()
            waves = await self._admitted(prompt + self._completion_tokens, ends, failed)
            usage.queued_s += time.perf_counter() - queued
            ends = ends or clock() + self.endpoint.deadline_s
            try:
                return await self._attempt(body, usage, accept_any, prompt, waves, ends - clock())
            except Exception as error:
                failed = classify(error)
                if failed is None:
                    raise
                asked, left = retry_after(error), ends - clock()
                if self._refuses_limit(body, error):
                    del body[_LIMIT]
                    self.takes_limit = False
                    pause = 0.0
                elif failed == "rate_limit":
                    pause = SHORT_S if asked is None else asked  # then it goes first
                elif failed in TRANSIENT and attempt < self.endpoint.max_attempts:
                    pause = backoff_s(attempt) if asked is None else asked
                    attempt += 1
                else:
                    raise JudgeFailure(failed, self._detail(error)) from None
                if left <= pause:
                    late = (
                        f"; the next request in {pause:.0f} s would be past the call's {self.endpoint.deadline_s:g} s"
                    )
                    raise JudgeFailure(failed, self._detail(error) + late) from None
                logger.debug("sending again in %.1f s after %s: %s", pause, failed, self._detail(error))
                usage.retries += 1
                await asyncio.sleep(pause)

    async def _admitted(self, estimated: float, ends: float | None, failed: Cause | None) -> int:
        """Wait at the limits. A call that has been sent before waits until its deadline at most."""
        try:
            async with asyncio.timeout_at(ends) as within:
                return await self.limits.enter(estimated, self.budget, again=ends is not None)
        except TimeoutError:
            if not within.expired():
                raise
            detail = f"the call's {self.endpoint.deadline_s:g} s passed while it waited to be sent again"
            raise JudgeFailure(failed or "timeout", f"{self.endpoint.name}: {detail}") from None

    async def _attempt(
        self, body: dict[str, Any], usage: Usage, accept_any: bool, prompt: float, waves: int, left_s: float
    ) -> str:
        """Send one admitted request, `left_s` before its deadline, and account for it whatever comes of it."""
        start = time.perf_counter()
        expected = (prompt, self._completion_tokens)
        estimated = used = sum(expected)
        usage.requests += 1
        tokens: Tokens | None = None
        outcome: str | None = None
        cost, detail, asked = 0.0, "", None
        try:
            async with asyncio.timeout(max(0.0, min(self.endpoint.timeout_s, left_s))):
                completion = await exchange(self.connection, body)
            tokens = completion.tokens
            cost = usage.answered(self.endpoint, tokens, time.perf_counter() - start, expected)
            if tokens.prompt is not None and tokens.completion is not None:
                used = float(tokens.prompt + tokens.completion)
                self._completion_tokens += 0.1 * (tokens.completion - self._completion_tokens)
            usage.cut_off += accept_any and completion.cut_off
            text = completion.first_token() if "logprobs" in body else completion.text(accept_any)
            outcome = OK
            return text
        except Exception as error:
            outcome, detail, asked = classify(error), self._detail(error), retry_after(error)
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
            self.budget.spent_usd += cost
            self.limits.leave(outcome, estimated, used, detail, waves, asked)

    def _still_detecting(self, body: dict[str, Any]) -> bool:
        """True if this request tried a mode of structured answers that the endpoint may not support."""
        form = (body.get("response_format") or {}).get("type", "prompt")
        return form != "prompt" and not (self.settled and form == self.mode)

    def _refuses_limit(self, body: dict[str, Any], error: Exception) -> bool:
        """True if this answer refuses a limit that the user did not set."""
        ours = _LIMIT in body and self.endpoint.max_output_tokens is None
        return ours and classify(error) == "bad_request" and bool(_REFUSES_LIMIT.search(message_of(error)))

    def _body(self, request: Request, messages: tuple[Message, ...], form: dict[str, Any] | None) -> dict[str, Any]:
        endpoint = self.endpoint
        ours = request.most_tokens if self.takes_limit else None
        optional = {
            "reasoning_effort": endpoint.reasoning_effort,
            "temperature": endpoint.temperature,
            "top_p": endpoint.top_p,
            "seed": endpoint.seed if request.seed is None else request.seed,
            _LIMIT: endpoint.max_output_tokens or ours,
            "response_format": form,
        }
        chosen = {key: value for key, value in optional.items() if value is not None}
        return {"model": endpoint.model, "messages": list(messages), **chosen}

    def _detail(self, error: Exception) -> str:
        """One line for traces and logs. The API key is removed: some endpoints repeat a wrong key in their answer."""
        text = error.detail if isinstance(error, JudgeFailure) else message_of(error)
        key = os.environ.get(self.endpoint.api_key_env or "", "")
        return f"{self.endpoint.name}: {self.endpoint.without_secrets(text, key)}"
