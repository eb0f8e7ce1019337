"""An endpoint's answer, as far as anyone here reads it: text, why it ended, tokens.

The SDK's own `ChatCompletion` has 40 fields more, and building it costs as much CPU as all of ours for a call. What an
endpoint adds is ignored; a part that makes no sense is as if it were missing, so that tokens that were paid are counted
even where the text is no good.
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
# The escapes of JSON one after another, so that "\\ud83d" behind a backslash is not taken for one; group 1 is half a
# pair of surrogates.
_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(u[dD][89a-fA-F]\w\w)|.)", re.DOTALL)


def _whole(escape: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if escape[1] else escape[0]


# A count of tokens; None where it is missing, negative, or no integer: true, "12" and 12.0 are none.
_Count = Annotated[int | None, Field(strict=True, ge=0), OrNone]
# A prompt may have a token for each byte, and what the server adds to it: a chat template, tools, a system prompt.
_MOST_BYTES, _ADDED_TOKENS = 4, 20_000
_MOST_CHARACTERS = 200  # of one token, averaged over a text; a single token can be a whole line of spaces
_MOST_COMPLETION = 1_000_000  # where the request sets no limit
_OVER_LIMIT = 2  # times the limit: not every server counts thoughts into it


class _Cached(BaseModel):
    cached_tokens: _Count = None


class _Reasoning(BaseModel):
    reasoning_tokens: _Count = None


class Tokens(BaseModel):
    """What a request took, as the endpoint says."""

    prompt_tokens: _Count = None
    completion_tokens: _Count = None
    prompt_tokens_details: Annotated[_Cached | None, OrNone] = None
    completion_tokens_details: Annotated[_Reasoning | None, OrNone] = None


def _text_parts(content: Any) -> Any:
    """The text of a message that comes in parts; parts that hold thoughts are no text."""
    if not isinstance(content, list):
        return content
    parts = (part for part in content if isinstance(part, dict) and part.get("type") == "text")
    return "".join(str(part.get("text") or "") for part in parts)


class _Message(BaseModel):
    # Thoughts that an endpoint gives apart (`reasoning_content`, `reasoning`) are not read: they are no answer.
    content: Annotated[str | None, BeforeValidator(_text_parts)] = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


def _within(count: int | None, least: float, most: float) -> int | None:
    return count if count is not None and least <= count <= most else None


class Completion(BaseModel):
    """A chat completion."""

    choices: Annotated[list[_Choice] | None, OrNone] = None
    usage: Annotated[Tokens | None, OrNone] = None

    @classmethod
    def from_json(cls, answer: bytes) -> Completion:
        """Read an answer's body.

        Raises:
            JudgeFailure: it is no JSON object; a web page, say.
        """
        answer = answer.removeprefix(codecs.BOM_UTF8)
        try:
            try:
                return cls.model_validate_json(answer)
            except ValidationError:
                # A model may end in half a surrogate pair, which some servers escape as it is.
                return cls.model_validate_json(_ESCAPE.sub(_whole, answer))
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise JudgeFailure(
                "invalid", f"the endpoint's answer is no chat completion ({problem}); is base_url right (.../v1)?"
            ) from None

    def tokens(self, prompt: int, limit: int | None) -> Tokens:
        """What the request took. A count that cannot be is None, so that no endpoint can evade or burn a budget.

        Args:
            prompt: characters of the messages.
            limit: the tokens that the answer could have; None: no limit was sent.
        """
        usage = self.usage or Tokens()
        message = self.choices[0].message if self.choices else None
        text = len(message.content or message.refusal or "") if message else 0
        most = _MOST_COMPLETION if limit is None else _OVER_LIMIT * limit + _ADDED_TOKENS
        prompt_tokens = _within(usage.prompt_tokens, prompt / _MOST_CHARACTERS, _MOST_BYTES * prompt + _ADDED_TOKENS)
        completion_tokens = _within(usage.completion_tokens, text / _MOST_CHARACTERS, most)
        cached = usage.prompt_tokens_details and _within(
            usage.prompt_tokens_details.cached_tokens, 0, prompt_tokens or 0
        )
        thoughts = usage.completion_tokens_details and _within(
            usage.completion_tokens_details.reasoning_tokens, 0, completion_tokens or 0
        )
        return Tokens.model_construct(
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            prompt_tokens_details=_Cached.model_construct(cached_tokens=cached),
            completion_tokens_details=_Reasoning.model_construct(reasoning_tokens=thoughts),
        )

    @property
    def cut_off(self) -> bool:
        """Whether the answer ends where the tokens did."""
        return bool(self.choices) and self.choices[0].finish_reason == "length"  # type: ignore[index]

    def text(self, as_it_is: bool) -> str:
        """The text, or the content failure it is.

        Args:
            as_it_is: an empty, cut-off or refusing answer is an answer too.

        Raises:
            JudgeFailure: there is none that can be used.
        """
        if not self.choices:
            raise JudgeFailure("invalid", "the endpoint's answer holds no choices")
        choice = self.choices[0]
        content, refusal = choice.message.content or "", choice.message.refusal or ""
        if as_it_is:
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
