"""What the one-turn tasks share: the prompt's frame, the answer that is read by rule, the critique.

Tasks with a definite answer read it with `soul.answers.extraction`, in training and in evaluation. They score by rule
and ask the judge for the critique alone.
"""

from __future__ import annotations

import ast
import json
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, runtime_checkable

from pydantic import BaseModel, Field

from soul.answers.extraction import tagged_letter
from soul.judge import Judge, Role
from soul.policy import Players
from soul.prompts import Prompt, load_prompt
from soul.rows.quotations import Choices
from soul.task import Episode, Message, RowT, Task, Verdict

_OPTION = re.compile(r"(?:^|,\s*|\n\s*)([A-Z])[.)]\s+(.*?)\s*(?=(?:,\s*|\n\s*)[A-Z][.)]\s|\Z)", re.DOTALL)


def parse_options(choices: str) -> dict[str, str]:
    """Options written as "A. x, B. y": letter -> text."""
    return {letter: text for letter, text in _OPTION.findall(choices.strip())}


def letter_options(texts: list[str]) -> str:
    """Options written one a line, "A. x"."""
    return "\n".join(f"{chr(ord('A') + i)}. {text}" for i, text in enumerate(texts))


def with_letter(letter: str, options: Mapping[str, str]) -> str:
    """ "B. the green box"; only the letter if the option's text is unknown."""
    return f"{letter}. {options[letter]}" if options.get(letter) else letter


def literal(text: str) -> Any:
    """What a text says as JSON or as a Python literal. Never evaluated.

    Raises:
        ValueError: it is neither.
    """
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue  # not in this notation
    raise ValueError("is neither a list nor a JSON or Python list literal")


def listed(value: Any) -> Any:
    """A list that arrives as JSON or as a Python literal; other values pass for pydantic to judge.

    Raises:
        ValueError: a text that is no literal, or an object: its keys are not what was meant.
    """
    value = literal(value) if isinstance(value, str) else value
    if isinstance(value, Mapping):
        raise ValueError("is an object, not a list")
    return list(value) if hasattr(value, "__iter__") and not isinstance(value, str) else value


class Critique(BaseModel):
    """What the judge of a task with a definite answer is asked for."""

    critique: str = Field(min_length=1)


class OneTurnTask(Task[RowT], Generic[RowT]):
    """A task of one policy turn: the prompt is rendered, the policy answers, a rule scores, a judge criticises.

    A task whose judge scores as well overrides `judge` and `feedback`, and says so in `calls_per_episode`.
    """

    calls_per_episode: ClassVar[Mapping[Role, float]] = {}
    calls_per_feedback: ClassVar[float] = 1.0
    critic: ClassVar[Prompt] = load_prompt("choice/critique", 3)  # the instructions of the judge that writes it

    @abstractmethod
    def render(self, row: RowT, feedback_block: str) -> str:
        """The user message; `feedback_block` is "" or a paragraph to set before the question."""

    @abstractmethod
    def reference(self, row: RowT) -> str:
        """The gold answer in words, for the judge that writes the critique. The policy never sees it."""

    def system(self, row: RowT) -> str | None:
        """The system message, where the task has one."""
        return None

    def target(self, row: RowT) -> str | None:
        return self.reference(row)

    def given(self, row: RowT, episode: Episode) -> str | None:
        return self.vote(row, episode) if isinstance(self, Voting) else None

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        return (self.critic,)

    def prompt(self, row: RowT, feedback: str | None = None) -> list[Message]:
        system = self.system(row)
        messages: list[Message] = [{"role": "system", "content": system}] if system else []
        return [*messages, {"role": "user", "content": self.render(row, feedback_paragraph(feedback))}]

    async def play(self, row: RowT, players: Players, feedback: str | None) -> Episode:
        messages = self.prompt(row, feedback)
        answer = await players.policy().say(messages, base=self.prompt(row))
        return Episode({"policy": [*messages, {"role": "assistant", "content": answer}]})

    async def feedback(self, row: RowT, episode: Episode, verdict: Verdict, judge: Judge) -> str | None:
        data: Mapping[str, Any] = {
            "task": "\n\n".join(message["content"] for message in self.prompt(row)),
            "correct_answer": self.reference(row),
            "attempt": episode.answer,
            "attempt_is_correct": verdict.reward >= self.headline.high,
        }
        return (await judge.ask(Critique, self.critic, data, said=[episode.answer])).critique


@runtime_checkable
class Voting(Protocol):
    """A task whose answers can be counted: several samples of a row then have a majority (self-consistency).

    Any task with this method is one; equal votes must be equal answers, which earn the same.
    """

    def vote(self, row: Any, episode: Episode) -> str | None:
        """The answer that an episode gave, without its wording; None where it gave none."""


class AnswerTask(OneTurnTask[RowT], Generic[RowT]):
    """A one-turn task whose answer is read from `<answer>` by rule: a letter, a place, names, a number.

    Args:
        strict_answers: read answers as the paper's code does (`tasks.NAME.strict_answers=true`): "B" and "(b)." are
            answers, "**B**" and "B: green_box" are not. Every verdict reports two metrics, 1.0 or 0.0 each: `answered`
            (the reader in use read an answer) and `answered_strict` (the strict reader did).
    """

    version: ClassVar[int] = 2

    def __init__(self, strict_answers: bool = False) -> None:
        if not isinstance(strict_answers, bool):
            raise ValueError(f"strict_answers={strict_answers!r}: use true or false")
        self.strict_answers = strict_answers

    @abstractmethod
    def read(self, row: RowT, text: str, strict: bool) -> str | None:
        """Read the answer from what the policy wrote; None if there is none. Equal readings earn the same reward."""

    def shown_choices(self, row: RowT, options: Mapping[str, str]) -> Choices:
        """Lettered options with the prompt that shows them."""
        return Choices(options, "\n".join(message["content"] for message in self.prompt(row)))

    def answer_of(self, row: RowT, episode: Episode) -> str | None:
        """The answer of an episode, as the reader in use reads it."""
        return self.read(row, episode.answer, self.strict_answers)

    def reading_metrics(self, row: RowT, episode: Episode) -> dict[str, float]:
        """`answered` and `answered_strict`, for the verdict."""
        strict = self.read(row, episode.answer, True)
        answer = strict if self.strict_answers else self.read(row, episode.answer, False)
        return {"answered": float(answer is not None), "answered_strict": float(strict is not None)}


class LetterTask(AnswerTask[RowT], Generic[RowT]):
    """A one-turn task whose answer is one option's letter in `<answer>`: exact match."""

    @abstractmethod
    def options(self, row: RowT) -> Mapping[str, str]:
        """The options: letter -> text, in the order they are shown."""

    @abstractmethod
    def gold(self, row: RowT) -> str:
        """The letter of the right option."""

    def reference(self, row: RowT) -> str:
        letter = self.gold(row)
        return f"{letter}. {self.options(row)[letter]}"

    def secrets(self, row: RowT) -> Sequence[str]:
        return tuple(self.options(row).values())

    def choices(self, row: RowT) -> Choices | None:
        return self.shown_choices(row, self.options(row))

    def read(self, row: RowT, text: str, strict: bool) -> str | None:
        return tagged_letter(text, self.options(row), strict=strict)

    def vote(self, row: RowT, episode: Episode) -> str | None:
        return self.answer_of(row, episode)

    def given(self, row: RowT, episode: Episode) -> str | None:
        letter = self.vote(row, episode)
        options = self.options(row)
        if letter is not None and letter not in options and letter == self.gold(row):
            return self.target(row)  # the text of an option that was not read from the row
        return letter and with_letter(letter, options)

    async def judge(self, row: RowT, episode: Episode, judge: Judge) -> Verdict:
        correct = float(self.answer_of(row, episode) == self.gold(row))
        return Verdict(correct, {"accuracy": correct, **self.reading_metrics(row, episode)})


def feedback_paragraph(feedback: str | None) -> str:
    """The paragraph that carries the feedback into a one-turn prompt; "" without feedback."""
    if feedback is None:
        return ""
    return f"A coach read your earlier attempt at this exercise and said:\n{feedback}\nTry again with this in mind.\n\n"
