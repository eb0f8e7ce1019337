"""Rows of SimulatorArena: the person, the real conversation, and the features and preferences to match."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AliasChoices, BeforeValidator, Field, field_validator, model_validator

from soul.row_fields import RecordPart, as_list, nested_object, without_nulls
from soul.task_types import NotBlank, Row


class Trait(RecordPart):
    """A style feature or a document preference of the real person."""

    name: NotBlank = Field(validation_alias=AliasChoices("name", "Feature Name", "Preference Name"))
    question: str = Field("", validation_alias=AliasChoices("question", "Feature Question", "Preference Question"))
    answer: str = Field(
        "",
        validation_alias=AliasChoices(
            "answer", "Feature Question Answer", "Feature Question (Answer)", "Preference Question Answer"
        ),
    )


def _listed_or_none(value: Any) -> Any:
    return [] if isinstance(value, str) and not value.strip() else as_list(value)


Traits = Annotated[list[Trait], BeforeValidator(_listed_or_none)]


class SimArenaRow(Row):
    """The fields of both kinds of session. They may also come as one JSON object in the field `raw`."""

    user_profile_text: str = ""
    human_user_queries: list[str]
    human_public_conversation: list[dict[str, str]] | str = ""
    target_writing_style_features: Traits = []
    target_interaction_style_features: Traits = []

    @model_validator(mode="before")
    @classmethod
    def _unpacked(cls, record: Mapping[str, Any]) -> Any:
        return {**nested_object(record, "raw"), **without_nulls(record)}  # the row type ignores "raw" itself

    @field_validator("human_user_queries", mode="before")
    @classmethod
    def _queries(cls, value: Any) -> Any:
        items = _listed_or_none(value)
        if not isinstance(items, list):
            return items
        messages = [item for item in items if item is not None and str(item).strip()]
        if not messages:
            raise ValueError("contains no message")
        return messages

    @field_validator("human_public_conversation", mode="before")
    @classmethod
    def _conversation(cls, value: Any) -> Any:
        if isinstance(value, str) and not value.lstrip().startswith("["):
            return value
        try:
            return [{str(k): str(v) for k, v in turn.items() if v is not None} for turn in as_list(value)]
        except (ValueError, TypeError, AttributeError):
            return value  # a text that only starts with a bracket


class SimMathRow(SimArenaRow):
    """A student and a problem. `topic` describes problems whose text may not be redistributed."""

    problem: str = ""
    topic: str = ""


class SimDocRow(SimArenaRow):
    """A person and the text that they want."""

    document_type: NotBlank
    intent: NotBlank
    pre_writing_materials_text: str = ""
    target_document_preferences: Traits = []
