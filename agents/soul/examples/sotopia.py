"""Sotopia: two people who want something from each other, with a rule-based partner and judge.

The partner says a part of what they want whenever they are asked. The judge counts words: how much of their own goal
the person stated, how much of the other's goal they learned, how much of their secret they revealed, and whether they
are kind or rude, repeat themselves or talk like an assistant.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Sequence

from soul.examples.endpoint import filled
from soul.examples.example import Example, Player, always, babble, one_by_one
from soul.metrics.overlap import normalized_tokens
from soul.tasks.sotopia import ACTIONS, RANGES, Sotopia
from soul.tasks.sotopia_row import SotopiaRow
from soul.testing.replies import ChatRequest, Json, Reply

PARTS = 3  # number of turns in which a goal is stated; more if it is long
PART_WORDS = 150  # at most, in one turn
KIND = frozenset("please thank thanks glad sorry kind welcome".split())
RUDE = frozenset("fool idiot liar stupid".split())
ASSISTANT = re.compile(r"\bas an ai\b|\blanguage model\b|\bhow can i (?:help|assist)\b", re.IGNORECASE)


class SotopiaExample(Example[SotopiaRow]):
    """People with goals, limits and secrets. The policy plays the visitor in one row and the host in the next."""

    name = "sotopia"

    def hidden_in(self, row: SotopiaRow) -> tuple[str, ...]:
        return tuple(f"{row.partner_position}_{field}" for field in ("background", "secret", "goal"))

    def oracle(self, row: SotopiaRow) -> Player:
        """States the goal bit by bit, asks for the other's wishes, is kind, and leaves when everything is said."""
        goal = _parts(row.of(row.eval_position, "goal"))
        asks = [_turn("speak", f"Thank you. To be clear: {part}. What do you want, please?") for part in goal]
        return one_by_one([*asks, _turn("leave", "")])

    def contrarian(self, row: SotopiaRow) -> Player:
        """Repeats one line that is rude, reveals the secret and says nothing about the goal."""
        secret = row.of(row.eval_position, "secret")
        return always(_turn("speak", f"You fool, I am a language model. {secret}"))

    def random(self, row: SotopiaRow, rng: random.Random) -> Player:
        return lambda messages: _turn("speak", babble(rng, 12))

    def reply(self, request: ChatRequest) -> Reply | None:
        if request.asks(Sotopia.critic):
            return _review(request)
        return Json(_partner(request)) if ACTIONS.partition("{")[0] in request.text else None


def _turn(kind: str, argument: str) -> str:
    return json.dumps({"action_type": kind, "argument": argument}, ensure_ascii=False)


def _parts(goal: str) -> list[str]:
    """The goal, divided into the parts that a person states one by one."""
    words = goal.split()
    size = min(PART_WORDS, math.ceil(len(words) / PARTS))
    return [" ".join(words[start : start + size]) for start in range(0, len(words), size)]


def _partner(request: ChatRequest) -> dict[str, str]:
    """The partner's turn: the next part of their goal if they were asked something, else a polite phrase."""
    goal = re.search(r"^## Your goal\n(.*?)(?=\n\n## )", request.messages[0]["content"], re.MULTILINE | re.DOTALL)
    heard = [message["content"] for message in request.messages[1:] if message["role"] == "user"]
    parts, asked = _parts(goal.group(1) if goal else ""), sum("?" in turn for turn in heard)
    if "?" not in heard[-1] or asked > len(parts):
        return {"action_type": "speak", "argument": "I see. I have said what I have to say."}
    return {"action_type": "speak", "argument": f"Since you ask: {parts[asked - 1]}"}


def _review(request: ChatRequest) -> Reply:
    """Score the seven dimensions by counting words of the transcript."""
    data = request.data
    me, known = data["person_to_be_judged"], data["known_to_that_person"]
    other = data["hidden_from_that_person"]["the_other"]
    own = [turn["text"] for turn in data["transcript"] if turn["by"] == me and turn["text"]]
    others = [turn["text"] for turn in data["transcript"] if turn["by"] != me]
    goal = _share_mentioned(known["goal"], own)
    public = " ".join((known["goal"], known["situation"], known["background"], known["relationship"]))
    kind, rude = (sum(bool(words & {*normalized_tokens(text)}) for text in own) / len(own) for words in (KIND, RUDE))
    odd = sum(bool(ASSISTANT.search(text)) or text in own[:number] for number, text in enumerate(own)) / len(own)
    quality = {
        "believability": 1 - odd,
        "relationship": (1 + kind - rude) / 2,
        "knowledge": _share_mentioned(other["goal"], others),
        "secret": 1 - _share_mentioned(known["secret"], own, public),
        "social_rules": 1 - rude,
        "financial_and_material_benefits": goal,
        "goal": goal,
    }
    scores = {name: round(low + quality[name] * (high - low)) for name, (low, high) in RANGES.items()}
    judged = {name: {"reasoning": f"{quality[name]:.0%} of it.", "score": score} for name, score in scores.items()}
    weakest = min(quality, key=lambda name: quality[name]).replace("_", " ")
    critique = f"Your weakest side was this one: {weakest}. Say plainly what you came for, ask, and stay kind."
    return filled(request, 0.5, **judged, critique=critique)


def _share_mentioned(text: str, turns: Sequence[str], public: str = "") -> float:
    """The share of a text's informative words that the turns mention, ignoring words of the public text."""
    words = _informative(text) - _informative(public)
    return len(words & _informative(" ".join(turns))) / len(words) if words else 0.0


def _informative(text: str) -> set[str]:
    """The informative words: those with a digit, and those with more than four letters."""
    return {word for word in normalized_tokens(text) if len(word) > 4 or any(map(str.isdigit, word))}
