"""An example of a task: rows that need no download, and players that answer them well, badly or at random.

An example says what a task's class cannot: what a good answer looks like. The tests that every task must pass
(`soul.examples.contract`) and the pages in docs/tasks use it, and so can you to run a task before you have its data.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal

from soul import tasks
from soul.message import Message
from soul.one_turn import LetterTask
from soul.task import Task
from soul.task_types import RowT
from soul.testing.replies import ChatRequest, Reply

Player = Callable[[Sequence[Message]], str]  # the messages that a seat has seen -> its next turn
Style = Literal["oracle", "contrarian", "random"]

# Ordinary words that fit no row in particular, for random players.
WORDS = (
    "window river seldom bread yellow between carry Tuesday stone perhaps loud garden seven letter under ship morning "
    "paper slowly winter doctor apple corner music left green chair without mountain borrow"
).split()


class Example(ABC, Generic[RowT]):
    """Rows of one task, and three players for any row of it, invented or real.

    Attributes:
        name: the task's name (`data_source`).
        full_marks: the oracle's lowest reward, as a share of the headline's range: 1 unless a part of the score has no
            right answer.
        hidden: fields of the row that no seat's first prompt may depend on: the gold answer, a partner's secrets.
    """

    name: ClassVar[str]
    full_marks: ClassVar[float] = 1.0
    hidden: ClassVar[tuple[str, ...]] = ()

    @property
    def task(self) -> Task[RowT]:
        """The task itself."""
        return tasks.load(self.name)

    def hidden_in(self, row: RowT) -> tuple[str, ...]:
        """The hidden fields of this row. Override this if they differ from row to row."""
        return self.hidden

    @abstractmethod
    def record(self, number: int) -> dict[str, Any]:
        """The `number`-th record (`extra_info`), from 0: the same for the same number, another for every other one."""

    @abstractmethod
    def oracle(self, row: RowT) -> Player:
        """A player that plays as well as possible and gets full marks, or close to them."""

    @abstractmethod
    def contrarian(self, row: RowT) -> Player:
        """A player that answers in the right format, and as wrongly as possible."""

    @abstractmethod
    def random(self, row: RowT, rng: random.Random) -> Player:
        """A player that answers in the right format without reading the row."""

    def player(self, style: Style, row: RowT, seed: int = 0) -> Player:
        """The player of that style."""
        if style == "random":
            return self.random(row, random.Random(f"{seed}:{self.name}:{row.index}"))
        return self.oracle(row) if style == "oracle" else self.contrarian(row)

    def row(self, number: int) -> RowT:
        """The `number`-th row, validated."""
        row = self.task.row_type.model_validate({"index": number, **self.record(number)})
        self.task.check(row)
        return row

    def reply(self, request: ChatRequest) -> Reply | None:
        """The reply of this task's judge, partner or environment; None if the request belongs to another task.

        Tasks that score by rule need none, because `endpoint.py` writes critiques.
        """
        return None


class LetterExample(Example[RowT], Generic[RowT]):
    """An example of a task whose answer is the letter of one option."""

    @property
    def letters(self) -> LetterTask[RowT]:
        """The task, with its precise type."""
        task = self.task
        assert isinstance(task, LetterTask), task
        return task

    def offered(self, row: RowT) -> list[str]:
        """The letters of the options."""
        return list(self.letters.options(row))

    def oracle(self, row: RowT) -> Player:
        return always(f"Only one fits. <answer>{self.letters.gold(row)}</answer>")

    def contrarian(self, row: RowT) -> Player:
        wrong = next(letter for letter in self.offered(row) if letter != self.letters.gold(row))
        return always(f"Anything but the obvious. <answer>{wrong}</answer>")

    def random(self, row: RowT, rng: random.Random) -> Player:
        return always(f"<answer>{rng.choice(self.offered(row))}</answer>")


def always(text: str) -> Player:
    """A player that always says the same."""
    return lambda messages: text


def one_by_one(lines: Sequence[str]) -> Player:
    """A player that says these lines in order, and then repeats the last one."""
    return lambda messages: lines[min(sum(message["role"] == "assistant" for message in messages), len(lines) - 1)]


def babble(rng: random.Random, words: int) -> str:
    """A text of that many random words."""
    return " ".join(rng.choice(WORDS) for _ in range(words))


def pick(items: Sequence[Any], number: int, stride: int = 1) -> Any:
    """The item for a record of that number. Lists with different strides advance at different speeds."""
    return items[number // stride % len(items)]


def shuffled(items: Mapping[str, Any] | Sequence[Any], number: int, salt: str) -> list[Any]:
    """The items in an order that depends on the record's number alone."""
    order = list(items)
    random.Random(f"{salt}:{number}").shuffle(order)
    return order
