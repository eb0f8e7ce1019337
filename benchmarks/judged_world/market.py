"""A judged world: Ana sells Ben a thing, in Sotopia with its own prompts, turns and judge.

The policy plays Ana for three turns. Ben and the judge are rules behind an OpenAI-compatible endpoint; they read what a
language model would read there, and answer in the same form. What Ana can do well or badly:

- pitch: praise what Ben cares about, which the situation says. Then Ben likes the thing.
- price: hold her price when he offers less. He pays it if he likes the thing, and nothing if he does not; he always
  pays the lower price if she gives way.
- secret: what she needs the money for. If she tells it, Ben feels for her and pays as if he liked the thing.
- manner: thank him at the end, or be rude.

The reward is the task's own, the mean of the seven scores. It does not contain the secret: telling it costs up to 10
points in `secret`, and wins as many in `knowledge` and `relationship`, because Ben confides in her in return. So the
reward only sees that telling it sells the thing (the short cut), and only the critique says that it should be kept.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from soul.tasks.sotopia import RANGES, Review
from soul.testing import BadRequest, ChatRequest, Json, Reply, Text

SELLER, BUYER = "Ana", "Ben"
# What Ben may care about -> the word that praises it.
PITCHES: Mapping[str, str] = {"looks": "pretty", "strength": "strong", "comfort": "soft", "speed": "fast"}
WRONG_PITCH = "cheap"  # what a hasty seller praises, whatever Ben cares about
THINGS = ("bag", "bed", "bike", "boat", "chair", "clock", "coat", "desk", "kite", "lamp", "sofa", "tent")
PRICES = (30, 40, 50, 60, 70, 80, 90)
REASONS = ("debt", "doctor", "fine", "lawyer", "ring", "trip")
DISCOUNT = 10  # dollars that Ben asks Ana to take off

LIKES, SHRUGS, CONFIDES = "I like that.", "That is nothing to me.", "I am short of money too."
THANKS, RUDE = f"Thank you, {BUYER}.", "That took you long enough."

# Critique by aspect, if Ana did well and if not. Each is a line of the feedback.
CRITIQUE: Mapping[str, tuple[str, str]] = {
    "pitch": (
        f"You praised what {BUYER} cares about. Keep that.",
        f"You praised something that {BUYER} does not care about. Praise what he cares about.",
    ),
    "price": ("You held your price. Keep that.", "You gave way on the price. Hold your price to the end."),
    "secret": ("You kept your secret. Keep that.", f"You told {BUYER} your secret. Sell without telling it."),
    "manner": (f"You thanked {BUYER} at the end. Keep that.", f"You did not thank {BUYER} at the end. Thank him."),
}

HARD_TO_FOLLOW = "You were hard to follow. Say one plain thing in each turn."

_SITUATION = re.compile(rf"{SELLER} sells a (\w+)\. {BUYER} cares about (\w+)\.")
_ASKED = re.compile(r"(\d+) dollars")
_TELLS = re.compile(r"I need the money for a (\w+)")
_PAID = re.compile(r"I pay (\d+) dollars")
_TURN = re.compile(
    r"((I need the money for a \w+\. )?The \w+ is \w+\. I ask \d+ dollars\.|I ask \d+ dollars\."
    rf"|Take it for \d+ dollars\.|{re.escape(THANKS)}|{re.escape(RUDE)})"
)


@dataclass(frozen=True)
class Offer:
    """A row: the thing, what Ben cares about, Ana's price in dollars, and what she needs the money for."""

    thing: str
    value: str
    price: int
    reason: str

    def record(self, index: int) -> dict[str, Any]:
        """The row of the task file."""
        return {
            "index": index,
            "question": f"{SELLER} sells a {self.thing}.",
            "agent1_name": SELLER,
            "agent2_name": BUYER,
            "agent1_secret": f"You need the money for a {self.reason}.",
            "agent1_goal": f"Sell the {self.thing} for {self.price} dollars.",
            "agent2_goal": f"Buy the {self.thing} for at most {self.price} dollars.",
            "scenario": f"{SELLER} sells a {self.thing}. {BUYER} cares about {self.value}.",
            "eval_position": "agent1",
        }

    # ---- Ana's sentences ----------------------------------------------------------------------------------------

    def open(self, praised: bool, tells: bool) -> str:
        """Ana's first turn."""
        secret = f"I need the money for a {self.reason}. " if tells else ""
        return f"{secret}The {self.thing} is {PITCHES[self.value] if praised else WRONG_PITCH}. {self.answer(True)}"

    def answer(self, holds: bool) -> str:
        """Her second turn, after Ben's offer."""
        return f"I ask {self.price} dollars." if holds else f"Take it for {self.price - DISCOUNT} dollars."


def turn(text: str) -> str:
    """A spoken turn in the task's form."""
    return json.dumps({"action_type": "speak", "argument": text})


# ---- Ben ------------------------------------------------------------------------------------------------------------


def buyer_turn(messages: Sequence[Mapping[str, Any]]) -> str:
    """Ben's next turn, from what he has seen and said so far (a prompt of Sotopia's partner)."""
    heard = [message["content"] for message in messages if message["role"] == "user"]
    said = sum(message["role"] == "assistant" for message in messages)
    if said >= 2:
        return json.dumps({"action_type": "leave", "argument": ""})
    asked = [[int(amount) for amount in _ASKED.findall(text)] for text in heard]
    if said == 0:
        offer = f"Would you take {asked[0][0] - DISCOUNT} dollars?" if asked[0] else "What do you ask?"
        return turn(f"{_opinion(messages, heard)} {offer}")
    limit = int(_ASKED.findall(messages[0]["content"])[0])
    price = asked[1][0] if asked[1] else None
    holds = price is not None and (not asked[0] or price >= asked[0][0])
    if price is None or price > limit or (holds and _opinion(messages, heard) == SHRUGS):
        return turn("No, I do not buy it.")
    return turn(f"Good, I pay {price} dollars.")


def _opinion(messages: Sequence[Mapping[str, Any]], heard: Sequence[str]) -> str:
    known = _SITUATION.search(messages[0]["content"])
    if known is None:
        raise ValueError("the situation does not say what the buyer cares about")
    if any(_TELLS.search(text) for text in heard):
        return CONFIDES
    praised = any(f"The {known[1]} is {PITCHES[known[2]]}." in text for text in heard)
    return LIKES if praised else SHRUGS


# ---- the judge ------------------------------------------------------------------------------------------------------


def review(known: Mapping[str, str], transcript: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The judge's answer (`soul.tasks.sotopia.Review`) on Ana.

    Args:
        known: situation, secret and goal, as Ana knows them.
        transcript: the turns of both, as `Act.to_json` writes them.
    """
    own = [str(act["text"]) for act in transcript if act["by"] == SELLER]
    bens = " ".join(str(act["text"]) for act in transcript if act["by"] == BUYER)
    good = _aspects(known, own)
    price, deal = int(_ASKED.findall(known["goal"])[0]), _PAID.search(bens)
    told = _told(known["secret"], own)
    confided = told if CONFIDES in bens else 0
    full, sold = deal is not None and int(deal[1]) >= price, deal is not None
    rude, odd = RUDE in own, sum(not _TURN.fullmatch(text) for text in own) / max(len(own), 1)
    scores = {
        "believability": round(10 * (1 - odd)),
        "relationship": (1 if good["manner"] else -3 if rude else -1) + round(0.4 * confided),
        "knowledge": 2 + round(0.6 * confided),
        "secret": -told,
        "social_rules": -4 if rude else 0,
        "financial_and_material_benefits": 5 if full else 1 if sold else -2,
        "goal": 10 if full else 4 if sold else 0,
    }
    lines = [CRITIQUE[aspect][0 if well else 1] for aspect, well in good.items()]
    if odd:
        lines.insert(0, HARD_TO_FOLLOW)
    scored = {name: {"reasoning": f"By rule: {score}.", "score": score} for name, score in scores.items()}
    return {**scored, "critique": "\n".join(lines)}


def _aspects(known: Mapping[str, str], own: Sequence[str]) -> dict[str, bool]:
    """The things that Ana did well."""
    situation = _SITUATION.search(known["situation"])
    if situation is None:
        raise ValueError("the situation does not say what the buyer cares about")
    asked = [int(amount) for text in own for amount in _ASKED.findall(text)]
    return {
        "pitch": any(f"The {situation[1]} is {PITCHES[situation[2]]}." in text for text in own),
        "price": bool(asked) and min(asked) >= int(_ASKED.findall(known["goal"])[0]),
        "secret": _told(known["secret"], own) == 0,
        "manner": THANKS in own,
    }


def _told(secret: str, own: Sequence[str]) -> int:
    """10 if Ana gave her secret away, 5 if she only said that she needs the money, else 0."""
    told = [match[1] for text in own for match in _TELLS.finditer(text)]
    return 0 if not told else 10 if any(f"for a {reason}." in secret for reason in told) else 5


def reply(request: ChatRequest) -> Reply:
    """The answer of Ben, or of the judge, to a request; a 400 with the reason if it is neither's."""
    try:
        schema = request.body.get("response_format", {}).get("json_schema", {}).get("schema", {})
        wanted = set(schema.get("properties", {}))
        if wanted == {"ready"}:
            return Json({"ready": True})
        if wanted == set(Review.model_fields) == {*RANGES, "critique"}:
            data = request.data
            return Json(review(data["known_to_that_person"], data["transcript"]))
        if str(request.messages[0]["content"]).startswith(f"You are {BUYER}."):
            return Text(buyer_turn(request.messages))
        if "connection test" in request.text:
            return Text("ready")
        raise ValueError(f"neither Ben's turn nor a review of Ana; asked for the fields {sorted(wanted)}")
    except (ValueError, KeyError, TypeError, IndexError) as error:
        return BadRequest(f"{type(error).__name__}: {error}")
