"""Read an endpoint's response: the text, why it ended, and the token counts.

The SDK's own `ChatCompletion` has 40 more fields, and building it takes as much CPU time as all our code for a call.
Unknown fields are ignored. A malformed part counts as missing, so that paid tokens are counted even if the text is
unusable.
"""

from __future__ import annotations

import codecs
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from soul.errors import JudgeFailure


def _or_none(value: Any, validated: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validated(value)
    except ValidationError:
        return None


OrNone = WrapValidator(_or_none)
# A token count; None if it is missing, negative or not an integer (true, "12" and 12.0 are not).
_Count = Annotated[int | None, Field(strict=True, ge=0), OrNone]


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
        try:
            completion = cls.model_validate_json(answer.removeprefix(codecs.BOM_UTF8))
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise JudgeFailure(
                "invalid", f"the endpoint's answer is not a chat completion ({problem}); is base_url right (.../v1)?"
            ) from None
        if completion.error and not completion.choices:
            raise JudgeFailure("server_error", f"the endpoint reports an error: {_reason(completion.error)}")
        return completion

    @property
    def tokens(self) -> Tokens:
        """The tokens that the request used. A count that is missing, negative or not an integer is None."""
        return self.usage or Tokens()

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
