"""LifeChoices: what a character of a novel decides, told by the life up to that point (Xu et al., 2024).

One turn, a letter in `<answer>`, exact match. Row schema: original code base, section 4.3. Its parser took the first
A to D of any text for an answer; here the tag counts and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import AliasChoices, Field, field_validator, model_validator

from soul.one_turn import LetterTask, letter_options
from soul.prompts import load_prompt
from soul.rows.parsing import gold_letter, option_texts, options_by_letter, parse_literal
from soul.task import GroupKey, Metric, NotBlank, Row

RULES = """\
You get to know a character of a book by what happened so far, and then you stand where this character stood. Decide \
as this person would, from the traits, experiences, ties and aims that the story shows: not what would be wisest or \
kindest, and not what you yourself would do."""

FORM = (
    "Think step by step about who this person is and what weighs most at this moment, then give the letter of your "
    "choice in this form: <answer>LETTER</answer>"
)

_NESTED = {"Scenario": "scenario", "Question": "question", "Options": "options", "Correct Answer": "correct_answer"}


class LifeChoicesRow(Row):
    """One decision of one character. The original nests the question in "Multiple Choice Question"."""

    character_name: NotBlank
    book: str = ""
    input_text: NotBlank = Field(validation_alias=AliasChoices("input_text", "biography"))
    scenario: str = ""
    question: NotBlank
    options: list[str]
    correct_answer: NotBlank  # a letter

    @model_validator(mode="before")
    @classmethod
    def _unnest(cls, record: Any) -> Any:
        nested = record.get("Multiple Choice Question") if isinstance(record, Mapping) else None
        if nested is None:
            return record
        nested = parse_literal(nested)
        if not isinstance(nested, Mapping):
            raise ValueError(f"Multiple Choice Question: expected an object, got {type(nested).__name__}")
        found = {name: nested[key] for key, name in _NESTED.items() if nested.get(key) is not None}
        return {**record, **found}

    @field_validator("options", mode="before")
    @classmethod
    def _options(cls, value: Any) -> Any:
        return option_texts(value)


class LifeChoices(LetterTask[LifeChoicesRow]):
    """What would Amelia do when her professor threatens her?"""

    name = "lifechoices"
    row_type = LifeChoicesRow
    headline = Metric("accuracy", source="paper, section 4 (Character Role Play) and appendix C.8")
    cuts = (("input_text", "start"),)
    critic = load_prompt("lifechoices/critique", 2)

    def render(self, row: LifeChoicesRow, feedback_block: str) -> str:
        book = f" (from {row.book.strip()})" if row.book.strip() else ""
        scenario = f"Scenario:\n{row.scenario.strip()}\n\n" if row.scenario.strip() else ""
        return (
            f"{RULES}\n\nCharacter: {row.character_name}{book}\n\nLife so far:\n{row.input_text}\n\n{scenario}"
            f"{feedback_block}Question: {row.question}\nOptions:\n{letter_options(row.options)}\n\n{FORM}"
        )

    def options(self, row: LifeChoicesRow) -> Mapping[str, str]:
        return options_by_letter(row.options)

    def gold(self, row: LifeChoicesRow) -> str:
        return gold_letter(row.correct_answer, self.options(row))

    def check(self, row: LifeChoicesRow) -> None:
        try:
            self.gold(row)
        except ValueError as error:
            raise ValueError(f"correct_answer: {error}") from error

    def group_keys(self, row: LifeChoicesRow) -> Sequence[GroupKey]:
        return [
            GroupKey.from_title(row.book) if row.book.strip() else GroupKey.from_text("character", row.character_name)
        ]
