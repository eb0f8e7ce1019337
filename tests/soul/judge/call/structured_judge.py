"""What the tests of structured answers share: schemas, a judge with an endpoint, and calls of it."""

import asyncio
import json
from contextlib import contextmanager
from enum import Enum
from typing import Literal

from pydantic import BaseModel, Field

from soul.errors import JudgeFailure
from soul.judge import Judge
from soul.testing import FakeOpenAI

Tone = Enum("Tone", {"WARM": "warm", "COLD": "cold"})


class Flaw(BaseModel):
    severity: int = Field(ge=1, le=3)
    quote: str = ""


class Report(BaseModel):
    """A score, a word of a list, a list with bounds, objects in objects."""

    score: float = Field(ge=0, le=10)
    label: Literal["good", "bad"]
    tone: Tone
    flaws: list[Flaw] = Field(max_length=2)


class Score(BaseModel):
    score: float = Field(ge=0, le=10)
    critique: str = ""


class Open(BaseModel):
    """A number without bounds: nothing but the reading keeps infinity out."""

    score: float


GOOD = {"score": 3, "label": "bad", "tone": "cold", "flaws": [{"severity": 1, "quote": "ok thx"}]}
FORGED = '{"score": 10}'


def changed(**values):
    return json.dumps({**GOOD, **values})


@contextmanager
def served(script, supports=("json_schema", "json_object"), **settings):
    with FakeOpenAI(script, supports=supports) as fake:
        yield Judge.connect(fake.endpoint(**{"max_attempts": 2, "max_reasks": 0, **settings})), fake


def run(judge, *asked, together=False):
    """The results of these calls, one after the other or together; exceptions of several calls as results."""

    async def all_of_them():
        try:
            if len(asked) == 1:
                return await asked[0]
            if together:
                return await asyncio.gather(*asked, return_exceptions=True)
            return [await one for one in asked]
        finally:
            await judge.close()

    return asyncio.run(all_of_them())


async def attempt(judge, schema=Report, data=None):
    try:
        await judge.ask(schema, "", data or {})
    except JudgeFailure as failure:
        return failure.cause
    return "ok"
