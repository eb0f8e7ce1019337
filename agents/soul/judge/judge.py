"""Ask a model: for an instance of a schema (`Judge.ask`), or for a turn of a conversation (`ChatModel.chat`).

A schema goes in, an instance comes out, or a typed failure; never an invented score. An answer that does not satisfy
the schema is asked for again, with the validation error. Equal questions are answered once (cache.py), also when they
are asked at the same moment. `scope()` gives a view with counters of its own that shares everything else.
"""

from __future__ import annotations

import asyncio
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

SchemaT = TypeVar("SchemaT", bound=BaseModel)
_CLAIM_POLL_S = 0.05


@dataclass
class ChatModel:
    """A model that speaks: a partner in a dialogue, an environment, the policy behind an API."""

    line: EndpointClient
    usage: Usage = field(default_factory=Usage)

    @classmethod
    def connect(cls, endpoint: Endpoint, client: openai.AsyncOpenAI | None = None) -> Self:
        """A model with limits of its own. (A run's roles share limits and cache: see `Gateway`.)

        Raises:
            MissingKey: the key's variable is not set.
        """
        return cls(lone_line(endpoint, client))

    @property
    def endpoint(self) -> Endpoint:
        return self.line.endpoint

    @property
    def client(self) -> openai.AsyncOpenAI:
        return self.line.client

    def scope(self) -> Self:
        """The same model with counters of its own (one session)."""
        return replace(self, usage=Usage())

    async def chat(self, messages: Sequence[Message]) -> str:
        """The model's next turn. Sampled: never from the cache.

        Raises:
            JudgeFailure: after retries; an empty or truncated turn is asked for once more.
        """
        self.usage.calls += 1
        deadline = Deadline(self.endpoint.deadline_s)
        for reask in range(self.endpoint.max_reasks + 1):
            try:
                self.usage.reasks += reask > 0
                return await self.line.request(messages, self.usage, str, deadline)
            except JudgeFailure as failure:
                if failure.cause not in CONTENT or reask == self.endpoint.max_reasks:
                    self.usage.failed(failure.cause)
                    raise
        raise AssertionError("the last re-ask returns or raises")

    async def say(self, messages: Sequence[Message], seed: int | None = None) -> str:
        """The turn of a model under test. Sampled; empty, cut off or refusing it is what the model said.

        Raises:
            JudgeFailure: after retries, where the endpoint gave no answer at all.
        """
        self.usage.calls += 1
        try:
            deadline = Deadline(self.endpoint.deadline_s)
            return await self.line.request(messages, self.usage, str, deadline, as_it_is=True, seed=seed)
        except JudgeFailure as failure:
            self.usage.failed(failure.cause)
            raise

    async def close(self) -> None:
        """Close the connections."""
        await self.line.close()

    async def check(self) -> None:
        """One real call, so that a wrong URL, model or key shows before a run and not in the middle of it.

        Raises:
            JudgeFailure: the endpoint cannot be used.
        """
        await self.chat([{"role": "user", "content": "A connection test. Answer with the word: ready"}])


class _Ready(BaseModel):
    ready: bool


@dataclass
class Judge(ChatModel):
    """A model that is asked for verdicts.

    Attributes:
        cache: where answers are kept; None: every call is made.
        asking: calls under way in this process, by key: who asks the same waits for the same answer.
        member: number in a jury, part of the key: one model may sit there twice, and then has two opinions.
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
        said: Sequence[str] | None = None,
        min_words: int = 1,
        sample: int = 0,
    ) -> SchemaT:
        """Ask for an instance of `schema`.

        Args:
            instructions: our own words, the system message.
            data: everything untrusted, the policy's text above all; sent as JSON in a user message.
            said: what of it the policy wrote, where saying nothing must not be judged; `min_words` is the least. None:
                nothing of it is the policy's.
            sample: number of a repeated judgment; equal questions with equal numbers have equal answers.

        Raises:
            JudgeFailure: after retries and re-asks; the cause says what kind.
            Contentless: the policy said nothing; no call was made.
        """
        if said is not None:
            require_content(said, min_words)
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
            _Ready, 'A connection test. Answer with the JSON object {"ready": true}.', {"ping": True}
        )

    def _key(self, schema: type[BaseModel], instructions: str, data: Mapping[str, Any], sample: int) -> bytes:
        endpoint = self.endpoint
        return key_of(
            {
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
        """The answer from the cache, from whoever is asking for it already, or from the endpoint."""
        while True:
            if (known := cache.get(key)) is not None:
                self.usage.cache_hits += 1
                return known
            if (under_way := self.asking.get(key)) is not None:
                await asyncio.wait([under_way])
                if under_way.cancelled():
                    continue
                text = under_way.result()  # or its failure: the same question would fail the same way
                self.usage.cache_hits += 1
                return text
            if cache.claim(key, self.endpoint.deadline_s) == "theirs":
                with self.line.claimed.waiting(partial(cache.seconds_left, key)):
                    while cache.claim(key, self.endpoint.deadline_s) == "theirs" and cache.get(key) is None:
                        await asyncio.sleep(_CLAIM_POLL_S)
                continue
            return await self._lead(key, schema, instructions, data, cache)

    async def _lead(
        self, key: bytes, schema: type[BaseModel], instructions: str, data: Mapping[str, Any], cache: Cache
    ) -> str:
        """Fetch the answer for everyone who waits for it."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.asking[key] = future
        try:
            text = await self._fetch(schema, instructions, data)
        except JudgeFailure as failure:
            future.set_exception(failure)
            future.exception()  # seen: nobody may be waiting
            cache.release(key)
            raise
        except BaseException:
            future.cancel()  # who waits asks himself
            cache.release(key)
            raise
        finally:
            del self.asking[key]
        cache.put(key, text)
        future.set_result(text)
        return text

    async def _fetch(self, schema: type[BaseModel], instructions: str, data: Mapping[str, Any]) -> str:
        """A valid answer's text, from the endpoint; re-asked where it was not usable."""
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
                problem = failure.detail.removeprefix(f"{self.endpoint.name}: ")
                complaint = structured.complaint(schema, JudgeFailure(failure.cause, problem))
        raise AssertionError("the last re-ask returns or raises")

    async def _structured(self, schema: type[BaseModel], instructions: str, question: str, deadline: Deadline) -> str:
        """One question in the best form that the endpoint takes. Which one that is, the first answers tell: an endpoint
        that knows no `json_schema` answers 400 to it."""
        line, refusal = self.line, None
        for mode in MODES[MODES.index(line.mode) :]:
            if line.settled and mode != line.mode:
                continue
            try:
                text = await self._in_mode(mode, schema, instructions, question, deadline)
            except JudgeFailure as failure:
                if failure.cause == "bad_request" and (not line.settled or line.mode != mode):
                    refusal = refusal or failure
                    continue
                if failure.cause in CONTENT:
                    line.mode, line.settled = mode, True  # the form was taken, only the answer is no good
                raise
            line.mode, line.settled = mode, True
            return text
        assert refusal is not None
        raise refusal  # it was not the form: the endpoint takes none of them

    async def _in_mode(
        self, mode: StructuredMode, schema: type[BaseModel], instructions: str, question: str, deadline: Deadline
    ) -> str:
        messages: list[Message] = [
            {"role": "system", "content": structured.instructions_with_schema(instructions, schema, mode)},
            {"role": "user", "content": question},
        ]

        read = partial(structured.valid_text, schema)
        return await self.line.request(messages, self.usage, read, deadline, structured.response_format(schema, mode))


def lone_line(endpoint: Endpoint, client: openai.AsyncOpenAI | None = None) -> EndpointClient:
    """A connection with limits of its own, in this process.

    Raises:
        MissingKey: the key's variable is not set.
    """
    limits = SharedLimits({endpoint.name: line_settings(endpoint)})
    gate = RequestGate(endpoint.name, "alone", in_process(limits))
    return EndpointClient(endpoint, gate, client or endpoint.client())


def line_settings(endpoint: Endpoint, **more: Any) -> EndpointLimits:
    """The limits that an endpoint's settings ask for."""
    return EndpointLimits(
        name=endpoint.name,
        concurrency=endpoint.concurrency,
        requests_per_minute=endpoint.requests_per_minute,
        tokens_per_minute=endpoint.tokens_per_minute,
        timeout_s=endpoint.timeout_s,
        **more,
    )
