"""MirrorBench: people who ask an assistant for something, in conversations shaped like those of the four subsets."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from soul.examples.example import Example, Player, always, babble, one_by_one, pick
from soul.examples.filled import filled
from soul.judge.mirrorbench_judgments import GTEVAL_INSTRUCTIONS, PAIRWISE_INSTRUCTIONS, RUBRIC_INSTRUCTIONS
from soul.message import Message
from soul.metrics.overlap import token_f1
from soul.tasks.mirrorbench import MirrorBenchRow, user_turns
from soul.testing.replies import ChatRequest, Reply

_CONCERNS = (  # the aim; then user / assistant / user / assistant / user
    ("to hang a hammock", "Good knot for a hammock? / Rope? / Rope, I have two metres. / A bowline. / Both ends?"),
    ("to rescue a salty stew", "Too much salt in my stew. / How much? / 2 litres I should say / Potatoes. / Peeled?"),
    ("to find a ferry office", "Ferry office hours this week / Where? / The one on Arn island / Nine. / Sundays?"),
    ("to name a grey kitten", "Names for a grey cat! / Male? / No idea yet, too small. / Ash, or Pebble. / More!"),
    ("to quit a choir kindly", "How do I leave a choir / Why? / It is the conductor, mostly. / Say so. / In a mail?"),
    ("to sleep on a train", "Sleeping on trains, any tips? / Seat or bunk? / A seat, no money left / Lean. / How?"),
    ("to fix a dripping tap", "The tap drips all night. / Hot side? / Cold, is that any better? / Yes. / What size?"),
)
_HANDS = (
    ("types in lower case", str.lower),
    ("types as the words come, with care for capitals", str),
    ("SHOUTS A LOT", str.upper),
)
_MOODS = ("is in a hurry", "has all evening", "has asked three others before", "does not expect much")
_SUBSETS = ("oasst1", "qulac", "clariq", "chatbot_arena")
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
    hidden = ("dataset",)  # (The policy sees the first of the `turns` if it is the assistant's.)

    def record(self, number: int) -> dict[str, Any]:
        aim, talk = pick(_CONCERNS, number)
        opening, back, answer, result, more = talk.split(" / ")
        hand, typed = pick(_HANDS, number)
        mood, subset = pick(_MOODS, number, len(_CONCERNS) * len(_HANDS)), pick(_SUBSETS, number)
        lines = {  # user and assistant alternate; in qulac the assistant begins
            "oasst1": (typed(opening), back, typed(answer), result, typed(more), "Yes."),
            "qulac": (f"Are you trying {aim}? {back}", typed(answer)),
            "clariq": (typed(opening), back, typed(answer)),
            "chatbot_arena": (typed(opening), result),
        }[subset]
        roles = ("assistant", "user") if subset == "qulac" else ("user", "assistant")
        return {
            "task_description": f"The user wants {aim}, {mood}, and {hand}.",
            "dataset": subset,
            "turns": [{"role": roles[place % 2], "content": line} for place, line in enumerate(lines)],
        }

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
