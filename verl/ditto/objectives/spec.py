"""What an objective is made of: parts, and for each part its sequences, advantage, loss and weight.

A session of one draft and one refined episode gives up to three kinds of sequence (x: the task's prompt, y: the draft,
f: the feedback, y': the refined answer):

    draft              (x, y)        the draft in the base context
    refined_base       (x, y')       the refined answer in the base context: this is the distillation
    refined_feedback   (x, f, y')    the refined answer in the context it was sampled in

Each part is one loss term over the kinds that it trains:  L = sum over parts of  weight * L_part. Every part is
averaged over its own tokens or sequences (`loss_weights.py`), so its weight does not depend on how many it has.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

Kind = Literal["draft", "refined_base", "refined_feedback"]

# What is subtracted from the reward r of an episode:
#   group_mean        the mean reward of the part's valid episodes of the same prompt
#   first_turn_mean   the mean reward of the prompt's valid drafts, whether or not drafts are trained
#   none              nothing
Baseline = Literal["group_mean", "first_turn_mean", "none"]

# What the difference is divided by: the unbiased standard deviation of the same group, or nothing.
Scale = Literal["std", "none"]

# What a sampled token adds to the loss, with advantage A, ratio rho = pi / pi_old and range [1 - low, 1 + high]:
#   clipped   -min(rho A, clip(rho, 1 - low, 1 + high) A), or what actor.policy_loss.loss_mode names instead
#   plain     -A log pi: neither ratio nor clipping, so pi_old plays no part
#   nll       -log pi: every valid sequence counts the same, whatever its reward
Loss = Literal["clipped", "plain", "nll"]

_CHECKED = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_CHECKED)
class Part:
    """One loss term.

    Attributes:
        name: unique within the objective.
        kinds: the kinds of sequence that it trains; their rewards form one group per prompt.
        baseline, scale: A = (r - baseline) / scale.
        loss: the loss of one sampled token.
        weight: a number >= 0, or the key of `algorithm` that holds it.

    Raises:
        ValidationError: a value that is not listed above, or a combination without a meaning.
    """

    name: str
    kinds: Annotated[tuple[Kind, ...], Field(min_length=1)]
    baseline: Baseline = "group_mean"
    scale: Scale = "std"
    loss: Loss = "clipped"
    weight: Literal["feedback_coef"] | Annotated[float, Field(ge=0)] = 1.0

    @model_validator(mode="after")
    def _has_a_meaning(self) -> Part:
        if self.scale == "std" and self.baseline != "group_mean":
            raise ValueError(f"part {self.name}: scale='std' needs baseline='group_mean'; use scale='none'")
        if self.loss == "nll" and self.baseline != "none":
            raise ValueError(f"part {self.name}: loss='nll' reads no reward; use baseline='none' and scale='none'")
        return self


@dataclass(frozen=True, config=_CHECKED)
class Objective:
    """What `algorithm.objective` names.

    Raises:
        ValidationError: no part, two parts of one name, or a kind that two parts would train.
    """

    name: str
    parts: Annotated[tuple[Part, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _parts_are_apart(self) -> Objective:
        for values in ([part.name for part in self.parts], list(self.kinds)):
            if len(values) != len(set(values)):
                raise ValueError(
                    f"objective {self.name}: {', '.join(values)}: each part's name and kinds must be its own"
                )
        return self

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of sequence that are built and trained."""
        return tuple(kind for part in self.parts for kind in part.kinds)

    @property
    def refines(self) -> bool:
        """Whether a draft gets feedback and a refined episode."""
        return any(kind != "draft" for kind in self.kinds)
