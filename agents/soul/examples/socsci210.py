"""SocSci210: people with firm views who answer on all three kinds of scales."""

from __future__ import annotations

import random
from typing import Any

from soul.examples.example import Example, Player, always, pick
from soul.tasks.socsci210 import SocSci210Row

# A person, and how much they favour plans in general, from 0 to 1.
_PEOPLE = (
    ("You are a farmer of 61 who is against whatever is new.", 0.0),
    ("You are a nurse of 34; most things leave you cold.", 0.5),
    ("You are a student of 20, and in favour of anything that changes something.", 1.0),
    ("You are a retired teacher, hopeful by nature, but careful.", 0.75),
    ("You run a small shop, and suspect that most plans cost you money.", 0.25),
)
_PLANS = (
    "a toll on the bridge, a ban on fireworks, later school hours, free buses, a second library, higher parking fees, "
    "a wind farm by the lake"
).split(", ")
_KINDS = ("ordinal", "binary", "categorical")
_ASKED = {
    "ordinal": "How much are you for it? Only return a number from 1 = not at all to 7 = fully.",
    "binary": "Would you vote for it? Answer 1 for yes and 0 for no, and nothing else.",
    "categorical": "What should the town do? 1 = leave it, 2 = ask everybody, 3 = go ahead. Only return the number.",
}
_SCALES = {"ordinal": (1, 7), "binary": (0, 1), "categorical": (1, 3)}


class SocSci210Example(Example[SocSci210Row]):
    """Participants whose answers follow from who they are."""

    name = "socsci210"
    hidden = ("response",)

    def record(self, number: int) -> dict[str, Any]:
        person, favour = pick(_PEOPLE, number)
        plan, kind = pick(_PLANS, number), pick(_KINDS, number)
        low, high = _SCALES[kind]
        return {
            "prompt_text": f"{person} The town plans this: {plan}. {_ASKED[kind]}",
            "response": low + int(favour * (high - low) + 0.5),
            "response_type": kind,
            "r_min": low,
            "r_max": high,
        }

    def oracle(self, row: SocSci210Row) -> Player:
        return always(f"That is what this one would say. <answer>{round(row.response)}</answer>")

    def contrarian(self, row: SocSci210Row) -> Player:
        farthest = max((row.r_min, row.r_max), key=lambda end: abs(end - row.response))
        return always(f"Anything but the obvious. <answer>{round(farthest)}</answer>")

    def random(self, row: SocSci210Row, rng: random.Random) -> Player:
        return always(f"<answer>{rng.randint(round(row.r_min), round(row.r_max))}</answer>")
