"""UserLLM: all three kinds of rows, with PRISM conversations at their start and in their middle."""

from __future__ import annotations

import random

from soul.examples.endpoint import filled
from soul.examples.example import Example, Player, always, babble
from soul.metrics.lexical import content_words, words
from soul.tasks.userllm import ADHERENCE, LIKENESS
from soul.tasks.userllm_row import UserLLMRow
from soul.tasks.userllm_turn import END, choices_mentioned
from soul.testing.replies import ChatRequest, Reply

_LONG = 40  # words: for the rule-based judge, people type less than this


class UserLLMExample(Example[UserLLMRow]):
    """Questions, proposals and open conversations. Brief turns that refer to the last one pass as human."""

    name = "userllm"

    def oracle(self, row: UserLLMRow) -> Player:
        if row.source == "commonsense_qa":  # naming all options repeats the question
            return always(f"yes but which one? {', '.join(row.choices)}")
        if row.source == "natural_questions":
            return always(f"no thanks. {row.question or row.intent}")
        reply = row.conversation.rpartition("Assistant:")[2]
        own = [word for word in content_words(reply) if word not in words(row.intent)]
        turn = f"and what about {max(own, key=len)}?" if own else "so what would one do about this then?"
        return always(f"{turn} {END}" if row.is_last_turn else turn)

    def contrarian(self, row: UserLLMRow) -> Player:
        if row.source == "commonsense_qa":
            mentioned = {choice: choices_mentioned(row.choices, choice) for choice in row.choices}
            return always(next(choice for choice, (named, options) in mentioned.items() if named < options))
        if row.source == "natural_questions":
            return always("Sure, lovely!")
        recited = " ".join([row.intent] * (1 + _LONG // len(row.intent.split())))
        return always(recited if row.is_last_turn else f"{recited} {END}")

    def random(self, row: UserLLMRow, rng: random.Random) -> Player:
        return always(f"{babble(rng, rng.randint(3, 25))} {rng.choice(('', END))}")

    def reply(self, request: ChatRequest) -> Reply | None:
        if request.asks(ADHERENCE):
            turn, asked = words(request.data["user_turn"]), words(request.data["question"])
            again = sum(word in turn for word in asked) >= len(asked) / 2
            return filled(request, 1.0, outcome="refused" if again else "accepted")
        if request.asks(LIKENESS):
            data = request.data
            turn = words(data["user_turn"])
            brief = min(1.0, max(0.0, 2 - 2 * len(turn) / _LONG))
            follows = not data["conversation"] or not {*content_words(data["conversation"])}.isdisjoint(turn)
            return filled(request, brief if follows else brief / 2)
        return None
