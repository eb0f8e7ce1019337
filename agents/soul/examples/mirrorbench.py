"""MirrorBench: people who ask an assistant for something, in conversations shaped like those of the four subsets."""

from __future__ import annotations

import random
from collections.abc import Sequence

from soul.examples.endpoint import filled
from soul.examples.example import Example, Player, always, babble, one_by_one
from soul.judge.mirrorbench_judgments import GTEVAL_INSTRUCTIONS, PAIRWISE_INSTRUCTIONS, RUBRIC_INSTRUCTIONS
from soul.message import Message
from soul.metrics.overlap import token_f1
from soul.tasks.mirrorbench import MirrorBenchRow, user_turns
from soul.testing.replies import ChatRequest, Reply

_BRIEF = 20  # words per turn: for the rule-based judges, people type no more on average
HELPFUL = (
    "Certainly! I would be delighted to provide you with a comprehensive and well structured overview of all relevant "
    "considerations, and I sincerely hope that this detailed message finds you well, as your satisfaction remains my "
    "highest priority at all times."
)


class MirrorBenchExample(Example[MirrorBenchRow]):
    """Real users are brief. A player that repeats their words ties with them in the pairwise test, which scores 0.5."""

    name = "mirrorbench"
    full_marks = 0.875

    def oracle(self, row: MirrorBenchRow) -> Player:
        return one_by_one(row.user_turns)

    def contrarian(self, row: MirrorBenchRow) -> Player:
        return always(HELPFUL)

    def random(self, row: MirrorBenchRow, rng: random.Random) -> Player:
        return lambda messages: babble(rng, rng.randint(1, 15))

    def reply(self, request: ChatRequest) -> Reply | None:
        if request.asks(GTEVAL_INSTRUCTIONS):
            real, simulated = (_user_text(request.data[f"{who}_conversation"]) for who in ("real", "simulated"))
            return filled(request, token_f1(simulated, real))
        if request.asks(PAIRWISE_INSTRUCTIONS):
            first, second = (_length(request.data[slot]) for slot in "AB")
            alike = max(first, second) <= 1.25 * min(first, second)
            return filled(request, 1.0, human="tie" if alike else "A" if first < second else "B")
        if request.asks(RUBRIC_INSTRUCTIONS):
            brief = _length(request.data["conversation"]) <= _BRIEF
            return filled(request, float(brief), human="YES" if brief else "NO")
        return None


def _user_text(turns: Sequence[Message]) -> str:
    return "\n".join(user_turns(turns))


def _length(turns: Sequence[Message]) -> float:
    """Words per user turn."""
    return len(_user_text(turns).split()) / len(user_turns(turns))
