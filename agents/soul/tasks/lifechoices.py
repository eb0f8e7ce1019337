"""LifeChoices: what a character of a novel decides, given their life up to that point (Xu et al., 2024).

One turn: a letter in `<answer>`, exact match. Letters outside the tag do not count as an answer. As in the benchmark's
own prompt, the policy sees the character's name, and the book's title, which would let it answer from memory, is not
added. The stories of the stand-in (character_profiling) name the title themselves in 95 of 180 rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import AliasChoices, Field, model_validator

from soul.one_turn import LetterTask, letter_options
from soul.prompts import load_prompt
from soul.row_fields import Options, nested_object
from soul.task_types import GroupKey, Metric, NotBlank, Row

PROMPT = load_prompt("lifechoices/policy")
_NESTED = {"Scenario": "scenario", "Question": "question", "Options": "options", "Correct Answer": "correct_answer"}


class LifeChoicesRow(Row):
    """One decision of one character. Public files nest the question in the field "Multiple Choice Question"."""

    character_name: NotBlank
    book: str = ""  # never shown
    input_text: NotBlank = Field(validation_alias=AliasChoices("input_text", "biography"))
    scenario: str = ""
    question: NotBlank
    options: Options
    correct_answer: NotBlank  # a letter

    @model_validator(mode="before")
    @classmethod
    def _unnest(cls, record: Mapping[str, Any]) -> Any:
        nested = nested_object(record, "Multiple Choice Question")
        return {**record, **{name: nested[key] for key, name in _NESTED.items() if key in nested}}


class LifeChoices(LetterTask[LifeChoicesRow]):
    """What would Amelia do when her professor threatens her?"""

    name = "lifechoices"
    version = 3  # 3: the prompt no longer names the book
    row_type = LifeChoicesRow
    gold_field = "correct_answer"
    headline = Metric("accuracy", source="paper, section 4 (Character Role Play) and appendix C.8")
    cuts = (("input_text", "start"),)
    critic = load_prompt("lifechoices/critique", 3)

    def render(self, row: LifeChoicesRow) -> str:
        scenario = f"Scenario:\n{row.scenario.strip()}\n\n" if row.scenario.strip() else ""
        asked = {"scenario": scenario, "question": row.question, "options": letter_options(row.options)}
        return PROMPT.fill(name=row.character_name, life=row.input_text, **asked)

    def group_keys(self, row: LifeChoicesRow) -> Sequence[GroupKey]:
        return [
            GroupKey.from_title(row.book) if row.book.strip() else GroupKey.from_text("character", row.character_name)
        ]
