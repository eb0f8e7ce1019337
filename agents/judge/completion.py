"""An endpoint's answer, as far as anyone here reads it: text, why it ended, tokens.

The SDK's own `ChatCompletion` has 40 fields more, and building it costs as much CPU as all of ours for a call. What an
endpoint adds is ignored; a part that makes no sense is as if it were missing, so that tokens that were paid are counted
even where the text is no good.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from agents.errors import JudgeFailure


def _or_none(value: Any, validated: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validated(value)
    except ValidationError:
        return None


OrNone = WrapValidator(_or_none)


class _Cached(BaseModel):
    cached_tokens: int | None = None


class _Reasoning(BaseModel):
    reasoning_tokens: int | None = None


class Tokens(BaseModel):
    """What a request took, as the endpoint says."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Annotated[_Cached | None, OrNone] = None
    completion_tokens_details: Annotated[_Reasoning | None, OrNone] = None


def _text_parts(content: Any) -> Any:
    """The text of a message that comes in parts; parts that hold thoughts are no text."""
    if not isinstance(content, list):
        return content
    parts = (part for part in content if isinstance(part, dict) and part.get("type") == "text")
    return "".join(str(part.get("text") or "") for part in parts)


class _Said(BaseModel):
    # Thoughts that an endpoint gives apart (`reasoning_content`, `reasoning`) are not read: they are no answer.
    content: Annotated[str | None, BeforeValidator(_text_parts)] = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Said
    finish_reason: str | None = None


class Completion(BaseModel):
    """A chat completion."""

    choices: Annotated[list[_Choice] | None, OrNone] = None
    usage: Annotated[Tokens | None, OrNone] = None

    @classmethod
    def of(cls, answer: object) -> Completion:
        """Read an answer as the SDK hands it over: what JSON became, or the text of what did not call itself JSON.

        Raises:
            JudgeFailure: it is no JSON object; a web page, say.
        """
        try:
            return cls.model_validate_json(answer) if isinstance(answer, str) else cls.model_validate(answer)
        except ValidationError:
            raise JudgeFailure(
                "invalid", "the endpoint's answer is no chat completion; is base_url right (.../v1)?"
            ) from None

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
