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


class ComparisonOptions(BaseModel):
    """The comparison of the policy with its teacher in a distillation."""

    model_config = _CHECKED

    ratio_clip: float = Field(default=2.0, gt=0, description="Bound of the importance ratio in the distillation.")
    alpha: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="0 is KL(teacher, student), 1 is KL(student, teacher), between them the generalised "
        "Jensen-Shannon divergence.",
    )
    top_k: int | None = Field(
        default=100,
        ge=1,
        description="The student's most probable tokens that are compared; null is the whole vocabulary.",
    )
    tail: bool = Field(default=True, description="Compare the rest of the vocabulary as one more token.")


class SdpoOptions(ComparisonOptions):
    """SDPO's teacher and divergence (`sdpo.py`)."""

    teacher: Literal["ema", "live", "base"] = Field(
        default="ema",
        description="Weights of the teacher: a moving average (`ema`), those being trained (`live`), or those of the "
        "start (`base`).",
    )
    teacher_rate: float = Field(
        default=0.05,
        gt=0,
        le=1,
        description="How far the moving average goes towards the live weights after each update.",
    )
    weight: float = Field(
        default=0.5, ge=0, le=1, description="Share of the distillation in `sdpo_token_grpo` and `sdpo_logits_grpo`."
    )


class DistillOptions(ComparisonOptions):
    """The teachers of on-policy distillation and the divergence from them (`on_policy_distillation.py`)."""

    teachers: dict[str, str] = Field(
        default_factory=dict,
        description="Task, or `default` for all others, and the checkpoint that scores what the policy samples in its "
        "rows: `algorithm.distill.teachers.hitom=outputs/ditto-rl-hitom`.",
    )
    alpha: float = Field(
        default=1.0,
        ge=0,
        le=1,
        description="1 is KL(student, teacher), 0 is KL(teacher, student), between them as in `sdpo`.",
    )

    @property
    def checkpoints(self) -> list[str]:
        """Every checkpoint once: a teacher's number is its place here."""
        return sorted(set(self.teachers.values()))

    def number_of(self, task: str) -> int | None:
        """The number of the checkpoint that teaches a task; None: there is none."""
        checkpoint = self.teachers.get(task, self.teachers.get(EVERY_OTHER))
        return None if checkpoint is None else self.checkpoints.index(checkpoint)


class RltfOptions(BaseModel):
    """RLTF-SD's constants, with the values of its authors (`rltf_sd.py`)."""

    model_config = _CHECKED

    weight: float = Field(default=0.1, ge=0, description="Weight of the imitation of refined answers in `rltf_sd`.")
    gamma: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="How much of the refined answer's reward counts as the draft's, for having led to it.",
    )
    min_log_prob: float = Field(
        default=-5.0,
        le=0,
        description="Tokens of refined answers that are less probable than this without feedback are not imitated.",
    )


class ObjectiveOptions(BaseModel):
    """The options of `algorithm` for the objectives; the config says what each one means."""

    model_config = _CHECKED

    feedback_coef: float = Field(default=1.0, ge=0, description="Weight of the feedback part of the loss.")
    old_logp: Literal["auto", "recompute", "rollout"] = Field(
        default="auto",
        description="Where pi_old comes from: `recompute` by a forward pass before the updates, `rollout` takes the "
        "sampled log-probs where a sequence is trained in the context it was sampled in, and `auto` leaves the pass "
        "out where one update follows, whose log-probs are the same ([old log-probs](efficiency.md#old-log-probs)).",
    )
    norm_adv_by_std_in_grpo: bool = Field(
        default=True, description="Divide advantages by the standard deviation of their group."
    )
    std_floor: float = Field(
        default=0.0,
        ge=0,
        description="A smaller standard deviation of a group counts as this one; 0 is the paper's equation.",
    )
    skip_idle: bool = Field(
        default=True,
        description="Spend no forward pass on sequences whose advantage is 0, such as those of a prompt whose answers "
        "all have the same reward. The update is the same. With a KL or entropy term all sequences are computed.",
    )
    prefix_tree: Literal["auto", "off"] = Field(
        default="auto",
        description="`auto` computes what the sequences of a group begin with once, in log-prob and update passes, "
        "where that is exact ([every token once](efficiency.md#every-token-once)); `off` computes each sequence alone. "
        'In a YAML file, quote `"off"`.',
    )
    shaping_gamma: float = Field(
        default=0.1,
        gt=0,
        description="Shape of `critique_grpo`'s loss; the gradient is largest for tokens with a probability near it.",
    )
    rltf: RltfOptions = RltfOptions()
    sdpo: SdpoOptions = SdpoOptions()
    distill: DistillOptions = DistillOptions()

    def comparison(self, part: Part) -> ComparisonOptions:
        """Return how a part that distils compares the policy with its teacher."""
        return self.distill if part.teacher == "experts" else self.sdpo

    def weight(self, part: Part) -> float:
        """The weight of a part in the loss."""
        return part.weight(self) if callable(part.weight) else part.weight


def declare(**facts: Any) -> Callable[[FunctionT], FunctionT]:
    """Note facts on an advantage (`advantages.py`) or on a loss (`losses.py`), for the checks before a run.

    Args:
        facts: `reads`, the options of `algorithm` that the function reads, without their section for a distillation;
            `compares`, with what an advantage compares an episode: "group", "drafts" (of the prompt) or "own draft";
            `divides`, a loss that divides by pi_old;
            `teacher_gives`, what a distillation needs of its teacher: "log_probs" or "hidden_states".
    """

    def note(function: FunctionT) -> FunctionT:
        for name, value in facts.items():
            setattr(function, name, value)
        return function

    return note
