"""The answers of a `FakeOpenAI`: replies, faults, and scripts that choose between them.

A reply turns a request into an `Answer` (status, headers, body, delay), and `server.py` sends it over HTTP or in
process. A script is one reply, a list of replies (the last one repeats) or a function of the request.
"""

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from soul.judge.call.untrusted import data_of


@dataclass(frozen=True)
class ChatRequest:
    """One request as the fake received it. `headers` (lower-case names) contains the key, so the repr leaves it out."""

    number: int  # order of arrival, from 0
    body: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def messages(self) -> list[dict[str, str]]:
        return list(self.body.get("messages", []))

    @property
    def data(self) -> dict[str, Any]:
        """The data for a judge: the JSON object between the markers in the user message."""
        return data_of(next(message["content"] for message in self.messages if message["role"] == "user"))

    def asks(self, instructions: str) -> bool:
        """True if its first message begins with these instructions (a judge prompt)."""
        return bool(self.messages) and str(self.messages[0].get("content") or "").startswith(instructions)

    @property
    def text(self) -> str:
        """All message contents in one string, for assertions."""
        return "\n".join(str(message.get("content") or "") for message in self.messages)


@dataclass(frozen=True)
class Answer:
    """A response before it is sent."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    delay: float = 0.0  # seconds of silence before the first byte
    drop: bool = False  # close the connection instead of answering


class Reply(ABC):
    """Something that a `FakeOpenAI` can answer."""

    @abstractmethod
    def answer(self, request: ChatRequest) -> Answer:
        """The response to this request."""


Script = Reply | Sequence[Reply] | Callable[[ChatRequest], Reply]


def error_answer(
    status: int, message: str, code: str | None = None, headers: Mapping[str, str] | None = None
) -> Answer:
    """An error in the form that OpenAI gives it."""
    body = {"error": {"message": message, "type": "fake_error", "param": None, "code": code}}
    return Answer(status, json.dumps(body).encode(), {"content-type": "application/json", **(headers or {})})


@dataclass(frozen=True)
class Text(Reply):
    """A completion with this text, after `delay` seconds.

    `cached_tokens` are reported as a part of the prompt, `reasoning_tokens` on top of the text's own tokens.
    """

    content: str
    delay: float = 0.0
    cached_tokens: int = field(default=0, kw_only=True)
    reasoning_tokens: int = field(default=0, kw_only=True)
    finish: str = field(default="stop", kw_only=True)
    refusal: str | None = field(default=None, kw_only=True)

    def answer(self, request: ChatRequest) -> Answer:
        prompt = len(request.text.split())  # words stand for tokens
        completion = len(self.content.split()) + self.reasoning_tokens  # OpenAI bills reasoning as output
        message = {"role": "assistant", "content": None if self.refusal else self.content, "refusal": self.refusal}
        body = {
            "id": f"chatcmpl-{request.number}",
            "object": "chat.completion",
            "created": 0,
            "model": request.body.get("model", "fake"),
            "choices": [{"index": 0, "finish_reason": self.finish, "logprobs": None, "message": message}],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
                "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
                "completion_tokens_details": {"reasoning_tokens": self.reasoning_tokens},
            },
        }
        return Answer(body=json.dumps(body).encode(), delay=self.delay)


@dataclass(frozen=True)
class Json(Reply):
    """A completion whose text is this JSON value, after `delay` seconds; the rest as in `Text`."""

    value: Any
    delay: float = 0.0
    cached_tokens: int = field(default=0, kw_only=True)
    reasoning_tokens: int = field(default=0, kw_only=True)

    def answer(self, request: ChatRequest) -> Answer:
        tokens: dict[str, Any] = {"cached_tokens": self.cached_tokens, "reasoning_tokens": self.reasoning_tokens}
        return Text(json.dumps(self.value), self.delay, **tokens).answer(request)


@dataclass(frozen=True)
class Fault(Reply):
    """An error of the endpoint. `{key}` and `{model}` in its message are those of the request.

    `retry_after` is sent as Retry-After: seconds, or an HTTP date.
    """

    status: int
    message: str = "Unsupported parameter"
    code: str | None = None
    retry_after: float | str | None = None

    def answer(self, request: ChatRequest) -> Answer:
        key = request.headers.get("authorization", "").removeprefix("Bearer ")
        message = self.message.replace("{key}", key).replace("{model}", repr(request.body.get("model")))
        headers = {} if self.retry_after is None else {"retry-after": str(self.retry_after)}
        return error_answer(self.status, message, self.code, headers)


class DropConnection(Reply):
    """The connection closes without an answer."""

    def answer(self, request: ChatRequest) -> Answer:
        return Answer(drop=True)


RateLimit = partial(Fault, 429, "Rate limit reached", "rate_limit_exceeded")
NoQuota = partial(Fault, 429, "You exceeded your current quota", "insufficient_quota")  # waiting does not help
ServerError = partial(Fault, status=500, message="The server had an error")
BadRequest = partial(Fault, 400, code="invalid_request_error")
# Quotes the key, as careless gateways do: a client that repeats the message leaks it.
Unauthorized = partial(Fault, 401, "Incorrect API key provided: {key}", "invalid_api_key")
NotFound = partial(Fault, 404, "The model {model} does not exist", "model_not_found")
Hang = partial(Text, "{}")  # Hang(seconds): a client with a shorter timeout gets a read timeout
Refusal = partial(Text, "", refusal="I'm sorry, I can't help with that.")
Empty = partial(Text, "")
TruncatedJson = partial(Text, '{"critique": "You overlooked that')  # although the finish reason is "stop"
WrongSchema = partial(Text, '{"unexpected": true}')
Truncated = partial(Text, '{"critique": "You', finish="length")  # the token limit


def as_function(script: Script) -> Callable[[ChatRequest], Reply]:
    """A script as a function of the request. A list is used up in order, under a lock; its last reply repeats."""
    if isinstance(script, Reply):
        return lambda request: script
    if callable(script):
        return script
    replies = list(script)
    if not replies:
        raise ValueError("a script needs at least one reply")
    lock = threading.Lock()

    def next_reply(request: ChatRequest) -> Reply:
        with lock:
            return replies.pop(0) if len(replies) > 1 else replies[0]

    return next_reply
