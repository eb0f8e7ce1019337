"""CoSER: scenes of invented books, with a rule-based critic, next-speaker predictor and narrator.

The critic counts words: how much each character says of what they say in the book, and which lines sound like an
assistant, repeat another line, are too long or empty. It lists as many flaws as cost the missing share of a dimension.
"""

from __future__ import annotations

import math
import random
import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from soul.examples.endpoint import filled
from soul.examples.example import Example, Player, always, babble
from soul.message import Message
from soul.metrics.overlap import token_f1
from soul.tasks.coser import MAX_ROUNDS, CoSER
from soul.tasks.coser_review import CRITICS
from soul.tasks.coser_row import CoSERRow
from soul.tasks.coser_stage import END, ENVIRONMENT, SILENCE
from soul.testing.replies import ChatRequest, Json, Reply, Text

ASSISTANT = re.compile(r"\bas an ai\b|\blanguage model\b|\bhow (?:can|may) i (?:help|assist)\b", re.IGNORECASE)
MOST_WORDS = 200  # a longer line counts as long-winded


class CoSERExample(Example[CoSERRow]):
    """Scenes in which two people both want one thing."""

    name = "coser"

    def oracle(self, row: CoSERRow) -> Player:
        """Every character says their lines of the book in order, then only dots."""

        def say(messages: Sequence[Message]) -> str:
            name = _part(messages, row)
            lines = [line.text for line in row.reference if line.speaker == name]
            at_once = math.ceil(len(lines) / max(1, MAX_ROUNDS // len(row.speakers) - 1))
            turn = sum(message["role"] == "assistant" for message in messages)
            said = " ".join(lines[at_once * turn : at_once * (turn + 1)])
            return f"[I know what I want.] {said or '.' * (turn + 1)}"

        return say

    def contrarian(self, row: CoSERRow) -> Player:
        """All characters say the same thing and sound like an assistant."""
        return always("[How nice.] As an AI language model I agree with everyone here. How can I help you today?")

    def random(self, row: CoSERRow, rng: random.Random) -> Player:
        return lambda messages: f"[{babble(rng, 3)}] {babble(rng, 12)}"

    def reply(self, request: ChatRequest) -> Reply | None:
        for dimension, critic in CRITICS.items():
            if request.asks(critic):
                return _review(request, dimension)
        if request.asks(CoSER.predictor):
            return Json({"reasoning": "They have said least.", "next_speaker": _next_speaker(request.data)})
        if request.asks(CoSER.narrator):
            return Text(f"The wind turns, and a clock strikes {len(request.messages) // 2}.")
        return None


def _part(messages: Sequence[Message], row: CoSERRow) -> str:
    """The character whose instructions start the messages."""
    begins = "You are an actor, and you play {} in a scene from"
    return next(name for name in row.cast if messages[0]["content"].startswith(begins.format(name)))


def _spoken(lines: Sequence[str]) -> list[tuple[str, str]]:
    """(speaker, text) pairs of lines as the critic and the next-speaker predictor get them; "" for silence."""
    split = (line.partition(": ") for line in lines)
    return [(speaker, "" if text == SILENCE else text) for speaker, _, text in split]


def _next_speaker(data: Mapping[str, Any]) -> str:
    """The next speaker: the one with the fewest turns among those who may speak. The scene ends if all are silent."""
    lines, candidates = _spoken(data["conversation"]), data["candidates"]
    last, counts = dict(lines), Counter(name for name, _ in lines)
    characters = [name for name in candidates if name not in (ENVIRONMENT, END)]
    talking = [name for name in characters if last.get(name, "?")]
    if talking:
        return str(min(talking, key=lambda name: counts[name]))
    on_stage = {name: text for name, text in last.items() if name != ENVIRONMENT}
    others = [name for name in (END, ENVIRONMENT) if name in candidates]
    if any(on_stage.values()):
        others.reverse()  # prefer the narrator, after whom a character can go on
    return str([*others, *characters][0])


def _review(request: ChatRequest, dimension: str) -> Reply:
    """The flaws of one dimension, and a critique."""
    quality, turns = _qualities(request.data)
    flaws, weak = _flaws(quality[dimension], turns), dimension.replace("_", " ")
    advice = f"The cast was weak in {weak}. Let each character want something, and say it once."
    return filled(request, 0.5, flaws=flaws, critique=advice if flaws else "")


def _qualities(data: Mapping[str, Any]) -> tuple[dict[str, float], int]:
    """The quality of the scene in each dimension, in [0, 1], by counting words; and its length in turns."""
    book = [line for line in _spoken(data["reference"]) if line[0] != ENVIRONMENT]
    played = [line for line in _spoken(data["simulation"]) if line[0] != ENVIRONMENT]
    majors = data.get("major_characters") or list(data["characters"])
    fidelity = [token_f1(_words_of(played, name), _words_of(book, name)) for name in majors]
    repeated = [line in played[:number] for number, line in enumerate(played)]
    dull = [again or bool(ASSISTANT.search(text)) for again, (_, text) in zip(repeated, played, strict=True)]
    weak = [again or len(text.split()) > MOST_WORDS for again, (_, text) in zip(repeated, played, strict=True)]
    quality = {
        "storyline_consistency": token_f1(_words_of(played), _words_of(book)),
        "anthropomorphism": 1 - statistics.fmean(dull),
        "character_fidelity": statistics.fmean(fidelity) if fidelity else 1.0,
        "storyline_quality": 1 - statistics.fmean(weak),
    }
    return quality, len(played)


def _words_of(lines: Sequence[tuple[str, str]], name: str | None = None) -> str:
    return " ".join(text for speaker, text in lines if name in (None, speaker))


def _flaws(quality: float, turns: int) -> list[dict[str, Any]]:
    """Flaws whose severities bring the dimension's score as close to `quality` as whole numbers allow."""
    total = round(20 * (1 - quality) + 0.3 * turns) if quality < 1 else 0
    severities = [5] * (total // 5) + [total % 5] * (total % 5 > 0)
    return [{"flaw": f"It has {quality:.0%} of what it could have.", "severity": severity} for severity in severities]
