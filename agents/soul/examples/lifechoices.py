"""LifeChoices: people who face a decision."""

from __future__ import annotations

from typing import Any

from soul.examples.example import LetterExample, pick, shuffled
from soul.tasks.lifechoices import LifeChoicesRow

_NAMES = ("Ada Brook", "Tom Reed", "Nils Aho", "Irene Vale", "Jo Marsh", "Berta Kron", "Sam Okoye")
_PLACES = ("the weir", "the lighthouse", "the tannery", "the orchard", "the ferry house")
_LIVES = (
    ("never forgave a brother for selling {place}", "The brother asks for shelter.", "Sends the brother away."),
    ("gave every spare coin to whoever looked after {place}", "A stranger asks for money.", "Gives what is there."),
    ("ran from every quarrel, and hid near {place}", "Two neighbours begin to shout.", "Leaves without a word."),
    ("wanted nothing but to own {place}", "It is for sale, and the price is ruinous.", "Buys it on credit."),
    ("told nobody a secret about {place} for thirty years", "A child asks about it.", "Speaks of the weather."),
)


class LifeChoicesExample(LetterExample[LifeChoicesRow]):
    """Decisions that follow from the one thing that the story says about a person."""

    name = "lifechoices"
    hidden = ("correct_answer", "book")

    def record(self, number: int) -> dict[str, Any]:
        name, place = pick(_NAMES, number), pick(_PLACES, number, len(_NAMES))
        life, scenario, choice = pick(_LIVES, number)
        others = [text for _, _, text in _LIVES if text != choice][:3]
        options = shuffled([choice, *others], number, name)
        return {
            "character_name": name,
            "book": f"The {place.split()[-1].capitalize()}, vol. {1 + number // 35}",
            "input_text": f"{name} grew up by {place} and {life.format(place=place)}. Everybody knew it.",
            "scenario": scenario,
            "question": f"What does {name} do?",
            "options": options,
            "correct_answer": "ABCD"[options.index(choice)],
        }
