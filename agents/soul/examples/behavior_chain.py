"""BehaviorChain: people whose every action follows from one trait."""

from __future__ import annotations

import json
from typing import Any

from soul.examples.example import LetterExample, pick, shuffled
from soul.tasks.behavior_chain import BehaviorChainRow

_PEOPLE = (
    ("Tess Arden", "proud", "Takes nothing from anybody", "{name} turns it down: {name} can do without {thing}."),
    ("Odo Lang", "greedy", "Has never let a bargain go by", "{name} asks what {thing} will fetch at the market."),
    ("Vera Moss", "timid", "Jumps at her own shadow", "{name} steps back, and keeps well away from {thing}."),
    (
        "Father Quill",
        "generous",
        "Gave away his last coat",
        "{name} says that others need {thing} more, and passes it on.",
    ),
    (
        "Jory Pell",
        "curious",
        "Took the church clock apart",
        "{name} turns {thing} over and over to see how it is made.",
    ),
)
_THINGS = (
    "the lamp, a loan, the boat, a sack of flour, the brass key, an accordion, the telescope, a pair of boots, "
    "the grey mare, a sealed letter, the coat, a silver spoon, the spare room"
).split(", ")


class BehaviorChainExample(LetterExample[BehaviorChainRow]):
    """A person who shows the same trait in every scene."""

    name = "behavior_chain"
    hidden = ("right_option_letter", "chain", "link", "chain_links")

    def record(self, number: int) -> dict[str, Any]:
        name, trait, deed, behaviour = pick(_PEOPLE, number)
        start = number // len(_PEOPLE)
        thing, *earlier = (pick(_THINGS, start + step) for step in range(3))
        others = [text for _, _, _, text in _PEOPLE if text != behaviour]
        options = shuffled([behaviour, *shuffled(others, number, "others")[:3]], number, name)
        link = {
            "persona_name": name,
            "profile_text": f"{name} is {trait}. {deed}.",
            "history_truncated": [{"chapter_num": 1, "chapter_content": f"{name} comes to the village in spring."}],
            "prior_chain": [
                {"context": _scene(name, old), "behavior": behaviour.format(name=name, thing=old)} for old in earlier
            ],
            "current_context": _scene(name, thing),
            "options_dict": {
                letter: text.format(name=name, thing=thing) for letter, text in zip("ABCD", options, strict=True)
            },
            "right_option_letter": "ABCD"[options.index(behaviour)],
        }
        return {"raw": json.dumps(link)}


def _scene(name: str, thing: str) -> str:
    return f"A neighbour stands at the door and offers {name} {thing}."
