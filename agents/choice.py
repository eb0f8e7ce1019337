"""What the one-turn tasks with a definite answer share: the prompt's frame, the strict answer tag, the critique.

The answer is read from the tag that the prompt asks for and from nowhere else: a stray letter is not an answer.
Such tasks score by rule and ask the judge for the critique alone.
"""

from __future__ import annotations

import ast
import json
import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, runtime_checkable

from pydantic import BaseModel, Field

from agents.judge import Judge, Role
from agents.policy import Players
from agents.prompts import Prompt, load_prompt
from agents.task import Episode, Message, RowT, Task, Verdict

_THINK_TAG = re.compile(r"<(/?)(?:seed:)?think>", re.IGNORECASE)
_ANSWER = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.DOTALL | re.IGNORECASE)
_LETTER = re.compile(r"\(?([A-Za-z])\)?\.?")
_OPTION = re.compile(r"(?:^|,\s*|\n\s*)([A-Z])[.)]\s+(.*?)\s*(?=(?:,\s*|\n\s*)[A-Z][.)]\s|\Z)", re.DOTALL)


def without_thinking(text: str) -> str:
    """What was said: the text outside of think blocks.

    An unclosed block swallows the rest, because no answer followed it. Before a lone closing tag everything is thought:
    the chat templates of thinking models open the block in the prompt.
    """
    said: list[str] = []
    position, inside, tags = 0, False, 0
    for tag in _THINK_TAG.finditer(text):
        closes = bool(tag.group(1))
        if not closes and not inside:
            said.append(text[position : tag.start()])
            inside = True
        elif closes:
            if not inside and tags > 0:  # a stray tag after a proper block
                said.append(text[position : tag.start()])
            position, inside = tag.end(), False
        tags += 1
    return "".join(said) + ("" if inside else text[position:])


def tagged_answer(text: str) -> str | None:
    """The text of the last `<answer>` tag after thinking; None where there is none, or no letter or digit in it."""
    found = _ANSWER.findall(without_thinking(text))
    answer = found[-1].strip() if found else ""
    return answer if any(character.isalnum() for character in answer) else None


def tagged_letter(text: str) -> str | None:
    """The option letter in the answer tag, upper case. "B", "(b)" and "B." are letters; "B because .." is not."""
    answer = tagged_answer(text)
    match = _LETTER.fullmatch(answer) if answer is not None else None
    return match.group(1).upper() if match else None


def parse_options(choices: str) -> dict[str, str]:
    """Options written as "A. x, B. y": letter -> text."""
    return {letter: text for letter, text in _OPTION.findall(choices.strip())}


def letter_options(texts: list[str]) -> str:
    """Options written one a line, "A. x"."""
    return "\n".join(f"{chr(ord('A') + i)}. {text}" for i, text in enumerate(texts))


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


def named(answer: str, names: Iterable[str]) -> set[str]:
    """Those of the names (places, people) that the answer holds, as whole words, without regard to case, blanks and
    underscores. Where one name stands within another ("box", "red box"), the longer one is what was named."""
    found = set()
    for name in sorted(set(names), key=lambda name: (-len(name), name)):
        words = r"[\s_]+".join(re.escape(word) for word in re.split(r"[\s_]+", name.strip()))
        answer, count = re.subn(rf"(?<![\w]){words}(?![\w])", "\0", answer, flags=re.IGNORECASE)
        if count:
            found.add(name)
    return found


class Critique(BaseModel):
    """What the judge of a task with a definite answer is asked for."""

    critique: str = Field(min_length=1)


class OneTurnTask(Task[RowT], Generic[RowT]):
    """A task of one policy turn: the prompt is rendered, the policy answers, a rule scores, a judge criticises.

    A task whose judge scores as well overrides `judge` and `feedback`, and says so in `calls_per_episode`.
    """

    calls_per_episode: ClassVar[Mapping[Role, float]] = {}
    calls_per_feedback: ClassVar[float] = 1.0
    critic: ClassVar[Prompt] = load_prompt("choice/critique")  # the instructions of the judge that writes the critique

    @abstractmethod
    def render(self, row: RowT, feedback_block: str) -> str:
        """The user message; `feedback_block` is "" or a paragraph to set before the question."""

    @abstractmethod
    def reference(self, row: RowT) -> str:
        """The gold answer in words, for the judge that writes the critique. The policy never sees it."""

    def system(self, row: RowT) -> str | None:
        """The system message, where the task has one."""
        return None

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


class LetterTask(OneTurnTask[RowT], Generic[RowT]):
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

    def vote(self, row: RowT, episode: Episode) -> str | None:
        letter = tagged_letter(episode.answer)
        return letter if letter in self.options(row) else None

    async def judge(self, row: RowT, episode: Episode, judge: Judge) -> Verdict:
        letter = tagged_letter(episode.answer)
        correct = float(letter == self.gold(row))
        return Verdict(correct, {"accuracy": correct, "answered": float(letter in self.options(row))})


def feedback_paragraph(feedback: str | None) -> str:
    """The paragraph that carries the feedback into a one-turn prompt; "" without feedback."""
    if feedback is None:
        return ""
    return f"A coach read your earlier attempt at this exercise and said:\n{feedback}\nTry again with this in mind.\n\n"
