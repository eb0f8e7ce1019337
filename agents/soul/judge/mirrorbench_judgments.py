"""MirrorBench's three judgments of how human a simulated user sounds (paper, C.9, "Judge-based realism metrics").

GTEval and pairwise indistinguishability compare the simulated user with the real one; both were validated against human
judgments. Rubric-and-reason judges the simulated user alone.

The judge receives only roles and texts: records of real conversations have metadata (languages, ids, topics) that would
identify them. Everything a user wrote is passed as data, never in the instructions. The seed and the conversations
decide which conversation is A, so one seed for a whole file still mixes the order. Further samples of the same pair
alternate.

Each judgment is sampled several times (self-consistency), and the mean counts. The numbers of samples are those of
MirrorBench's public repository (github.com/SAP/mirrorbench, scripts/model_configs.py and the configs of its published
runs): one for GTEval, three for pairwise, two for rubric-and-reason. The argument `sample` of a judgment says which of
them it is; the prompt does not change.
"""

import hashlib
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field

from soul.judge.judge import Judge, all_answers
from soul.message import Message
from soul.prompts import load_prompt

Conversation = Sequence[Message]
Slot = Literal["A", "B"]
Taken = Literal["real", "simulated", "tie"]  # which conversation's user was taken for the human

# The score of a choice: the simulated user's share of wins, 0.5 if the judge cannot tell the two apart.
WIN: dict[Taken, float] = {"real": 0.0, "tie": 0.5, "simulated": 1.0}

GTEVAL_INSTRUCTIONS = load_prompt("mirrorbench/gteval", 2)
PAIRWISE_INSTRUCTIONS = load_prompt("mirrorbench/pairwise", 2)
RUBRIC_INSTRUCTIONS = load_prompt("mirrorbench/rubric_and_reason", 2)


class Samples(NamedTuple):
    """The number of samples of each judgment."""

    gteval: int
    pairwise: int
    rubric_and_reason: int


PUBLISHED_SAMPLES = Samples(gteval=1, pairwise=3, rubric_and_reason=2)


class GTEval(BaseModel):
    """How closely the simulated user's turns resemble the real user's. The judge reasons first, then scores."""

    reasoning: str
    score: float = Field(ge=0, le=1, allow_inf_nan=False)


class PairwiseChoice(BaseModel):
    """The judge's answer: the slot whose user it takes for the human."""

    reasoning: str
    human: Literal["A", "B", "tie"]


class RubricAndReason(BaseModel):
    """Whether the user of one conversation sounds like a person, by a rubric. The judge reasons first."""

    reasoning: str
    human: Literal["YES", "NO"]

    @property
    def score(self) -> float:
        return float(self.human == "YES")


@dataclass(frozen=True)
class Pairwise:
    """A pairwise choice, mapped back from the slots A and B."""

    taken: Taken  # the conversation whose user was taken for the human
    reasoning: str
    simulated_slot: Slot  # the slot of the simulated user; over many pairs it reveals a judge that prefers one slot

    @property
    def score(self) -> float:
        """1.0 if the simulated user was taken for the human, 0.5 for a tie, 0.0 if the real one was recognised."""
        return WIN[self.taken]


async def gteval(judge: Judge, real: Conversation, simulated: Conversation, sample: int = 0) -> GTEval:
    """GTEval, the reference-comparative realism score."""
    data = {"real_conversation": _plain(real), "simulated_conversation": _plain(simulated)}
    return await judge.ask(GTEval, GTEVAL_INSTRUCTIONS, data, sample=sample)


async def pairwise(judge: Judge, real: Conversation, simulated: Conversation, seed: int, sample: int = 0) -> Pairwise:
    """Pairwise indistinguishability, a blind test of A against B; see `simulated_slot` for their order."""
    slot = simulated_slot(real, simulated, seed, sample)
    real, simulated = _plain(real), _plain(simulated)
    data = {"A": simulated, "B": real} if slot == "A" else {"A": real, "B": simulated}
    choice = await judge.ask(PairwiseChoice, PAIRWISE_INSTRUCTIONS, data, sample=sample)
    taken: Taken = "tie" if choice.human == "tie" else "simulated" if choice.human == slot else "real"
    return Pairwise(taken, choice.reasoning, slot)


async def rubric_and_reason(judge: Judge, simulated: Conversation, sample: int = 0) -> RubricAndReason:
    """Rubric-and-reason, realism without a reference."""
    return await judge.ask(RubricAndReason, RUBRIC_INSTRUCTIONS, {"conversation": _plain(simulated)}, sample=sample)


@dataclass(frozen=True)
class Judgments:
    """All samples of the three judgments of one conversation."""

    gteval: Sequence[GTEval]
    pairwise: Sequence[Pairwise]
    rubric_and_reason: Sequence[RubricAndReason]

    @property
    def scores(self) -> dict[str, float]:
        """The mean of each judgment's samples, in [0, 1]; a judgment without samples is left out."""
        return {name: statistics.fmean(one.score for one in judged) for name, judged in vars(self).items() if judged}


async def judgments(
    judge: Judge, real: Conversation, simulated: Conversation, seed: int, samples: Samples = PUBLISHED_SAMPLES
) -> Judgments:
    """Take all samples of the three judgments concurrently; `seed` fixes the order of A and B."""
    judged: Sequence[Sequence[Any]] = await all_answers(
        all_answers(*(gteval(judge, real, simulated, i) for i in range(samples.gteval))),
        all_answers(*(pairwise(judge, real, simulated, seed, i) for i in range(samples.pairwise))),
        all_answers(*(rubric_and_reason(judge, simulated, i) for i in range(samples.rubric_and_reason))),
    )
    return Judgments(*judged)


def simulated_slot(real: Conversation, simulated: Conversation, seed: int, sample: int = 0) -> Slot:
    """The slot of the simulated conversation: a fair coin from the seed and the texts, the same on every machine.

    The samples of one pair alternate, so that a judge's preference for one slot cancels out.
    """
    text = json.dumps([seed, _plain(real), _plain(simulated)])
    coin = hashlib.sha256(text.encode()).digest()[0]
    return "A" if (coin + sample) % 2 else "B"


def _plain(conversation: Conversation) -> list[Message]:
    return [{"role": turn["role"], "content": turn["content"]} for turn in conversation]
