"""Read an endpoint's response: the text, why it ended, and the token counts.

The SDK's own `ChatCompletion` has 40 more fields, and building it takes as much CPU time as all our code for a call.
Unknown fields are ignored. A malformed part counts as missing, so that paid tokens are counted even if the text is
unusable.
"""

from __future__ import annotations

import codecs
import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from soul.errors import JudgeFailure


def _or_none(value: Any, validated: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validated(value)
    except ValidationError:
        return None


OrNone = WrapValidator(_or_none)
# Matches every JSON escape in turn, so that the "\ud83d" in an escaped backslash ("\\ud83d") is not taken for one.
# Group 1 is an unpaired surrogate.
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(u[dD][89a-fA-F]\w\w)|.)", re.DOTALL)


def _without_unpaired(escape: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if escape[1] else escape[0]


# A token count; None if it is missing, negative or not an integer (true, "12" and 12.0 are not).
_Count = Annotated[int | None, Field(strict=True, ge=0), OrNone]
# Bounds for plausible counts. A prompt has at most one token for each byte, at most four bytes for each character, and
# what the server adds: a chat template, tools, a system prompt.
_MOST_BYTES, _ADDED_TOKENS = 4, 20_000
_MOST_CHARACTERS = 200  # characters per token, averaged over a text; a single token can be a whole line of spaces
_MOST_COMPLETION = 1_000_000  # tokens, if the request sets no limit
_OVER_LIMIT = 2  # completion tokens may exceed the limit by this factor: some servers do not count reasoning


class _Details(BaseModel):
    cached_tokens: _Count = None
    reasoning_tokens: _Count = None


class Tokens(BaseModel):
    """The tokens that a request used, as the endpoint reports them."""

    prompt_tokens: _Count = None
    completion_tokens: _Count = None
    prompt_tokens_details: Annotated[_Details | None, OrNone] = None
    completion_tokens_details: Annotated[_Details | None, OrNone] = None


def _text_parts(content: Any) -> Any:
    """The text of a message that comes in parts. Parts with reasoning are not text."""
    if not isinstance(content, list):
        return content
    parts = (part for part in content if isinstance(part, dict) and part.get("type") == "text")
    return "".join(str(part.get("text") or "") for part in parts)


class _Message(BaseModel):
    # Separate reasoning fields (`reasoning_content`, `reasoning`) are ignored: they are not part of the answer.
    content: Annotated[str | None, BeforeValidator(_text_parts)] = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None
    error: Any = None  # of a model that broke off


def _reason(error: Any) -> str:
    """The message of an error object in one line."""
    message = error.get("message") if isinstance(error, dict) else error
    return " ".join(str(message or "no reason is given").split())[:200]


def _within(count: int | None, least: float, most: float) -> int | None:
    return count if count is not None and least <= count <= most else None


class Completion(BaseModel):
    """A chat completion."""

    choices: Annotated[list[_Choice] | None, OrNone] = None
    usage: Annotated[Tokens | None, OrNone] = None
    error: Any = None

    @classmethod
    def from_json(cls, answer: bytes) -> Completion:
        """Read a response body.

        Raises:
            JudgeFailure: it is not a chat completion but, for example, a web page; or a gateway in front of several
                providers (OpenRouter) reports the error of one of them, with status 200.
        """
        completion = cls._parsed(answer.removeprefix(codecs.BOM_UTF8))
        if completion.error and not completion.choices:
            raise JudgeFailure("server_error", f"the endpoint reports an error: {_reason(completion.error)}")
        return completion

    @classmethod
    def _parsed(cls, answer: bytes) -> Completion:
        try:
            try:
                return cls.model_validate_json(answer)
            except ValidationError:
                # A model's text may end in an unpaired surrogate, which some servers escape without checking.
                return cls.model_validate_json(_ESCAPE.sub(_without_unpaired, answer))
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise JudgeFailure(
                "invalid", f"the endpoint's answer is not a chat completion ({problem}); is base_url right (.../v1)?"
            ) from None

    def tokens(self, prompt: int, limit: int | None) -> Tokens:
        """The tokens that the request used. An implausible count is None, so that it can neither evade a budget nor
        use it up.

        Args:
            prompt: the number of characters in the messages.
            limit: the token limit that the request set for the answer; None: no limit.
        """
        usage = self.usage or Tokens()
        message = self.choices[0].message if self.choices else None
        text = len(message.content or message.refusal or "") if message else 0
        most = _MOST_COMPLETION if limit is None else _OVER_LIMIT * limit + _ADDED_TOKENS
        prompt_tokens = _within(usage.prompt_tokens, prompt / _MOST_CHARACTERS, _MOST_BYTES * prompt + _ADDED_TOKENS)
        completion_tokens = _within(usage.completion_tokens, text / _MOST_CHARACTERS, most)
        cached = (usage.prompt_tokens_details or _Details()).cached_tokens
        reasoning = (usage.completion_tokens_details or _Details()).reasoning_tokens
        return Tokens(
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            prompt_tokens_details=_Details(cached_tokens=_within(cached, 0, prompt_tokens or 0)),
            completion_tokens_details=_Details(reasoning_tokens=_within(reasoning, 0, completion_tokens or 0)),
        )

    @property
    def cut_off(self) -> bool:
        """Whether the answer was cut off at the token limit."""
        return bool(self.choices) and self.choices[0].finish_reason == "length"  # type: ignore[index]

    def text(self, accept_any: bool) -> str:
        """The text of the answer.

        Args:
            accept_any: also accept an empty, truncated or refusing answer.

        Raises:
            JudgeFailure: there is no usable text.
        """
        if not self.choices:
            raise JudgeFailure("invalid", "the endpoint's answer has no choices")
        choice = self.choices[0]
        if choice.finish_reason == "error":  # the text, if there is any, is a part of an answer
            raise JudgeFailure("server_error", f"the model broke off: {_reason(choice.error or self.error)}")
        content, refusal = choice.message.content or "", choice.message.refusal or ""
        if accept_any:
            return content or refusal
        if refusal:
            raise JudgeFailure("refusal", refusal[:200])
        if choice.finish_reason == "length":
            raise JudgeFailure("truncated", "the answer hit the token limit")
        if choice.finish_reason == "content_filter":
            raise JudgeFailure("refusal", "the endpoint's content filter cut the answer")
        if not content.strip():
            raise JudgeFailure("empty", "the endpoint answered without text")
        return content
