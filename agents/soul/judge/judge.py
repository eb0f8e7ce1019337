"""Ask a model: for an instance of a schema (`Judge.ask`), or for a turn of a conversation (`ChatModel.chat`).

A question with a schema returns an instance or raises a typed failure; a score is never invented. If an answer does
not satisfy the schema, the question is asked again together with the validation error. Identical questions are answered
once (cache.py), even if they are asked at the same time. `scope()` returns a view with its own counters that shares
everything else.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from pydantic import BaseModel

from soul.errors import CONTENT, JudgeFailure
from soul.judge.cache import key_of
from soul.judge.call import structured
from soul.judge.call.endpoint import Endpoint
from soul.judge.call.http import Connection
from soul.judge.call.kept_call import KeptCall
from soul.judge.call.untrusted import data_message, require_content
from soul.judge.call.usage import Usage
from soul.judge.client import Completions, EndpointClient, Request
from soul.message import Message

logger = logging.getLogger(__name__)
SchemaT = TypeVar("SchemaT", bound=BaseModel)
AnswerT = TypeVar("AnswerT")


@dataclass
class ChatModel:
    """A model that takes turns in a conversation: a dialogue partner, an environment, or the policy behind an API."""

    endpoint_client: Completions
    usage: Usage = field(default_factory=Usage)
    kept: list[KeptCall] | None = None  # the questions of this scope and their answers; None outside of one

    @classmethod
    def connect(cls, endpoint: Endpoint, connection: Connection | None = None) -> Self:
        """A model with its own limits. (The roles of a run share limits and cache: see `Gateway`.)"""
        return cls(EndpointClient(endpoint, connection=connection or endpoint.connection()))

    @property
    def endpoint(self) -> Endpoint:
        return self.endpoint_client.endpoint

    def scope(self) -> Self:
        """The same model with separate counters, for one session, whose questions with a schema it keeps."""
        return replace(self, usage=Usage(), kept=[])

    async def chat(self, messages: Sequence[Message]) -> str:
        """The model's next turn. It is sampled, so it never comes from the cache.

        Raises:
            JudgeFailure: no usable turn after all retries; an empty or truncated turn is asked for again.
        """

        async def turn() -> str:
            reask = 0
            while True:
                try:
                    return (await self.endpoint_client.complete(Request(tuple(messages), reask=reask), self.usage)).text
                except JudgeFailure as failure:
                    self._reask(failure, reask)
                    reask += 1

        return await self._counted(turn())

    async def say(self, messages: Sequence[Message], seed: int | None = None, most_tokens: int | None = None) -> str:
        """The turn of a model under test, sampled. An empty, truncated or refusing turn is returned as it is.

        `seed` and `most_tokens` are those of a `Request`.
        """
        request = Request(tuple(messages), accept_any=True, seed=seed, most_tokens=most_tokens)
        return (await self._counted(self.endpoint_client.complete(request, self.usage))).text

    async def close(self) -> None:
        """Close the connections."""
        await self.endpoint_client.close()

    async def _counted(self, answer: Coroutine[Any, Any, AnswerT]) -> AnswerT:
        self.usage.calls += 1
        try:
            return await answer
        except JudgeFailure as failure:
            self.usage.failures[failure.cause] += 1
            raise

    def _reask(self, failure: JudgeFailure, reask: int) -> None:
        """Count one more re-ask after an unusable answer, or raise the failure if another one would not help."""
        if failure.cause not in CONTENT or reask >= self.endpoint.max_reasks:
            raise failure
        logger.debug("asking again after an unusable answer, %s", failure)
        self.usage.reasks += 1


class _Ready(BaseModel):
    ready: bool


@dataclass
class Judge(ChatModel):
    """A model that is asked for verdicts."""

    cached: bool = True  # whether equal questions may get the same answer, from the cache or from a call in flight
    # the number in a jury. It is part of the cache key, because a model that is a member twice gives two opinions.
    member: int = 0
    hidden: frozenset[str] = frozenset()  # dimensions of the task that this judge is not asked about

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
        key = self._key(schema, instructions, data, sample) if self.cached else None
        return await self._counted(self._answer(schema, instructions, data_message(data), key))

    async def check(self) -> None:
        """Make one real call, to find a wrong URL, model or key before a run starts."""
        await replace(self, cached=False).ask(
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

    async def _answer(self, schema: type[SchemaT], instructions: str, question: str, key: bytes | None) -> SchemaT:
        """The instance in a valid answer. An unusable answer is asked for again, with the reason.

        An answer in the cache that does not fit the schema counts as none.
        """
        form, name = structured.form_of(schema), self.endpoint.name
        complaint, reask, fresh, free = "", 0, False, True
        while True:
            messages: tuple[Message, ...] = (
                {"role": "system", "content": instructions},
                {"role": "user", "content": question + complaint},
            )
            text, source, spent = None, "", Usage()
            call = KeptCall(model=self.endpoint.model, request=list(messages), started=time.time())
            if self.kept is not None:
                self.kept.append(call)
            try:
                try:
                    request = Request(messages, form, key, fresh, reask)
                    text, source = await self.endpoint_client.complete(request, spent)
                finally:
                    self.usage.merge(spent)
                    call.seconds = time.time() - call.started
                free &= source != "endpoint"
                call.reply, call.cached = text, source != "endpoint"
                call.prompt_tokens, call.completion_tokens = spent.prompt_tokens, spent.completion_tokens
                answer = structured.read(schema, text)
                self.usage.cache_hits += free
                return answer
            except JudgeFailure as failure:
                fresh, call.failure = True, failure.cause
                if source == "file":
                    continue
                problem = failure.detail.removeprefix(f"{name}: ")
                if text is not None:  # `read` knows neither the endpoint nor its secrets
                    failure = JudgeFailure(failure.cause, f"{name}: {self.endpoint.without_secrets(problem, '')}")
                self._reask(failure, reask)
                complaint = structured.complaint(schema, JudgeFailure(failure.cause, problem))
                reask += 1


async def all_answers(*questions: Coroutine[Any, Any, AnswerT]) -> list[AnswerT]:
    """The answers, in the order of the questions.

    If a question fails, the others are still awaited: the cost of a call that outlives its session would not be
    counted.
    """
    tasks = [asyncio.ensure_future(question) for question in questions]
    await asyncio.gather(*tasks, return_exceptions=True)
    return [task.result() for task in tasks]
