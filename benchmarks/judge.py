"""A judge's question for benchmarks: the instructions, distinct data, and an answer that their schema accepts."""

from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel, Field

from soul.judge import Judge

ANSWER = '{"score": 7, "critique": "The reply is kind, but it never says what to do next. Name one concrete step."}'
INSTRUCTIONS = (
    "You judge how well a reply helps the person who wrote the message. Score it from 0 (useless or harmful) to 10 "
    "(no expert would do better), and criticise it in two sentences addressed to its author: what is good, and what to "
    "do better."
)


class Scored(BaseModel):
    score: int = Field(ge=0, le=10)
    critique: str


Ask = Callable[[int], Awaitable[Scored]]


def data(number: int, words: int) -> dict[str, Any]:
    """Question `number`; all questions differ."""
    return {"message": f"Case {number}: I lost my job.", "reply": " ".join(f"word{i % 97}" for i in range(words))}


def gateway(judge: Judge, words: int) -> Ask:
    """The gateway, with separate counters for each question as in a session."""

    async def ask(number: int) -> Scored:
        question = data(number, words)
        return await judge.scope().ask(Scored, INSTRUCTIONS, question, policy_texts=[question["reply"]], min_words=3)

    return ask
