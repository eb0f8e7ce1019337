"""Common parts of the one-turn tasks: building the prompt, reading the answer by rule, and asking for a critique.

Tasks with a definite answer read it with `soul.answers.extraction`, in training and in evaluation. They score by rule
and ask the judge only for the critique.
"""

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast, runtime_checkable

from pydantic import BaseModel, Field

from soul.answers.extraction import asked_form, missing_answer, tagged_letter
from soul.judge import Judge, Role
from soul.leaks.quotations import Choices
from soul.message import Message
from soul.policy import Players
from soul.prompts import Prompt, load_prompt
from soul.row_fields import gold_letter, options_by_letter
from soul.task import Task
from soul.task_types import Direction, Episode, RowT, Verdict

_OPTION = re.compile(r"(?:^|,\s*|\n\s*)([A-Z])[.)]\s+(.*?)\s*(?=(?:,\s*|\n\s*)[A-Z][.)]\s|\Z)", re.DOTALL)

ClassT = TypeVar("ClassT")


def parse_options(choices: str) -> dict[str, str]:
    """Parse options written as "A. x, B. y" into letter -> text."""
    return dict(_OPTION.findall(choices.strip()))


def letter_options(texts: Sequence[str]) -> str:
    """Format options with letters, one per line: "A. x"."""
    return "\n".join(f"{letter}. {text}" for letter, text in options_by_letter(texts).items())


def with_letter(letter: str, options: Mapping[str, str]) -> str:
    """An option with its letter, as in "B. the green box"; only the letter if the option's text is unknown."""
    return f"{letter}. {options[letter]}" if options.get(letter) else letter


class Critique(BaseModel):
    """The judge's answer for a task that is scored by rule."""

    critique: str = Field(min_length=1)


class OneTurnTask(Task[RowT], Generic[RowT]):
    """A task with one policy turn: the policy answers a prompt, a rule scores the answer, and a judge criticises it.

    A task whose judge also scores overrides `judge` and `feedback`, and counts the call in `calls_per_episode`.
    """

    calls_per_episode: Mapping[Role, float] = {}
    calls_per_feedback: ClassVar[float] = 1.0
    critic: ClassVar[Prompt] = load_prompt("choice/critique", 3)  # instructions for the judge that writes the critique

    @abstractmethod
    def render(self, row: RowT) -> str:
        """The user message; with feedback, a paragraph follows it."""

    @abstractmethod
    def gold(self, row: RowT) -> str:
        """The right answer."""

    def reference(self, row: RowT) -> str:
        """The right answer as text, for the judge that writes the critique. The policy never sees it."""
        return self.gold(row)

    def secrets(self, row: RowT) -> Sequence[str]:
        return (self.gold(row),)

    def system(self, row: RowT) -> str | None:
        """The system message, if the task has one."""
        return None

    def target(self, row: RowT) -> str | None:
        return self.reference(row)

    def given(self, row: RowT, episode: Episode) -> str | None:
        return self.vote(row, episode) if isinstance(self, Voting) else None

    def prompt(self, row: RowT, feedback: str | None = None) -> list[Message]:
        system = self.system(row)
        messages: list[Message] = [{"role": "system", "content": system}] if system else []
        return [*messages, {"role": "user", "content": with_feedback(self.render(row), feedback)}]

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
        return (await judge.ask(Critique, self.critic, data, policy_texts=[episode.answer])).critique


@runtime_checkable
class Voting(Protocol):
    """A task whose answers can be counted, so that several samples of a row have a majority (self-consistency)."""

    def vote(self, row: Any, episode: Episode) -> str | None:
        """The answer in a form that does not depend on wording; None for none. Equal votes earn equal rewards."""


class AnswerTask(OneTurnTask[RowT], Generic[RowT]):
    """A one-turn task whose answer is read from `<answer>` by rule: a letter, a place, names, a number.

    Args:
        strict_answers: read answers as the paper's code does (`tasks.NAME.strict_answers=true`): "B" and "(b)." are
            answers, "**B**" and "B: green_box" are not. Every verdict reports two metrics that are 1.0 or 0.0:
            `answered` (the selected reader found an answer) and `answered_strict` (the strict reader found one).
    """

    version: ClassVar[int] = 2
    better: Mapping[str, Direction] = {"answered": "higher", "answered_strict": "higher"}

    def __init__(self, strict_answers: bool = False) -> None:
        if not isinstance(strict_answers, bool):
            raise ValueError(f"strict_answers={strict_answers!r}: use true or false")
        self.strict_answers = strict_answers

    @abstractmethod
    def read(self, row: RowT, text: str, strict: bool) -> str | None:
        """Read the answer from the policy's text; None if there is none. Equal results earn the same reward."""

    def shown_choices(self, row: RowT, options: Mapping[str, str]) -> Choices:
        """The lettered options, with the prompt that shows them."""
        return Choices(options, "\n".join(message["content"] for message in self.prompt(row)))

    def answer_of(self, row: RowT, episode: Episode) -> str | None:
        """The answer of an episode, according to the selected reader."""
        return self.read(row, episode.answer, self.strict_answers)

    def missing_form(self, row: RowT, episode: Episode) -> str | None:
        if self.answer_of(row, episode) is not None:
            return None
        form = asked_form("\n".join(message["content"] for message in self.prompt(row)))
        return missing_answer(episode.answer) + (f" End with your answer in this form: {form}" if form else "")

    def reading_metrics(self, row: RowT, episode: Episode) -> dict[str, float]:
        """`answered` and `answered_strict`, for the verdict."""
        strict = self.read(row, episode.answer, True)
        return {
            "answered": float(self.answer_of(row, episode) is not None),
            "answered_strict": float(strict is not None),
        }


class ExactTask(AnswerTask[RowT], Generic[RowT]):
    """A one-turn task whose answer is right or wrong. The metric `accuracy_strict` is what the strict reader scores."""

    better: Mapping[str, Direction] = {**AnswerTask.better, "accuracy_strict": "higher"}

    def is_right(self, row: RowT, answer: str) -> bool:
        """True if an answer that `read` found is right."""
        return answer == self.gold(row)

    def part(self, row: RowT) -> str:
        """The part of the task that has an accuracy of its own, such as "order_2"; "" for none."""
        return ""

    def vote(self, row: RowT, episode: Episode) -> str | None:
        return self.answer_of(row, episode)

    async def judge(self, row: RowT, episode: Episode, judge: Judge) -> Verdict:
        answer, strict = self.answer_of(row, episode), self.read(row, episode.answer, True)
        correct, strictly = (float(text is not None and self.is_right(row, text)) for text in (answer, strict))
        metrics = {"accuracy": correct, "accuracy_strict": strictly, **self.reading_metrics(row, episode)}
        return Verdict(correct, metrics | ({f"accuracy_{part}": correct} if (part := self.part(row)) else {}))


class OptionTask(AnswerTask[RowT], Generic[RowT]):
    """A one-turn task whose answer names options by their letters.

    By default a row has the options as a list of texts and the right one as a letter or a text. Otherwise override
    `options` (letter -> text, in the order they are shown) and `gold` (the right letter).
    """

    options_field: ClassVar[str] = "options"
    gold_field: ClassVar[str] = "gold"  # a message about a row whose answer is not an option names it too

    def options(self, row: RowT) -> Mapping[str, str]:
        return options_by_letter(getattr(row, self.options_field))

    def gold(self, row: RowT) -> str:
        return gold_letter(getattr(row, self.gold_field), self.options(row))

    def reference(self, row: RowT) -> str:
        letter = self.gold(row)
        return f"{letter}. {self.options(row)[letter]}"

    def check(self, row: RowT) -> None:
        try:
            self.gold(row)
        except ValueError as error:
            raise ValueError(f"{self.gold_field}: {error}") from error

    def secrets(self, row: RowT) -> Sequence[str]:
        return tuple(self.options(row).values())

    def choices(self, row: RowT) -> Choices | None:
        return self.shown_choices(row, self.options(row))


class LetterTask(OptionTask[RowT], ExactTask[RowT], Generic[RowT]):
    """A one-turn task whose answer is one option's letter in `<answer>`: exact match."""

    def read(self, row: RowT, text: str, strict: bool) -> str | None:
        return tagged_letter(text, self.options(row), strict=strict)

    def given(self, row: RowT, episode: Episode) -> str | None:
        letter = self.vote(row, episode)
        options = self.options(row)
        if letter is not None and letter not in options and letter == self.gold(row):
            return self.target(row)  # the row does not list this option, but the target has its text
        return letter and with_letter(letter, options)


def with_feedback(prompt: str, feedback: str | None) -> str:
    """The prompt, with the feedback as its last paragraph if there is any.

    Feedback comes last so that the prompts of a draft and of its refined answer begin alike: the sampler's prefix cache
    and the trainer's prefix tree compute the common part once.
    """
    if feedback is None:
        return prompt
    coach = f"A coach read your earlier attempt at this exercise and said:\n{feedback}\nTry again with this in mind."
    return f"{prompt}\n\n{coach}"


def variant(base: type[ClassT], class_name: str, doc: str, **attributes: Any) -> type[ClassT]:
    """A subclass of `base` with these attributes, to be assigned to `class_name` in the module of `base`."""
    body = {"__module__": base.__module__, "__doc__": doc, **attributes}
    return cast(type[ClassT], type(class_name, (base,), body))
