"""HiToM: stories with questions about where people think that others think a thing is."""

from __future__ import annotations

import random
from typing import Any

from soul.examples.example import Example, Player, always, pick, shuffled
from soul.examples.places import moved
from soul.one_turn import parse_options
from soul.tasks.hitom import HiToMRow


class HiToMExample(Example[HiToMRow]):
    """Stories in which one of two people sees a thing being moved, with questions of order 0 to 4."""

    name = "hitom"
    hidden = ("correct_answer",)

    def record(self, number: int) -> dict[str, Any]:
        story = moved(number)
        order = number % 5
        # The last person of the chain alternates between the one who knows and the one who does not.
        ends = (story.leaver, story.mover) if number // 5 % 2 else (story.mover, story.leaver)
        chain = tuple(pick(ends, order - 1 - place) for place in range(order))
        thinks = "".join(f" {name} think" if place == 0 else f" {name} thinks" for place, name in enumerate(chain))
        options = shuffled(story.containers, number, self.name)
        return {
            "story": "\n".join(f"{place} {sentence}" for place, sentence in enumerate(story.sentences, start=1)),
            "question": f"Where does{thinks} the {story.thing} is?" if chain else f"Where is the {story.thing} really?",
            "choices": ", ".join(f"{letter}. {text}" for letter, text in zip("ABCD", options, strict=True)),
            "correct_answer": story.believed(chain),
            "deception": False,
            "story_length": 1,
            "question_order": order,
        }

    def oracle(self, row: HiToMRow) -> Player:
        right = next(letter for letter, text in parse_options(row.choices).items() if text == row.correct_answer)
        return always(f"I followed who saw what. <answer>{right}</answer>")

    def contrarian(self, row: HiToMRow) -> Player:
        wrong = next(letter for letter, text in parse_options(row.choices).items() if text != row.correct_answer)
        return always(f"Anything but the obvious. <answer>{wrong}</answer>")

    def random(self, row: HiToMRow, rng: random.Random) -> Player:
        return always(f"<answer>{rng.choice(list(parse_options(row.choices)))}</answer>")
