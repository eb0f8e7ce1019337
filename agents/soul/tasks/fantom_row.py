"""One row of FANToM: a conversation and a question of one of four kinds."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BeforeValidator, Field, model_validator

from soul.row_fields import Listed, as_list
from soul.task_types import NotBlank, Row

Kind = Literal["choice", "list", "binary", "fact"]
_KINDS: dict[str, Kind] = {"multiple-choice": "choice", "list": "list", "binary": "binary"}
_INDEX = re.compile(r"\s*[0-9]{1,2}\s*")
_OFFICIAL_ID = re.compile(r"(\d+)-\d+(?:-\d+)*")  # conversation, part, set: "12-0-1"


class FanToMRow(Row):
    """One question about one conversation. The kind decides what `correct_answer` is: index, names, yes/no or text."""

    context: NotBlank
    question: NotBlank = Field(validation_alias=AliasChoices("complete_question", "question"))
    question_type: str
    correct_answer: int | list[str] | str
    wrong_answer: list[str] | str = ""
    answer_choices: Annotated[list[str], Listed] = []  # absent if the question itself lists them
    tom_type: str = ""
    missed_info_accessibility: str = ""
    set_id: Annotated[str, BeforeValidator(str)] = ""
    set_rows: int = 0  # how many rows of this set ask about information that somebody missed
    extra_info: str = ""

    @model_validator(mode="before")
    @classmethod
    def _indices_and_names(cls, record: Any) -> Any:
        if not isinstance(record, dict):
            return record
        question_type, gold = str(record.get("question_type", "")), record.get("correct_answer")
        # In a file that mixes kinds the whole column is text, so the index of a choice is text too.
        if question_type.endswith(":multiple-choice") and isinstance(gold, str) and _INDEX.fullmatch(gold):
            return {**record, "correct_answer": int(gold)}
        if question_type.endswith(":list"):
            answers = {key: record.get(key) for key in ("correct_answer", "wrong_answer")}
            return {**record, **{key: _names(value) for key, value in answers.items() if value is not None}}
        return record

    @property
    def official_id(self) -> re.Match[str] | None:
        """The official name of the question set, with its conversation as the first group; None for other names."""
        return _OFFICIAL_ID.fullmatch(self.set_id)

    @property
    def kind(self) -> Kind:
        """The kind of a question type such as "tom:belief:inaccessible:multiple-choice" or "fact".

        Raises:
            ValueError: an unknown type.
        """
        if self.question_type.startswith("fact"):
            return "fact"
        kind = _KINDS.get(self.question_type.rsplit(":", 1)[-1])
        if kind is None:
            raise ValueError(
                f"question_type: {self.question_type!r} is not fact, *:multiple-choice, *:list or *:binary"
            )
        return kind


def _names(value: Any) -> Any:
    """A list of names. "No names" is written as "", as a list or as null; a blank is not a name."""
    is_literal = not isinstance(value, str) or value.lstrip().startswith("[")
    names = as_list(value) if is_literal else [name.strip() for name in value.split(",")]
    return [name for name in names if str(name).strip()] if isinstance(names, list) else names
