"""UserLLM: all three kinds of rows, with PRISM conversations at their start and in their middle."""

from __future__ import annotations

import random
from typing import Any

from soul.examples.example import Example, Player, always, babble, pick
from soul.examples.filled import filled
from soul.metrics.lexical import content_words, words
from soul.tasks.userllm import ADHERENCE, LIKENESS
from soul.tasks.userllm_row import UserLLMRow
from soul.tasks.userllm_turn import END, choices_mentioned
from soul.testing.replies import ChatRequest, Reply

_CHOICES = (
    ("Where would a careful person keep a spare key?", ("doormat", "glacier", "opera", "volcano", "violin")),
    ("What do you reach for when the soup tastes of nothing?", ("salt", "ladder", "stapler", "compass", "curtain")),
    ("What gets heavier when it rains on the washing line?", ("towel", "shadow", "melody", "promise", "north")),
    ("Who is glad of a power cut at dinner time?", ("candle maker", "baker", "dentist", "pilot", "librarian")),
    ("Where does a river go on strike?", ("dam", "bakery", "attic", "stadium", "museum")),
    ("What might a cat knock off the shelf at night?", ("vase", "roof", "meadow", "harbour", "moon")),
    ("What is passed on at every wedding and never used up?", ("advice", "cake", "rice", "ink", "rope")),
)
_UNSURE = ("Several would do, I think. Which is yours?", "Hard to say. What is your guess?", "Do you have a hunch?")
_QUESTIONS = (
    "who painted the ferry house at pellworth, when was the second bridge over the arn opened, "
    "how many bells hang in the tower of saint brida, which king sold the salt roads, "
    "what is the oldest bakery in lundby called, who sang the harbour song first, when did the last tram leave okton"
).split(", ")
_PROPOSALS = ("Shall I tell you about the town?", "How about a riddle?", "Would a list of sights please you?")
_INTENTS = (  # the intent, the opening message, the assistant's reply
    ("Understand how bees choose a new home.", "do swarms vote or something", "Scouts dance for a hollow they like."),
    ("Settle a quarrel about borrowed money.", "my cousin owes me 40 euros", "You could name a date in writing."),
    ("Plan a silent birthday party.", "party but the neighbours are asleep", "Try headphones and card games."),
    ("Learn whether plants feel pain.", "does my basil hate me", "It reacts to damage without nerves."),
    ("Find reasons to keep a diary.", "is writing stuff down every day worth it", "Many notice patterns they missed."),
    ("Get over the fear of diving.", "i freeze at the pool edge", "Kneeling first makes the drop smaller."),
    ("Discuss if borders make sense.", "why do we draw lines on maps", "Rivers, taxes and old treaties mostly."),
)
_LONG = 40  # words: for the rule-based judge, people type less than this


class UserLLMExample(Example[UserLLMRow]):
    """Questions, proposals and open conversations. Brief turns that refer to the last one pass as human."""

    name = "userllm"
    hidden = ("is_last_turn", "choices")

    def record(self, number: int) -> dict[str, Any]:
        place, kind = number // 4, number % 4
        if kind == 0:
            question, choices = pick(_CHOICES, place)
            asked = f"User: {question} The choices: {', '.join(choices)}.\nAssistant: {pick(_UNSURE, place)}"
            return _record("commonsense_qa", f"Find out the answer to this: {question}", asked, choices=list(choices))
        if kind == 1:
            question = pick(_QUESTIONS, place)
            asked = f"User: {question}\nAssistant: I am afraid I do not know. {pick(_PROPOSALS, place)}"
            return _record("natural_questions", f"Get an answer to this: {question}", asked, question=question)
        intent, opening, answer = pick(_INTENTS, place)
        wish = f"{intent} {pick(('No hurry.', 'Half asleep.', 'On the bus.'), place)}"
        if kind == 3:
            return _record("prism", wish, "", is_last_turn=False)
        return _record("prism", wish, f"User: {opening}\nAssistant: {answer}", is_last_turn=place % 2 == 0)

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


def _record(source: str, intent: str, history: str, **more: Any) -> dict[str, Any]:
    return {"source": source, "intent": intent, "conversation_history": history, **more}
