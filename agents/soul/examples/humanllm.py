"""HumanLLM: readers who pick the next volume of the series they are reading."""

from __future__ import annotations

import random
from typing import Any

from soul.examples.example import Example, Player, always, pick, shuffled
from soul.row_fields import options_by_letter
from soul.tasks.humanllm import RANKS, HumanLLM, HumanLLMRow

_SERIES = (
    "The Salt Road, Lanterns, A Cook's Year, Deep Harbour, The Clockmaker, Nine Winters, Small Gods of the Fen, "
    "Rope and Sail, The Tin Palace, Letters to Ida, Under Birches, The Quiet Jury, Ferrymen, Red Chalk, "
    "The Long Allotment, Night Trains, Widow's Walk, Bread and Ink, The Ninth Gate Keeper, Owls of the Weir"
).split(", ")
_READERS = ("a postman of 52", "a student of 19", "a widow who reads at night", "a baker with two hours a day")


class HumanLLMExample(Example[HumanLLMRow]):
    """A user who has read three volumes. The candidates are the fourth volume and the first volumes of other series."""

    name = "humanllm"
    hidden = ("answer_text", "answer_index", "answer_letter")

    def record(self, number: int) -> dict[str, Any]:
        series = pick(_SERIES, number)
        read = "\n".join(f"- {series}, volume {volume}" for volume in (1, 2, 3))
        taken = f"{series}, volume 4"
        others = [f"{title}, volume 1" for title in _SERIES if title != series]
        candidates = shuffled([taken, *others], number, self.name)
        place = candidates.index(taken)
        return {
            "prompt_text": f"The user is {pick(_READERS, number, len(_SERIES))} and has read:\n{read}",
            "candidates": candidates,
            "answer_index": place,
            "answer_letter": list(options_by_letter(candidates))[place],
            "answer_text": taken,
        }

    def oracle(self, row: HumanLLMRow) -> Player:
        gold, others = self._split(row)
        return _ranking([gold, *others])

    def contrarian(self, row: HumanLLMRow) -> Player:
        gold, others = self._split(row)
        return _ranking([*others, gold])

    def random(self, row: HumanLLMRow, rng: random.Random) -> Player:
        letters = list(options_by_letter(row.candidates))
        return _ranking(rng.sample(letters, len(letters)))

    def _split(self, row: HumanLLMRow) -> tuple[str, list[str]]:
        """The letter of the item that the user picked, and the other letters."""
        task = self.task
        assert isinstance(task, HumanLLM)
        gold = task.gold(row)
        return gold, [letter for letter in options_by_letter(row.candidates) if letter != gold]


def _ranking(letters: list[str]) -> Player:
    return always(f"The likeliest first. <answer>{', '.join(letters[:RANKS])}</answer>")
