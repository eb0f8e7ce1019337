"""Ask a model: for an instance of a schema (`Judge.ask`), or for a turn of a conversation (`ChatModel.chat`).

A question with a schema returns an instance or raises a typed failure; a score is never invented. If an answer does
not satisfy the schema, the question is asked again together with the validation error. Identical questions are answered
once (cache.py), even if they are asked at the same time. `scope()` returns a view with its own counters that shares
everything else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, TypeVar

import openai
from pydantic import BaseModel

from soul.errors import CONTENT, JudgeFailure
from soul.judge.cache import Cache, key_of
from soul.judge.call import structured
from soul.judge.call.client import Deadline, EndpointClient
from soul.judge.call.endpoint import MODES, Endpoint, StructuredMode
from soul.judge.call.untrusted import data_message, require_content
from soul.judge.call.usage import Usage
from soul.judge.throttle.local_gate import RequestGate, in_process
from soul.judge.throttle.shared_limits import EndpointLimits, SharedLimits
from soul.message import Message

logger = logging.getLogger(__name__)
SchemaT = TypeVar("SchemaT", bound=BaseModel)
_CLAIM_POLL_S = 0.05


@dataclass
class ChatModel:
    """A model that takes turns in a conversation: a dialogue partner, an environment, or the policy behind an API."""

    endpoint_client: EndpointClient
    usage: Usage = field(default_factory=Usage)

    @classmethod
    def connect(cls, endpoint: Endpoint, client: openai.AsyncOpenAI | None = None) -> Self:
        """A model with its own limits. (The roles of a run share limits and cache: see `Gateway`.)"""
        return cls(standalone_client(endpoint, client))

    @property
    def endpoint(self) -> Endpoint:
        return self.endpoint_client.endpoint

    def scope(self) -> Self:
        """The same model with separate counters, for one session."""
        return replace(self, usage=Usage())

    async def chat(self, messages: Sequence[Message]) -> str:
        """The model's next turn. It is sampled, so it never comes from the cache.

        Raises:
            JudgeFailure: no usable turn after all retries; an empty or truncated turn is asked for again.
        """
        self.usage.calls += 1
        deadline = Deadline(self.endpoint.deadline_s)
        for reask in range(self.endpoint.max_reasks + 1):
            try:
                self.usage.reasks += reask > 0
                return await self.endpoint_client.request(messages, self.usage, str, deadline)
            except JudgeFailure as failure:
                if failure.cause not in CONTENT or reask == self.endpoint.max_reasks:
                    self.usage.failed(failure.cause)
                    raise
                _log_reask(failure)
        raise AssertionError("the last re-ask returns or raises")

    async def say(self, messages: Sequence[Message], seed: int | None = None, most_tokens: int | None = None) -> str:
        """The turn of a model under test, sampled. An empty, truncated or refusing turn is returned as it is.

        Args:
            seed: for this request; None: the endpoint's, if it has one.
            most_tokens: of this turn, if the endpoint's settings have no limit; None: no limit.

        Raises:
            JudgeFailure: the endpoint gave no answer after all retries.
        """
        self.usage.calls += 1
        try:
            deadline = Deadline(self.endpoint.deadline_s)
            return await self.endpoint_client.request(
                messages, self.usage, str, deadline, accept_any=True, seed=seed, most_tokens=most_tokens
            )
        except JudgeFailure as failure:
            self.usage.failed(failure.cause)
            raise

    async def close(self) -> None:
        """Close the connections."""
        await self.endpoint_client.close()

    async def check(self) -> None:
        """Make one real call, to find a wrong URL, model or key before a run starts."""
        await self.chat([{"role": "user", "content": "This is a connection test. Reply with one word: ready"}])


class _Ready(BaseModel):
    ready: bool


@dataclass
class Judge(ChatModel):
    """A model that is asked for verdicts.

    Attributes:
        cache: stores the answers; None: every question is sent to the endpoint.
        asking: the calls in flight in this process, by cache key. An identical question waits for the same answer.
        member: the number in a jury. It is part of the cache key, because a model that is a member twice gives two
            opinions.
    """

    cache: Cache | None = None
    asking: dict[bytes, asyncio.Future[str]] = field(default_factory=dict)
    member: int = 0

    async def ask(
        self,
        schema: type[SchemaT],
        instructions: str,
        data: Mapping[str, Any],
        *,
        policy_texts: Sequence[str] | None = None,
        min_words: int = 1,
        sample: int = 0,
    ) -> SchemaT:
        """Ask for an instance of `schema`.

        Args:
            instructions: the system message. Never put text of the policy here.
            data: everything untrusted, above all the policy's text; sent as JSON in a user message.
            policy_texts: the texts in `data` that the policy wrote. If together they have fewer than `min_words` words
                with content, no call is made. None: the policy wrote none of them.
            sample: the number of a repeated judgment. Identical questions with the same number get the same answer.

        Raises:
            JudgeFailure: no valid answer after all retries and re-asks; the cause says why.
            Contentless: the policy wrote nothing that can be judged; no call was made.
        """
        if policy_texts is not None:
            require_content(policy_texts, min_words)
        self.usage.calls += 1
        try:
            if self.cache is None:
                text = await self._fetch(schema, instructions, data)
            else:
                key = self._key(schema, instructions, data, sample)
                text = await self._once(key, schema, instructions, data, self.cache)
        except JudgeFailure as failure:
            self.usage.failed(failure.cause)
            raise
        return structured.instance(schema, text)

    async def check(self) -> None:
        await replace(self, cache=None).ask(
            _Ready, 'This is a connection test. Reply with the JSON object {"ready": true}.', {"ping": True}
        )

    def _key(self, schema: type[BaseModel], instructions: str, data: Mapping[str, Any], sample: int) -> bytes:
        endpoint = self.endpoint
        sampling = {"top_p": endpoint.top_p, "seed": endpoint.seed}
        return key_of(
            {
                **{name: value for name, value in sampling.items() if value is not None},  # older keys have neither
                "url": endpoint.address,
                "model": endpoint.model,
                "effort": endpoint.reasoning_effort,
                "temperature": endpoint.temperature,
                "max_output_tokens": endpoint.max_output_tokens,
                "schema": structured.json_schema(schema),
                "instructions": instructions,
                "data": data,
                "sample": sample,
                "member": self.member,
            }
        )

    async def _once(
        self, key: bytes, schema: type[BaseModel], instructions: str, data: Mapping[str, Any], cache: Cache
    ) -> str:
        """The answer from the cache, from an identical call that is in flight, or from the endpoint."""
        while True:
            if (cached := cache.get(key)) is not None:
                self.usage.cache_hits += 1
                return cached
            if (in_flight := self.asking.get(key)) is not None:
                await asyncio.wait([in_flight])
                if in_flight.cancelled():
                    continue
                text = in_flight.result()  # or raises its failure: the same question would fail the same way
                self.usage.cache_hits += 1
                return text
            if cache.claim(key, self.endpoint.deadline_s) == "theirs":
                with self.endpoint_client.claimed.waiting(partial(cache.seconds_left, key)):
                    while cache.claim(key, self.endpoint.deadline_s) == "theirs" and cache.get(key) is None:
                        await asyncio.sleep(_CLAIM_POLL_S)
                continue
            return await self._lead(key, schema, instructions, data, cache)

    async def _lead(
        self, key: bytes, schema: type[BaseModel], instructions: str, data: Mapping[str, Any], cache: Cache
    ) -> str:
        """Fetch the answer for every caller that waits for it."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.asking[key] = future
        try:
            text = await self._fetch(schema, instructions, data)
        except JudgeFailure as failure:
            future.set_exception(failure)
            future.exception()  # mark it as retrieved: maybe no caller waits, and asyncio would log it as lost
            cache.release(key)
            raise
        except BaseException:
            future.cancel()  # waiters retry the call themselves
            cache.release(key)
            raise
        finally:
            del self.asking[key]
        cache.put(key, text)
        future.set_result(text)
        return text

    async def _fetch(self, schema: type[BaseModel], instructions: str, data: Mapping[str, Any]) -> str:
        """The text of a valid answer from the endpoint. An unusable answer is asked for again, with the reason."""
        deadline = Deadline(self.endpoint.deadline_s)
        question = data_message(data)
        complaint = ""
        for reask in range(self.endpoint.max_reasks + 1):
            try:
                self.usage.reasks += reask > 0
                return await self._structured(schema, instructions, question + complaint, deadline)
            except JudgeFailure as failure:
                if failure.cause not in CONTENT or reask == self.endpoint.max_reasks:
                    raise
                _log_reask(failure)
                problem = failure.detail.removeprefix(f"{self.endpoint.name}: ")
                complaint = structured.complaint(schema, JudgeFailure(failure.cause, problem))
        raise AssertionError("the last re-ask returns or raises")

    async def _structured(self, schema: type[BaseModel], instructions: str, question: str, deadline: Deadline) -> str:
        """Ask one question in the best mode that the endpoint supports.

        The first answers tell which mode that is: an endpoint without `json_schema` answers it with 400.
        """
        client, refusal = self.endpoint_client, None
        for mode in MODES[MODES.index(client.mode) :]:
            if client.settled and mode != client.mode:
                continue
            try:
                text = await self._in_mode(mode, schema, instructions, question, deadline)
            except JudgeFailure as failure:
                if failure.cause == "bad_request" and (not client.settled or client.mode != mode):
                    refusal = refusal or failure
                    logger.debug("%s does not accept %s: trying the next mode", self.endpoint.name, mode)
                    continue
                if failure.cause in CONTENT - {"refusal"}:  # a moderation refuses before the mode is looked at
                    client.mode, client.settled = mode, True  # the mode was accepted; only the answer is unusable
                raise
            client.mode, client.settled = mode, True
            return text
        assert refusal is not None
        raise refusal  # every mode was refused, so the mode is not the problem

    async def _in_mode(
        self, mode: StructuredMode, schema: type[BaseModel], instructions: str, question: str, deadline: Deadline
    ) -> str:
        messages: list[Message] = [
            {"role": "system", "content": structured.instructions_with_schema(instructions, schema, mode)},
            {"role": "user", "content": question},
        ]

        read = partial(structured.valid_text, schema)
        return await self.endpoint_client.request(
            messages, self.usage, read, deadline, structured.response_format(schema, mode)
        )


def _log_reask(failure: JudgeFailure) -> None:
    logger.debug("asking again after an unusable answer, %s: %s", failure.cause, failure.detail)


def standalone_client(endpoint: Endpoint, client: openai.AsyncOpenAI | None = None) -> EndpointClient:
    """A client with its own limits, which live in this process."""
    limits = SharedLimits({endpoint.name: endpoint_limits(endpoint)})
    gate = RequestGate(endpoint.name, "standalone", in_process(limits))
    return EndpointClient(endpoint, gate, client or endpoint.client())


def endpoint_limits(endpoint: Endpoint, **more: Any) -> EndpointLimits:
    """The limits in an endpoint's settings; `more` sets further fields of `EndpointLimits`."""
    return EndpointLimits(
        name=endpoint.name,
        concurrency=endpoint.concurrency,
        requests_per_minute=endpoint.requests_per_minute,
        tokens_per_minute=endpoint.tokens_per_minute,
        timeout_s=endpoint.timeout_s,
        **more,
    )
