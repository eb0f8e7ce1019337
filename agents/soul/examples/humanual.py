"""Humanual: people with firm views on everyday topics; one example for all kinds of texts."""

from __future__ import annotations

import random
from typing import Any

from soul.examples.example import Example, Player, always, pick
from soul.examples.filled import filled
from soul.metrics.overlap import token_f1
from soul.tasks.humanual import Humanual, HumanualRow
from soul.tasks.variants import variant
from soul.testing.replies import ChatRequest, Reply

_SITUATIONS = {
    "humanual": "What do you make of {topic}?",
    "humanual-book": "You have just read a novel. All of it, four hundred pages, is about {topic}.",
    "humanual-chat": "assistant: Hello! You wanted to talk about {topic}. What is on your mind?",
    "humanual-email": "From: your manager. To all: we need one opinion from each of you on {topic}, by noon.",
    "humanual-news": "The town council met for six hours last night. The only matter was {topic}. No vote was taken.",
    "humanual-opinion": "Am I in the wrong? It is about {topic}, and my family has taken sides.",
    "humanual-politics": "Our party will not rest until something is done about {topic}. Vote on Sunday.",
}
_PERSONS = (
    "Blunt, from Leeds, no patience.",
    "A retired teacher who forgives everything.",
    "Nineteen, always tired, types on a cracked phone.",
    "Runs a bakery, up since three, counts every coin.",
)
_TOPICS = (
    "a flatmate who never washes up, a neighbour's rooster, the new bus timetable, a rude librarian, "
    "rents near the harbour"
).split(", ")
_VIEWS = (
    "Honestly {topic} would drive me mad, I would move out by Friday and never look back at any of it!",
    "i kind of like {topic}, it is the one thing in this town that still has a will of its own, so leave it be",
    "Nobody asked me, but {topic} is what you get when nobody talks to anybody. Ring the bell, bring cake, talk.",
    "{topic}? Again? We had all that in 1987, with letters to the mayor and everything, and what came of it? Nothing.",
    "Short version: {topic}, no. Long version: also no.",
    "Could somebody explain {topic} to me as if I were five? Everyone here seems so sure and I just want my sleep.",
    "My heart goes out to everyone who lives with {topic}. I did for two years and still wake up angry at night.",
)
_MORE = (
    "My sister had the same thing.",
    "lol.",
    "And yes, I am still angry.",
    "Live and let live, I say.",
    "Ugh!!",
    "",
)
ASSISTANT = "As an AI language model I see merit on all sides. In conclusion, balance, respect and dialogue are key."


class HumanualExample(Example[HumanualRow]):
    """A person with a view. The rule-based judge scores how many of the person's own words the attempt has."""

    name = "humanual"
    hidden = ("completion",)

    def record(self, number: int) -> dict[str, Any]:
        topic, view = pick(_TOPICS, number), pick(_VIEWS, number)
        return {
            "prompt": f"{_SITUATIONS[self.name].format(topic=topic)} (Number {number + 1} of this week.)",
            "persona": pick(_PERSONS, number),
            "completion": f"{view.format(topic=topic)} {pick(_MORE, number)}",
            "dataset": self.name,
            "category": pick(("everyday life", "public affairs"), number),
        }

    def oracle(self, row: HumanualRow) -> Player:
        return always(f"<response>{row.completion}</response>")

    def contrarian(self, row: HumanualRow) -> Player:
        return always(f"<response>{ASSISTANT}</response>")

    def random(self, row: HumanualRow, rng: random.Random) -> Player:
        return always(f"<response>{self.record(rng.randrange(1000))['completion']}</response>")

    def reply(self, request: ChatRequest) -> Reply | None:
        if not request.asks(Humanual.critic):
            return None
        data = request.data
        return filled(request, token_f1(data["attempt"], data["what_the_person_wrote"]))


HumanualBookExample = variant(HumanualExample, "HumanualBookExample", name="humanual-book")
HumanualChatExample = variant(HumanualExample, "HumanualChatExample", name="humanual-chat")
HumanualEmailExample = variant(HumanualExample, "HumanualEmailExample", name="humanual-email")
HumanualNewsExample = variant(HumanualExample, "HumanualNewsExample", name="humanual-news")
HumanualOpinionExample = variant(HumanualExample, "HumanualOpinionExample", name="humanual-opinion")
HumanualPoliticsExample = variant(HumanualExample, "HumanualPoliticsExample", name="humanual-politics")
