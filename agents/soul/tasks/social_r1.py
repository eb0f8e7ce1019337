"""Social-R1: beliefs, emotions, desires, intentions and non-literal speech in social situations (ToMBench-Hard).

One turn: a letter in `<answer>`, exact match. The options are part of the question's text, in the format of its source,
so they are parsed from there. The critique does not reveal the gold answer.
"""

import re
import string
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import model_validator

from soul.answers.extraction import tagged_letter
from soul.leaks.quotations import Choices
from soul.one_turn import LetterTask
from soul.prompts import load_prompt
from soul.row_fields import CleanText, Label, drop_empty_groups, gold_letter, user_text
from soul.task_types import Metric, NotBlank, Row

PROMPT = load_prompt("social_r1/policy")
# "A. x", "(A) x", "**A)** x", "- A: x": at the start of a line and, for capitals, within a line.
_AT_LINE_START = re.compile(r"^[ \t>*•-]*[(\[]?([A-Za-z])(?:[)\]][.:]?|[.:、．：])[*_]*[ \t]*(?=\S)", re.MULTILINE)
_ANYWHERE = re.compile(r"(?<![\w'.])[(\[]?([A-Z])(?:[)\]][.:]?|[.:、．：])[ \t]*(?=\S)")
_LEADING_LETTER = re.compile(r"[(\[]?([A-Za-z])(?:[)\].:、．：].*)?", re.DOTALL)


def options_in(text: str) -> dict[str, str]:
    """The options that a text lists: letter -> text. The longest run A, B, C, ... counts; of several, the last.

    Options at the start of a line take precedence over options within a line.
    """
    for pattern in (_AT_LINE_START, _ANYWHERE):
        marks: dict[str, list[re.Match[str]]] = {}
        for mark in pattern.finditer(text):
            marks.setdefault(mark.group(1).upper(), []).append(mark)
        best = max((_run(start, marks) for start in reversed(marks.get("A", []))), key=len, default=[])
        if len(best) >= 2:
            return _texts(text, best)
    return {}


def _run(start: re.Match[str], marks: Mapping[str, Sequence[re.Match[str]]]) -> list[re.Match[str]]:
    """The longest run of marks A, B, C, ... that starts at this A."""
    run = [start]
    for letter in string.ascii_uppercase[1:]:
        later = marks.get(letter, [])
        place = bisect_right(later, run[-1].start(), key=lambda mark: mark.start())
        if place == len(later):
            break
        run.append(later[place])
    return run


def _texts(text: str, marks: Sequence[re.Match[str]]) -> dict[str, str]:
    starts = [mark.start() for mark in marks[1:]]
    bodies = [text[mark.end() : start].strip(" \t\n,;*") for mark, start in zip(marks, starts, strict=False)]
    # Nothing marks the end of the last option: it ends with its line if each option has one, else before a blank line.
    end = r"\n\s*\n" if any("\n" in body for body in bodies) else r"\n"
    bodies.append(re.split(end, text[marks[-1].end() :], maxsplit=1)[0].strip(" \t,;*"))
    return {mark.group(1).upper(): body for mark, body in zip(marks, bodies, strict=True) if body}


class SocialR1Row(Row):
    """One question with its options in one text: `prompt_text`, the first conversation, or a chat `prompt`."""

    prompt_text: NotBlank
    answer_letter: CleanText = ""
    answer_text: CleanText = ""
    subtask: Label = ""  # the test of ToMBench
    ability: Label = ""  # in ToMBench, as in "Emotion: Hidden emotions"

    @model_validator(mode="before")
    @classmethod
    def _find_text(cls, record: Mapping[str, Any]) -> Any:
        text = user_text(record)
        return {**record, "prompt_text": text} if text else record


def _offered(row: SocialR1Row) -> set[str]:
    """Every letter that the text formats like the letter of an option."""
    return {mark.group(1).upper() for p in (_AT_LINE_START, _ANYWHERE) for mark in p.finditer(row.prompt_text)}


class SocialR1(LetterTask[SocialR1Row]):
    """Why does Xiao Hong smile at Xiao Fang?"""

    name = "social_r1"
    row_type = SocialR1Row
    headline = Metric("accuracy", source="model card (Social-R1)")
    critic = load_prompt("social_r1/critique", 3)

    def render(self, row: SocialR1Row) -> str:
        return PROMPT.fill(text=row.prompt_text)

    def options(self, row: SocialR1Row) -> Mapping[str, str]:
        return options_in(row.prompt_text)

    def gold(self, row: SocialR1Row) -> str:
        if letter := _LEADING_LETTER.fullmatch(row.answer_letter):
            return letter.group(1).upper()
        return gold_letter(row.answer_text, self.options(row))

    def check(self, row: SocialR1Row) -> None:
        try:
            gold = self.gold(row)
        except ValueError as error:
            raise ValueError(f"answer_letter: {row.answer_letter!r} is no letter, and answer_text: {error}") from error
        options = self.options(row)
        # The parsed list may be incomplete: accept the row if its text offers the letter anywhere.
        if options and gold not in _offered(row):
            raise ValueError(f"answer_letter: {gold!r} is not among the options {options} of the text")

    def reference(self, row: SocialR1Row) -> str:
        gold = self.gold(row)
        return f"{gold}. {self.options(row).get(gold, row.answer_text)}"

    def secrets(self, row: SocialR1Row) -> Sequence[str]:
        # Letters are redacted only if there is a secret, so " " makes sure of one even if no option could be parsed.
        return tuple(dict.fromkeys((*self.options(row).values(), row.answer_text, " ")))

    def choices(self, row: SocialR1Row) -> Choices | None:
        return self.shown_choices(row, self._options_and_letters(row))

    def groups(self, row: SocialR1Row) -> Mapping[str, str]:
        return drop_empty_groups({"test": row.subtask, "ability": row.ability.partition(":")[0]})

    def read(self, row: SocialR1Row, text: str, strict: bool) -> str | None:
        return tagged_letter(text, self._options_and_letters(row), strict=strict)

    def _options_and_letters(self, row: SocialR1Row) -> Mapping[str, str]:
        """The options, plus letters without a text if the list was parsed only in part or not at all."""
        options = self.options(row)
        letters = _offered(row) | {self.gold(row)} if options else set(string.ascii_uppercase)
        return {letter: options.get(letter, "") for letter in sorted(letters)}
