"""What an example of a task is: rows that nobody has to download, and people who play them well, badly or at random.

An example says what a task's class cannot: what a good answer looks like. It serves the tests that every task must pass
(`soul.testing.contract`), the pages of docs/tasks, and whoever wants to see a task run before he has its data.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal

from soul import tasks
from soul.message import Message
from soul.one_turn import LetterTask
from soul.task import RowT, Task
from soul.testing.replies import ChatRequest, Reply

Player = Callable[[Sequence[Message]], str]  # what a seat says next, after the messages it has seen
Style = Literal["oracle", "contrarian", "random"]

# Words that say something and fit nowhere in particular: what a random player talks with.
WORDS = (
    "window river seldom bread yellow between carry Tuesday stone perhaps loud garden seven letter under ship morning "
    "paper slowly winter doctor apple corner music left green chair without mountain borrow"
).split()


class Example(ABC, Generic[RowT]):
    """Rows of one task, and three players for any row of it, invented or real.

    Attributes:
        name: the task's name (`data_source`).
        full_marks: what the oracle gets at least, as a share of the headline's range: 1 but where a part of the score
            is no matter of right and wrong.
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
        """The fields of this row that are hidden: the same in every row, unless the seat at the table decides it."""
        return self.hidden

    @abstractmethod
    def record(self, number: int) -> dict[str, Any]:
        """The `number`-th record (`extra_info`), from 0. The same number gives the same record; others differ."""

    @abstractmethod
    def oracle(self, row: RowT) -> Player:
        """Plays as well as it can be done: gets full marks, or close to them."""

    @abstractmethod
    def contrarian(self, row: RowT) -> Player:
        """Answers in the right form, and as wrongly as it can be done."""

    @abstractmethod
    def random(self, row: RowT, rng: random.Random) -> Player:
        """Answers in the right form, without having read the row."""

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
        """What this task's judge, partner or environment answers; None where the request is not about this task.

        Tasks that score by rule need none: whoever writes a critique is answered for in `endpoint.py`.
        """
        return None


class LetterExample(Example[RowT], Generic[RowT]):
    """An example of a task whose answer is one option's letter."""

    @property
    def letters(self) -> LetterTask[RowT]:
        """The task, as what it is."""
        task = self.task
        assert isinstance(task, LetterTask), task
        return task

    def oracle(self, row: RowT) -> Player:
        return always(f"Only one fits. <answer>{self.letters.gold(row)}</answer>")

    def contrarian(self, row: RowT) -> Player:
        wrong = next(letter for letter in self.letters.options(row) if letter != self.letters.gold(row))
        return always(f"Anything but the obvious. <answer>{wrong}</answer>")

    def random(self, row: RowT, rng: random.Random) -> Player:
        return always(f"<answer>{rng.choice(list(self.letters.options(row)))}</answer>")


def always(text: str) -> Player:
    """A player who says the same, whatever he hears."""
    return lambda messages: text


def babble(rng: random.Random, words: int) -> str:
    """That many words at random."""
    return " ".join(rng.choice(WORDS) for _ in range(words))


def pick(items: Sequence[Any], number: int, stride: int = 1) -> Any:
    """The item for a record of that number; `stride` makes two lists turn at different speeds."""
    return items[number // stride % len(items)]


def shuffled(items: Mapping[str, Any] | Sequence[Any], number: int, salt: str) -> list[Any]:
    """The items in an order that depends on the record's number alone."""
    found = list(items)
    random.Random(f"{salt}:{number}").shuffle(found)
    return found
