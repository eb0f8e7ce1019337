"""The table of objectives: which sequences are built, how their advantages are grouped, what each part weighs.

`algorithm.objective` picks a row. A session of one draft and one refined episode gives up to three kinds of sequence:

    draft              (x, y)        the draft in the base context
    refined_base       (x, y')       the refined answer in the base context: this is the distillation
    refined_feedback   (x, f, y')    the refined answer in the context it was sampled in

Each part of an objective is a set of kinds whose rewards form one group per prompt, with its own loss term
(design section 7):  L = sum over parts of  coefficient * L_part.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

from soul.errors import SoulError

Kind = Literal["draft", "refined_base", "refined_feedback"]


class UnknownObjective(SoulError):
    """`algorithm.objective` names no row of the table."""


@dataclass(frozen=True)
class Part:
    """One loss term: the kinds of sequence it trains; their rewards form one group per prompt."""

    name: str
    kinds: tuple[Kind, ...]
    coefficient: str | None = None  # the key of `algorithm` that weighs it; None weighs 1


@dataclass(frozen=True)
class Objective:
    """A row of the table."""

    name: str
    parts: tuple[Part, ...]

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of sequence that are built and trained."""
        return tuple(kind for part in self.parts for kind in part.kinds)

    @property
    def refines(self) -> bool:
        """Whether drafts get feedback and a refined episode at all."""
        return any(kind != "draft" for kind in self.kinds)


OBJECTIVES: dict[str, Objective] = {
    objective.name: objective
    for objective in (
        Objective("grpo", (Part("joint", ("draft",)),)),
        Objective(
            "ditto",  # paper, equations 5 to 10
            (
                Part("joint", ("draft", "refined_base")),
                Part("feedback", ("refined_feedback",), coefficient="feedback_coef"),
            ),
        ),
    )
}

# The original's `algorithm.agent_version`.
AGENT_VERSIONS: dict[str, str] = {"default": "grpo", "copy": "ditto"}


def objective(name: str) -> Objective:
    """The objective of that name.

    Raises:
        UnknownObjective: with the nearest names.
    """
    if name in OBJECTIVES:
        return OBJECTIVES[name]
    near = difflib.get_close_matches(name, OBJECTIVES, n=2)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise UnknownObjective(
        f"algorithm.objective={name!r}: there is no such objective.{hint} Use {', '.join(OBJECTIVES)}."
    )
