"""The options of `algorithm` that objectives read, validated. Each objective's `options` says which ones it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from ditto.objectives.spec import Part

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
_CHECKED = ConfigDict(extra="forbid", frozen=True)
EVERY_OTHER = "default"  # stands in `distill.teachers` for the tasks that are not named there


class ErlOptions(BaseModel):
    """The refined answers that ERL imitates (`erl.py`)."""

    model_config = _CHECKED

    accept: Literal["better", "threshold", "positive"] = "better"
    threshold: float = 0.5


class ComparisonOptions(BaseModel):
    """How a distillation compares the policy with its teacher."""

    model_config = _CHECKED

    ratio_clip: float = Field(default=2.0, gt=0)
    alpha: float = Field(default=0.5, ge=0, le=1)
    top_k: int | None = Field(default=100, ge=1)  # None: the whole vocabulary
    tail: bool = True


class SdpoOptions(ComparisonOptions):
    """SDPO's teacher and divergence (`sdpo.py`)."""

    teacher: Literal["ema", "live", "base"] = "ema"
    teacher_rate: float = Field(default=0.05, gt=0, le=1)
    weight: float = Field(default=0.5, ge=0, le=1)


class DistillOptions(ComparisonOptions):
    """The teachers of on-policy distillation and the divergence from them (`on_policy_distillation.py`)."""

    teachers: dict[str, str] = Field(default_factory=dict)  # task, or EVERY_OTHER -> checkpoint
    alpha: float = Field(default=1.0, ge=0, le=1)

    @property
    def checkpoints(self) -> list[str]:
        """Every checkpoint once: a teacher's number is its place here."""
        return sorted(set(self.teachers.values()))

    def number_of(self, task: str) -> int | None:
        """The number of the checkpoint that teaches a task; None: there is none."""
        checkpoint = self.teachers.get(task, self.teachers.get(EVERY_OTHER))
        return None if checkpoint is None else self.checkpoints.index(checkpoint)


class ObjectiveOptions(BaseModel):
    """The options of `algorithm` for the objectives; the config says what each one means."""

    model_config = _CHECKED

    feedback_coef: float = Field(default=1.0, ge=0)
    old_logp: Literal["auto", "recompute", "rollout"] = "auto"
    refined_old_logp: Literal["recompute", "rollout"] = "recompute"
    norm_adv_by_std_in_grpo: bool = True
    std_floor: float = Field(default=0.0, ge=0)
    skip_idle: bool = True
    prefix_tree: Literal["auto", "off"] = "auto"
    shaping_gamma: float = Field(default=0.1, gt=0)
    erl: ErlOptions = ErlOptions()
    sdpo: SdpoOptions = SdpoOptions()
    distill: DistillOptions = DistillOptions()

    def comparison(self, part: Part) -> ComparisonOptions:
        """How a part that distils compares the policy with its teacher."""
        return self.distill if part.teacher == "experts" else self.sdpo

    def weight(self, part: Part) -> float:
        """The weight of a part in the loss."""
        return part.weight(self) if callable(part.weight) else part.weight


def declare(**facts: Any) -> Callable[[FunctionT], FunctionT]:
    """Note facts on an advantage (`advantages.py`) or on a loss (`losses.py`), for the checks before a run.

    Args:
        facts: `reads`, the options of `algorithm` that the function reads, without their section for a distillation;
            `compares`, with what an advantage compares an episode: "group", "drafts" (of the prompt) or "own draft";
            `teacher_gives`, what a distillation needs of its teacher: "log_probs" or "hidden_states".
    """

    def note(function: FunctionT) -> FunctionT:
        for name, value in facts.items():
            setattr(function, name, value)
        return function

    return note
