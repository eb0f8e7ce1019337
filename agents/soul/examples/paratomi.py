"""ParaToMi: stories with questions about where people look for a thing that was moved."""

from __future__ import annotations

import random
from typing import Any

from soul.examples.example import WORDS, Example, Player, always, pick, shuffled
from soul.examples.places import moved
from soul.tasks.paratomi import ParaToMiRow


class ParaToMiExample(Example[ParaToMiRow]):
    """Stories in which one of two people sees a thing being moved: where is it, where was it, who looks where?"""

    name = "paratomi"
    hidden = ("correct_answer", "qType")

    def record(self, number: int) -> dict[str, Any]:
        story = moved(number)
        leaver, mover, thing = story.leaver, story.mover, story.thing
        question, answer, kind = pick(
            (
                (f"Where will {leaver} look for the {thing}?", story.believed((leaver,)), "first_order_0_tom"),
                (f"Where will {mover} look for the {thing}?", story.believed((mover,)), "first_order_1_no_tom"),
                (
                    f"Where does {mover} think that {leaver} searches for the {thing}?",
                    story.believed((mover, leaver)),
                    "second_order_0_tom",
                ),
                (f"Where is the {thing} really?", story.believed(()), "reality"),
                (f"Where was the {thing} at the beginning?", story.containers[0], "memory"),
            ),
            number,
        )
        return {
            "story": story.sentences,
            "question": question,
            "cands": shuffled([*story.containers, story.room], number, self.name),
            "correct_answer": answer,
            "qType": kind,
        }

    def oracle(self, row: ParaToMiRow) -> Player:
        return always(f"I followed who saw what. <answer>{row.correct_answer}</answer>")

    def contrarian(self, row: ParaToMiRow) -> Player:
        return always(f"Anything but the obvious. <answer>{self._places(row)[0]}</answer>")

    def random(self, row: ParaToMiRow, rng: random.Random) -> Player:
        return always(f"<answer>{rng.choice([row.correct_answer, *self._places(row)])}</answer>")

    def _places(self, row: ParaToMiRow) -> list[str]:
        """The wrong candidates; if the row has none, words that are not a place of its story."""
        return [place for place in row.cands if place != row.correct_answer] or list(WORDS[:3])
