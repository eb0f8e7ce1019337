"""Mistakes: the wrong answer that a student with a given misconception chooses (Ross and Andreas, 2025).

One turn: a letter in `<answer>`, exact match with the option that the misconception leads to. If it leads to several
options, `AcceptedOptions` names them all, and each of them is right. The critique coaches the student's thinking and
does not reveal the option. `CorrectAnswer` and `AcceptedOptions` are optional fields that our builder adds.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import AliasChoices, Field, model_validator

from soul.judge import Judge
from soul.one_turn import LetterTask, letter_options, with_letter
from soul.prompts import load_prompt
from soul.row_fields import CleanText, Options, gold_letter
from soul.task_types import Episode, GroupKey, Metric, NotBlank, Row, Verdict

PROMPT = load_prompt("mistakes/policy")
_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")
IMAGE = re.compile(r"!\[.*?\]\([^)]*\)", re.DOTALL)  # "![A graph of a line]()": Eedi's files have only the description
_DELIMITERS = re.compile(r"\\[()\[\]]|\$+")


class MistakesRow(Row):
    """One problem, one misconception, and the option that it leads to."""

    question: NotBlank = Field(validation_alias=AliasChoices("QuestionText", "question"))
    options: Options
    misconception: NotBlank = Field(
        validation_alias=AliasChoices("MisconceptionName", "misconception_text", "misconception")
    )
    target_option: CleanText = Field(default="", validation_alias=AliasChoices("TargetOption", "target_option"))
    target_answer: CleanText = Field(default="", validation_alias=AliasChoices("TargetAnswer", "target_answer"))
    accepted_options: list[str] = Field(
        default=[], validation_alias=AliasChoices("AcceptedOptions", "accepted_options")
    )  # letters of all right options; if absent, only the target is right
    correct_option: CleanText = Field(default="", validation_alias=AliasChoices("CorrectAnswer", "correct_option"))

    @model_validator(mode="before")
    @classmethod
    def _gather_options(cls, record: Mapping[str, Any]) -> Any:
        if record.get("options") is not None:
            return record
        columns = {letter: record.get(f"Answer{letter}Text", record.get(f"Answer{letter}")) for letter in "ABCDEF"}
        return {**record, "options": list(columns.values())} if any(columns.values()) else record


class Mistakes(LetterTask[MistakesRow]):
    """A student adds before multiplying: which answer does this student choose?"""

    name = "mistakes"
    row_type = MistakesRow
    gold_field = "target_option"
    headline = Metric("accuracy", source="paper, section 4 (Learner Simulation) and appendix C.4")
    better = {**LetterTask.better, "right_in_mathematics": "lower"}
    critic = load_prompt("mistakes/critique", 3)

    def render(self, row: MistakesRow) -> str:
        options = letter_options(row.options)
        return PROMPT.fill(misconception=row.misconception, question=row.question, options=options)

    def gold(self, row: MistakesRow) -> str:
        return gold_letter(row.target_option or row.target_answer, self.options(row))

    def check(self, row: MistakesRow) -> None:
        super().check(row)
        gold = self.gold(row)
        if gold == row.correct_option.strip().upper():
            raise ValueError(f"target_option: {gold} is the correct answer, so no misconception leads to it")
        others = {letter.strip().upper() for letter in row.accepted_options}
        if others and gold not in others:
            raise ValueError(f"accepted_options: {sorted(others)} must contain the target, {gold}")
        if wrong := sorted(letter for letter in others if letter not in self.options(row)):
            raise ValueError(f"accepted_options: {wrong[0]!r} is not an option")
        if row.correct_option.strip().upper() in others:
            raise ValueError(f"accepted_options: {row.correct_option} is the correct answer")

    def accepted(self, row: MistakesRow) -> tuple[str, ...]:
        """The letters of all options that the misconception leads to, in order."""
        return tuple(sorted({self.gold(row), *(letter.strip().upper() for letter in row.accepted_options)}))

    def reference(self, row: MistakesRow) -> str:
        return " or ".join(with_letter(letter, self.options(row)) for letter in self.accepted(row))

    def groups(self, row: MistakesRow) -> Mapping[str, str]:
        described = IMAGE.search("\n".join((row.question, *row.options))) is not None
        return {"image": "described" if described else "none"}

    def secrets(self, row: MistakesRow) -> Sequence[str]:
        # A critic writes "1/2" for "\( \frac{1}{2} \)".
        return tuple(dict.fromkeys(form for option in row.options for form in _spellings(option)))

    def group_keys(self, row: MistakesRow) -> Sequence[GroupKey]:
        return [GroupKey.from_text("question", row.question)]

    async def judge(self, row: MistakesRow, episode: Episode, judge: Judge) -> Verdict:
        verdict = await super().judge(row, episode, judge)
        correct = row.correct_option.strip().upper()
        if correct not in self.options(row):
            return verdict
        # Counts how often the policy forgets its role and solves the problem correctly.
        solved = float(self.answer_of(row, episode) == correct)
        return Verdict(verdict.reward, {**verdict.metrics, "right_in_mathematics": solved})

    def is_right(self, row: MistakesRow, answer: str) -> bool:
        return answer in self.accepted(row)


def _spellings(option: str) -> list[str]:
    """The option as it is, without math delimiters, and without LaTeX."""
    bare = _DELIMITERS.sub("", option).strip()
    plain = re.sub(r"\\([%$#&_])", r"\1", _FRACTION.sub(r"\1/\2", bare))
    return [form for form in (option, bare, plain) if form]
