"""TwinVoice: which reply did this person write? (Du et al., 2025)

A row has earlier texts by a person and several replies to a new occasion, one of which is this person's own. One turn:
a letter in `<answer>`, exact match. The fields `persona` and `speaker` are for the narrative dimension, in which the
benchmark shows them too.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import AliasChoices, Field, field_validator

from soul.one_turn import LetterTask, letter_options
from soul.prompts import load_prompt
from soul.row_fields import Label, Options, Prose, drop_empty_groups, entries_of, to_prose
from soul.task_types import GroupKey, Metric, NotBlank, Row

PROMPT = load_prompt("twinvoice/policy")

# The prompt calls its options replies, so feedback must not point at "the second reply".
_PLACES = tuple(
    f"{place} {noun}" for place in ("first", "second", "third", "fourth", "last") for noun in ("reply", "response")
)


class TwinVoiceRow(Row):
    """One reply of one person, among three replies by others."""

    conversation_history: list[str] = Field(
        default=[], validation_alias=AliasChoices("conversation_history", "history")
    )
    anchor_post: NotBlank = Field(validation_alias=AliasChoices("anchor_post", "context"))
    answer_choices: Options = Field(validation_alias=AliasChoices("answer_choices", "choices"))
    answer_idx: int
    dimension: Prose = ""
    speaker: Prose = ""
    persona: Prose = ""
    group: Label = ""  # the user, or "NOVEL:CHARACTER"

    @field_validator("conversation_history", mode="before")
    @classmethod
    def _history(cls, value: Any) -> Any:
        entries = entries_of(value)
        if isinstance(value, str) and entries == [value]:  # a text, one utterance a line
            entries = value.splitlines()
        return [text for text in map(to_prose, entries) if text]


class TwinVoice(LetterTask[TwinVoiceRow]):
    """Which of these four replies did the author of thirty earlier posts write?"""

    name = "twinvoice"
    row_type = TwinVoiceRow
    options_field = "answer_choices"
    headline = Metric("accuracy", source="paper, section 4 (Persona Simulation) and appendix C.6")
    cuts = (("conversation_history", "end"), ("persona", "start"))
    critic = load_prompt("twinvoice/critique", 3)

    def render(self, row: TwinVoiceRow) -> str:
        who = row.speaker.strip() or "this person"
        persona = f"What is known about {who}:\n{row.persona.strip()}\n\n" if row.persona.strip() else ""
        lines = "\n".join(f"- {line.strip()}" for line in row.conversation_history)
        history = f"What {who} said before:\n{lines}\n\n" if lines else ""
        options = letter_options(row.answer_choices)
        return PROMPT.fill(persona=persona, history=history, occasion=row.anchor_post, who=who, options=options)

    def gold(self, row: TwinVoiceRow) -> str:
        return list(self.options(row))[row.answer_idx]

    def secrets(self, row: TwinVoiceRow) -> Sequence[str]:
        return (*row.answer_choices, *_PLACES)

    def check(self, row: TwinVoiceRow) -> None:
        last = len(row.answer_choices) - 1
        if not 0 <= row.answer_idx <= last:
            raise ValueError(f"answer_idx: {row.answer_idx} is not among the choices, an index from 0 to {last}")

    def groups(self, row: TwinVoiceRow) -> Mapping[str, str]:
        return drop_empty_groups({"dimension": row.dimension})

    def group_keys(self, row: TwinVoiceRow) -> Sequence[GroupKey]:
        if row.group and row.dimension == "3":
            return [GroupKey.from_text("novel", row.group.rpartition(":")[0])]
        return [GroupKey.from_text("user", row.group or " ".join(row.conversation_history) or row.anchor_post)]

    def part(self, row: TwinVoiceRow) -> str:
        dimension = re.sub(r"\W+", "_", row.dimension.lower()).strip("_")
        return f"dimension_{dimension}" if dimension.isdigit() else dimension
