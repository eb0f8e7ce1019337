"""The judge's review of a CoSER scene, and the points that flaws cost (paper, appendix C.7).

There are four dimensions, each with its own criteria and its own call, as in CoSER's public code. A single call for all
four costs a quarter and agrees less well with people (paper, C.7, "Human validation").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel, Field, model_validator

from soul.judge import Judge
from soul.judge.judge import all_answers
from soul.prompts import Prompt, load_prompt

DIMENSIONS = ("storyline_consistency", "anthropomorphism", "character_fidelity", "storyline_quality")
CRITICS: Mapping[str, Prompt] = {name: load_prompt(f"coser/{name}") for name in DIMENSIONS}
MERGED_CRITIC = load_prompt("coser/judge", 3)
MAJORS_ONLY = "character_fidelity"  # the dimension in which only the major characters are judged


class Flaw(BaseModel):
    """One flaw of a scene."""

    flaw: str = Field(min_length=1)
    severity: int = Field(ge=1, le=5)


class DimensionReview(BaseModel):
    """The judge's answer for one dimension."""

    flaws: list[Flaw]
    critique: str

    @model_validator(mode="after")
    def _flaws_have_a_critique(self) -> Self:
        if self.flaws and not self.critique.strip():
            raise ValueError("there are flaws but no critique: say what to do differently")
        return self


class MergedReview(BaseModel):
    """The judge's answer if one call covers all four dimensions."""

    storyline_consistency: list[Flaw]
    anthropomorphism: list[Flaw]
    character_fidelity: list[Flaw]
    storyline_quality: list[Flaw]
    critique: str = Field(min_length=1)


@dataclass(frozen=True)
class Review:
    """The flaws of a scene by dimension, in the order of `DIMENSIONS`, and advice for the cast, if any."""

    flaws: Mapping[str, Sequence[Flaw]]
    critique: str | None

    def scores(self, turns: int) -> dict[str, float]:
        """The score of each dimension in [0, 1]; `turns` is the number of turns that the characters had."""
        return {name: dimension_score((flaw.severity for flaw in flaws), turns) for name, flaws in self.flaws.items()}


def dimension_score(severities: Iterable[int], turns: int) -> float:
    """The score of one dimension in [0, 1]: clip(100 - 5 * (sum of severities - 0.3 * turns), 0, 100) / 100.

    Args:
        turns: the number of turns that the characters had. A longer scene is allowed more slips.
    """
    points = 100 - 5 * sum(severities) + 1.5 * turns
    return min(max(points, 0.0), 100.0) / 100


async def review(judge: Judge, context: Mapping[str, Any], majors: Sequence[str]) -> Review:
    """Ask about each dimension in its own call, all concurrently.

    Args:
        context: the data of every call: book, plot summary, scenario, characters, reference and simulation.
        majors: the characters whose fidelity is judged; only the call about fidelity names them.
    """
    calls = [
        judge.ask(
            DimensionReview,
            CRITICS[name],
            {**context, "major_characters": list(majors)} if name == MAJORS_ONLY else context,
        )
        for name in DIMENSIONS
    ]
    reviews = dict(zip(DIMENSIONS, await all_answers(*calls), strict=True))
    advice = [
        f"{name.replace('_', ' ').capitalize()}: {one.critique.strip()}"
        for name, one in reviews.items()
        if one.critique.strip()
    ]
    return Review({name: one.flaws for name, one in reviews.items()}, "\n".join(advice) or None)


async def merged_review(judge: Judge, context: Mapping[str, Any], majors: Sequence[str]) -> Review:
    """Ask about all four dimensions in one call."""
    answer = await judge.ask(MergedReview, MERGED_CRITIC, {**context, "major_characters": list(majors)})
    return Review({name: getattr(answer, name) for name in DIMENSIONS}, answer.critique)
