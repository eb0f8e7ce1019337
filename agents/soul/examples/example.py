"""An example of a task: rows that need no download, and players that answer them well, badly or at random.

An example says what a task's class cannot: what a good answer looks like. The tests that every task must pass
(`soul.examples.contract`) and the pages in docs/tasks use it, and so can you to run a task before you have its data.

The rows of SOUL's tasks are in `rows/TASK.json`:

    {"hidden": ["correct_answer"], "rotated": [["Mia", "Tom", "Ines"], ["pear", "rope"]], "rows": [{...}, {...}]}

When the rows are used up, they come again with other words: each word of a list in `rotated` becomes the next one.
"""

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal

from soul import tasks
from soul.message import Message
from soul.task import Task
from soul.task_types import RowT
from soul.testing.replies import ChatRequest, Reply

FOLDER = Path(__file__).parent / "rows"
Player = Callable[[Sequence[Message]], str]  # the messages that a seat has seen -> its next turn
Style = Literal["oracle", "contrarian", "random"]

_LETTERED = re.compile(r"([A-Z])\. ")

# Ordinary words that fit no row in particular, for random players.
WORDS = (
    "window river seldom bread yellow between carry Tuesday stone perhaps loud garden seven letter under ship morning "
    "paper slowly winter doctor apple corner music left green chair without mountain borrow"
).split()


class Example(Generic[RowT]):
    """Rows of one task, and three players for any row of it, invented or real.

    This class is enough for a one-turn task with lettered options or with a wrong answer among its `secrets`. Override
    `good` and `bad` for another one-turn task, and the three players for a dialogue.

    Attributes:
        name: the task's name (`data_source`).
        full_marks: the oracle's lowest reward, as a share of the headline's range: 1 unless a part of the score has no
            right answer.
        hidden: fields of the row that no seat's first prompt may depend on: the gold answer, a partner's secrets.
        folder: the folder of NAME.json.
    """

    name: str
    full_marks: ClassVar[float] = 1.0
    hidden: Sequence[str] = ()
    folder: ClassVar[Path] = FOLDER

    def __init__(self, name: str | None = None) -> None:
        self.name = name or self.name
        self.hidden = self.hidden or self._file.get("hidden", ())

    @property
    def task(self) -> Task[RowT]:
        """The task itself."""
        return tasks.load(self.name)

    @cached_property
    def _file(self) -> Mapping[str, Any]:
        path = self.folder / f"{self.name}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def hidden_in(self, row: RowT) -> Sequence[str]:
        """The hidden fields of this row. Override this if they differ from row to row."""
        return self.hidden

    def record(self, number: int) -> dict[str, Any]:
        """The `number`-th record (`extra_info`), from 0: the same for the same number."""
        turn, place = divmod(number, len(self._file["rows"]))
        record = self._file["rows"][place]
        return _replaced(record, _rotation(self._file["rotated"], turn)) if turn and "rotated" in self._file else record

    def good(self, row: RowT) -> str:
        """The right answer to a row, as it belongs into the answer tag."""
        target = self.task.target(row)
        assert target is not None, f"{self.name} has no right answer: override `good`"
        lettered = _LETTERED.match(target) if self._letters(row) else None
        return lettered[1] if lettered else target

    def bad(self, row: RowT) -> str:
        """A wrong answer that can be read."""
        target, good = self.task.target(row) or "", self.good(row)
        wrong = [letter for letter in self._letters(row) if f" {letter}. " not in f" {target}"]
        return next((text for text in (*wrong, *self.task.secrets(row), *WORDS) if text not in (good, target)), "")

    def _letters(self, row: RowT) -> list[str]:
        """The letters of the options; A to D if the row's text holds options that could not be parsed."""
        choices = self.task.choices(row)
        return [] if choices is None else list(choices.options) or list("ABCD")

    def oracle(self, row: RowT) -> Player:
        """A player that plays as well as possible and gets full marks, or close to them."""
        return always(f"Only one fits. <answer>{self.good(row)}</answer>")

    def contrarian(self, row: RowT) -> Player:
        """A player that answers in the right format, and as wrongly as possible."""
        return always(f"Anything but the obvious. <answer>{self.bad(row)}</answer>")

    def random(self, row: RowT, rng: random.Random) -> Player:
        """A player that answers in the right format without reading the row."""
        return always(f"<answer>{rng.choice(self._letters(row) or [self.good(row), self.bad(row)])}</answer>")

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


def always(text: str) -> Player:
    """A player that always says the same."""
    return lambda messages: text


def one_by_one(lines: Sequence[str]) -> Player:
    """A player that says these lines in order, and then repeats the last one."""
    return lambda messages: lines[min(sum(message["role"] == "assistant" for message in messages), len(lines) - 1)]


def babble(rng: random.Random, words: int) -> str:
    """A text of that many random words."""
    return " ".join(rng.choice(WORDS) for _ in range(words))


def _rotation(lists: Sequence[Sequence[str]], turns: int) -> dict[str, str]:
    """Each word -> the word that is `turns` places further in its list."""
    return {word: words[(place + turns) % len(words)] for words in lists for place, word in enumerate(words)}


def _replaced(value: Any, words: Mapping[str, str]) -> Any:
    """A JSON value with these words replaced in all its texts and keys."""
    if isinstance(value, str):
        longest_first = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
        return re.sub(rf"(?<!\w)(?:{longest_first})(?!\w)", lambda match: words[match[0]], value)
    if isinstance(value, Mapping):
        return {_replaced(key, words): _replaced(item, words) for key, item in value.items()}
    return [_replaced(item, words) for item in value] if isinstance(value, list) else value
