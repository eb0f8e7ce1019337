"""A row of UserLLM, of one of three kinds (see `soul.tasks.userllm`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, Field, field_validator, model_validator

from soul.row_fields import Label, as_list, listed_texts
from soul.task_types import NotBlank, Row

Source = Literal["commonsense_qa", "natural_questions", "prism"]

_INTENTS = ("intent", "intent_summary", "opening_prompt", "question")  # in this order
_OWN_WORDS = ("opening_prompt", "question")  # in a prism row these are the person's own message, not an intent
# The form of published intents: "You are a user chatting with an assistant language model to get travel advice."
_FIXED_PREFIX = re.compile(r"you are a user chatting with an assistant language model to\b[\s:\u2014-]*", re.IGNORECASE)
_SPEAKERS = {"user": "User", "human": "User"}
_TURN = re.compile(r"^(User|Assistant):", re.MULTILINE)
_MARKED_TURN = re.compile(r"^<(user|assistant)>:", re.MULTILINE)  # as the original writes it


class UserLLMRow(Row):
    """What the user is after, and the conversation so far ("" at its start)."""

    source: Source
    intent: NotBlank = Field(validation_alias=AliasChoices(*_INTENTS))
    conversation_history: str = ""
    assistant_suggestion_turn: str = ""  # natural_questions: the assistant's proposal, if the history lacks it
    question: str = ""
    choices: Annotated[tuple[str, ...], BeforeValidator(listed_texts)] = ()  # commonsense_qa: the texts of the options
    is_last_turn: bool = False  # prism
    group: Label = ""  # an id of the conversation or of the question
    user_id: Label = ""  # prism

    @model_validator(mode="before")
    @classmethod
    def _drop_blank_intents(cls, record: Any) -> Any:
        if not isinstance(record, Mapping):
            return record
        blank = [key for key in _INTENTS if isinstance(record.get(key, ""), str) and not record.get(key, "").strip()]
        kept = {key: value for key, value in record.items() if key not in blank and value is not None}
        known = [key for key in _INTENTS if key in kept]
        if "prism" in str(kept.get("source", "")).lower() and known and set(known) <= set(_OWN_WORDS):
            raise ValueError(
                f"intent: this row of prism has only {known[0]}, which is the person's own message; write high-level "
                "intents with `python -m data.userllm intents`"
            )
        given = kept[known[0]] if known else None
        if isinstance(given, str):
            given = _FIXED_PREFIX.split(given, maxsplit=1)[-1] or given
        return kept if given is None else kept | {"intent": given}

    @field_validator("source", mode="before")
    @classmethod
    def _prism_by_any_name(cls, value: Any) -> Any:
        return "prism" if isinstance(value, str) and "prism" in value.lower() else value

    @field_validator("conversation_history", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if isinstance(value, str) and not value.lstrip().startswith("["):
            return _MARKED_TURN.sub(lambda turn: f"{turn[1].capitalize()}:", value.strip())
        try:
            turns = as_list(value)
            return "\n".join(f"{_SPEAKERS.get(t['role'], 'Assistant')}: {str(t['content']).strip()}" for t in turns)
        except (ValueError, TypeError, KeyError):
            return value  # a text that only starts with a bracket, or something that pydantic will refuse

    @property
    def own_words(self) -> list[str]:
        """The words of the row that are the person's own: intents, question and turns so far."""
        turns = _TURN.split(self.conversation)  # text before the first speaker, then speaker and text in turn
        said = [text for speaker, text in zip(turns[1::2], turns[2::2], strict=True) if speaker == "User"]
        return [self.intent, self.question, ", ".join(self.choices), *said]

    @property
    def conversation(self) -> str:
        """The conversation so far, with the assistant's proposal at its end."""
        proposal = self.assistant_suggestion_turn.strip()
        if not proposal or proposal in self.conversation_history:
            return self.conversation_history
        return f"{self.conversation_history}\nAssistant: {proposal}".strip()
