"""The sellers that the market's warm start imitates, and everything that a run in this world starts from.

Sellers differ in four independent things: pitch, price, secret, manner (market.py). `Sellers` says which share of them
does each thing well without feedback. With feedback, a seller usually corrects what it criticises and repeats what it
praises. The task itself plays the conversations, so the warm start sees exactly the prompts that training uses.
"""

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from benchmarks.judged_world.market import (
    CRITIQUE,
    HARD_TO_FOLLOW,
    PITCHES,
    PRICES,
    REASONS,
    RUDE,
    THANKS,
    THINGS,
    Offer,
    buyer_turn,
    review,
    turn,
)
from data.rows import write_rows
from recipe.demo import tiny_model, warm_start
from soul.judge import ChatModel
from soul.message import Message
from soul.policy import Players
from soul.tasks.sotopia import Encounter, Sotopia
from soul.tasks.sotopia_row import SotopiaRow

FEEDBACK_SHARE = 0.35  # warm-start conversations with feedback
TRAIN, HELDBACK = 600, 64  # rows; an evaluation asks Ben and the judge four times a session
TASK = Sotopia()
WARM_START = warm_start.WarmStart(steps=240)
OVERRIDES = (
    "data.max_response_length=96",  # three turns and what Ben says in between: about 70 tokens
    "actor_rollout_ref.actor.optim.lr=2e-4",  # at the 5e-4 of the demo, all is learned in six steps; here in twelve
)
# Lines that become one token each: what surrounds the words of a turn, and the lines of the critique.
WHOLE_LINES = [turn("").removesuffix('"}'), *(line for pair in CRITIQUE.values() for line in pair)]


@dataclass(frozen=True)
class Sellers:
    """The people that the warm start imitates.

    Attributes:
        pitch, price, secret, manner: share of those who do it well without feedback.
        corrected: share of those who correct what the feedback criticises.
        repeated: share of those who repeat what the feedback praises.
        tricky, tricks: share of those who say something else than their price in the second turn, and what they say.
    """

    pitch: float = 0.25
    price: float = 0.5
    secret: float = 0.75
    manner: float = 0.5
    corrected: float = 0.85
    repeated: float = 0.95
    tricky: float = 0.0
    tricks: Sequence[str] = ()

    def draw(self, rng: random.Random, feedback: str = "") -> dict[str, bool]:
        """Draw the things that a seller does well."""
        shares = {aspect: cast(float, getattr(self, aspect)) for aspect in CRITIQUE}
        for aspect, (praise, blame) in CRITIQUE.items():
            if praise in feedback:
                shares[aspect] = self.repeated
            elif blame in feedback:
                shares[aspect] = self.corrected
        return {aspect: rng.random() < share for aspect, share in shares.items()}

    def trick(self, rng: random.Random, feedback: str = "") -> str | None:
        """Draw a trick, or None: most sellers use none."""
        share = self.tricky * (1 - self.corrected if HARD_TO_FOLLOW in feedback else 1)
        return rng.choice(self.tricks) if self.tricks and rng.random() < share else None


USUAL = Sellers()


@dataclass
class _Seller:
    """A seat that says three turns."""

    turns: Iterator[str]

    async def say(self, messages: Sequence[Message], base: Sequence[Message] | None = None) -> str:
        return next(self.turns)


class _Buyer:
    async def chat(self, messages: Sequence[Message]) -> str:
        return buyer_turn(messages)


class _Market(Players):
    """The participants of a conversation without an endpoint."""

    @property
    def partner(self) -> ChatModel:
        return cast(ChatModel, _Buyer())


def converse(
    offer: Offer, good: Mapping[str, bool], feedback: str | None = None, trick: str | None = None
) -> Encounter:
    """The conversation of a seller who does these things well, or says the trick in place of the price."""
    turns = [
        offer.open(good["pitch"], not good["secret"]),
        trick or offer.answer(good["price"]),
        THANKS if good["manner"] else RUDE,
    ]
    row = SotopiaRow.model_validate(offer.record(0))
    return asyncio.run(TASK.play(row, _Market(lambda _: _Seller(map(turn, turns))), feedback))


def critique(offer: Offer, conversation: Encounter) -> str:
    """Return the judge's critique of a conversation."""
    record = offer.record(0)
    known = {"situation": record["scenario"], "secret": record["agent1_secret"], "goal": record["agent1_goal"]}
    acts = [act.to_json(number) for number, act in enumerate(conversation.acts, 1)]
    return str(review(known, acts)["critique"])


def warm_sample(offer: Offer, rng: random.Random, sellers: Sellers) -> list[Message]:
    """A seller's conversation about an offer as the policy sees it, with or without feedback on an earlier one."""
    feedback = None
    if rng.random() < FEEDBACK_SHARE:
        feedback = critique(offer, converse(offer, sellers.draw(rng), trick=sellers.trick(rng)))
    good, trick = sellers.draw(rng, feedback or ""), sellers.trick(rng, feedback or "")
    return list(converse(offer, good, feedback, trick).seats["policy"])


def offers(rng: random.Random) -> tuple[list[Offer], list[Offer]]:
    """All offers in random order, and those that are held back: no situation is in both."""
    values = list(PITCHES)
    held = {(thing, values[number % len(values)]) for number, thing in enumerate(THINGS)}
    every = [
        Offer(thing, value, price, reason)
        for thing in THINGS
        for value in values
        for price in PRICES
        for reason in REASONS
    ]
    rng.shuffle(every)
    return [o for o in every if (o.thing, o.value) not in held], [o for o in every if (o.thing, o.value) in held]


def prepare(out_dir: str | Path, how: warm_start.WarmStart = WARM_START, sellers: Sellers = USUAL) -> None:
    """Write train.parquet, heldback.parquet, base/ (random weights) and warm/."""
    out, rng = Path(out_dir), random.Random(how.seed)
    seen, heldback = offers(random.Random(0))
    for name, part in (("train", seen[:TRAIN]), ("heldback", heldback[:HELDBACK])):
        write_rows(out / f"{name}.parquet", TASK.name, [offer.record(i) for i, offer in enumerate(part)])
    corpus = (warm_sample(rng.choice(seen), rng, sellers) for _ in range(1000))
    texts = ["\n".join([*(message["content"] for message in talk), *WHOLE_LINES]) for talk in corpus]
    tiny_model.build(out / "base", texts, how.seed)
    warm_start.train(out / "base", out / "warm", _turns(seen, sellers), how)


def _turns(seen: Sequence[Offer], sellers: Sellers) -> warm_start.Draw:
    """Draws a turn of a fresh conversation: what came before it, and the turn."""
    waiting: list[tuple[list[Message], str]] = []

    def draw(rng: random.Random) -> tuple[list[Message], str]:
        if not waiting:
            for _ in range(32):
                talk = warm_sample(rng.choice(seen), rng, sellers)
                own = [i for i, message in enumerate(talk) if message["role"] == "assistant"]
                waiting.extend((talk[:i], talk[i]["content"]) for i in own)
            rng.shuffle(waiting)
        return waiting.pop()

    return draw
