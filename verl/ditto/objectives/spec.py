"""What an objective is made of: parts, and for each part its sequences, advantage, loss and weight.

A session of one draft and one refined episode gives up to three kinds of sequence (x: the task's prompt, y: the draft,
f: the feedback, y': the refined answer):

    draft              (x, y)        the draft in the base context
    refined_base       (x, y')       the refined answer in the base context: this is the distillation
    refined_feedback   (x, f, y')    the refined answer in the context it was sampled in

Each part is one loss term over the kinds that it trains:  L = sum over parts of  weight * L_part. A part is averaged
over its own tokens or sequences (`loss_weights.py`), so its weight does not depend on how many it has.

A part that distils compares the policy in the base context with a teacher. Either the teacher is the policy itself in
the feedback context (x, f, y), which needs the feedback, but no refined answer; or it is a checkpoint that reads the
base context too.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

Kind = Literal["draft", "refined_base", "refined_feedback"]

# The number that multiplies a sequence's loss, from the reward r of its episode. G: the valid episodes of the same
# prompt whose kind is in the part's `group`.
#   group_norm   (r - mean_G) / (std_G + 1e-6); algorithm.norm_adv_by_std_in_grpo=false makes it group_mean
#   group_mean   r - mean_G
#   draft_mean   r - the mean of the prompt's valid drafts, whether or not drafts are trained
#   reward       r
#   accepted     what algorithm.erl.accept says: 1 or 0, or the reward where it is positive
#   one          1: every valid sequence counts the same, whatever its reward
Advantage = Literal["group_norm", "group_mean", "draft_mean", "reward", "accepted", "one"]

# What a sampled token adds to the loss. A: advantage, p: pi(token), rho = p / pi_old, pi_T: the teacher.
#   clipped         -min(rho A, clip(rho, 1 - low, 1 + high) A), or what actor.policy_loss.loss_mode names instead
#   plain           -A log p: neither ratio nor clipping, so pi_old plays no part
#   shaped          -A p / (p + algorithm.shaping_gamma): improbable tokens get a larger gradient than from A p
#   distill_token   sg[log p - log pi_T] log p, at the sampled token: reverse KL, estimated by one sample
#   distill_logits  the divergence of pi and pi_T over the vocabulary or its top k
# Both distillations multiply by the detached ratio min(rho, ratio_clip).
Loss = Literal["clipped", "plain", "shaped", "distill_token", "distill_logits"]

# Who is pi_T in a distillation, and which options of `algorithm` it reads.
#   feedback  the policy in the feedback context (algorithm.sdpo)
#   experts   the checkpoint that teaches the row's task, in the base context (algorithm.distill)
Teacher = Literal["feedback", "experts"]

# A part's weight: a number, or the option of `algorithm` that holds it.
Weight = Literal["feedback_coef", "sdpo.weight", "1 - sdpo.weight"] | Annotated[float, Field(ge=0)]

_CHECKED = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_CHECKED)
class Part:
    """One loss term.

    Attributes:
        name: unique within the objective.
        kinds: the kinds of sequence that it trains.
        advantage: how rewards become the factor of a sequence; "one" for the distillations.
        group: the kinds whose episodes form the group; () means `kinds`.
        average_over: the part is divided by the tokens or sequences of these kinds that the objective trains; () means
            `kinds`. Two parts that are one average over both name both.
        loss: the loss of one sampled token.
        teacher: of a distillation.
        weight: a number >= 0, or the option that holds it.

    Raises:
        ValidationError: a value that is not listed above, or a combination without a meaning.
    """

    name: str
    kinds: Annotated[tuple[Kind, ...], Field(min_length=1)]
    advantage: Advantage = "group_norm"
    group: tuple[Kind, ...] = ()
    average_over: tuple[Kind, ...] = ()
    loss: Loss = "clipped"
    teacher: Teacher = "feedback"
    weight: Weight = 1.0

    @model_validator(mode="after")
    def _has_a_meaning(self) -> Part:
        if self.distils and (self.kinds != ("draft",) or self.advantage != "one"):
            raise ValueError(f"part {self.name}: loss={self.loss!r} needs kinds=('draft',) and advantage='one'")
        if self.teacher != "feedback" and not self.distils:
            raise ValueError(f"part {self.name}: loss={self.loss!r} has no teacher; leave `teacher` out")
        if self.advantage == "accepted" and "draft" in self.kinds:
            raise ValueError(
                f"part {self.name}: advantage='accepted' compares refined answers with their drafts; leave 'draft' out"
            )
        if self.group and not self.advantage.startswith("group"):
            raise ValueError(f"part {self.name}: advantage={self.advantage!r} has no group; leave `group` out")
        if self.group and not {kind == "draft" for kind in self.kinds} <= {kind == "draft" for kind in self.group}:
            raise ValueError(f"part {self.name}: group must contain the episodes of {', '.join(self.kinds)}")
        if self.average_over and self.distils:
            raise ValueError(f"part {self.name}: a distillation has its own average; leave average_over out")
        if self.average_over and not set(self.kinds) <= set(self.average_over):
            raise ValueError(f"part {self.name}: average_over must contain {', '.join(self.kinds)}")
        return self

    @property
    def distils(self) -> bool:
        """Whether the part compares the policy with a teacher instead of following rewards."""
        return self.loss in ("distill_token", "distill_logits")


@dataclass(frozen=True, config=_CHECKED)
class Objective:
    """What `algorithm.objective` names.

    Attributes:
        refined: which refined episodes of a prompt are trained and counted: "all", or only the "best" one.

    Raises:
        ValidationError: no part, two parts of one name, a kind that two parts would train, two distillations, or a
            choice among refined episodes without any.
    """

    name: str
    parts: Annotated[tuple[Part, ...], Field(min_length=1)]
    refined: Literal["all", "best"] = "all"

    @model_validator(mode="after")
    def _parts_are_apart(self) -> Objective:
        trained = [kind for part in self.policy_parts for kind in part.kinds]
        for values in ([part.name for part in self.parts], trained):
            if len(values) != len(set(values)):
                raise ValueError(
                    f"objective {self.name}: {', '.join(values)}: each part's name and kinds must be its own"
                )
        if len(self.parts) - len(self.policy_parts) > 1:
            raise ValueError(f"objective {self.name}: more than one part distils")
        unknown = {kind for part in self.policy_parts for kind in part.average_over} - set(trained)
        if unknown:
            raise ValueError(f"objective {self.name}: average_over names {', '.join(unknown)}, which nothing trains")
        if self.refined == "best" and not self.refines:
            raise ValueError(f"objective {self.name}: refined='best', but there is no refined episode; leave it out")
        return self

    @property
    def policy_parts(self) -> tuple[Part, ...]:
        """The parts that follow rewards."""
        return tuple(part for part in self.parts if not part.distils)

    @property
    def distillation(self) -> Part | None:
        """The part that compares the policy with a teacher, if there is one."""
        return next((part for part in self.parts if part.distils), None)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of sequence that are built and trained."""
        return tuple(dict.fromkeys(kind for part in self.parts for kind in part.kinds))

    @property
    def refines(self) -> bool:
        """Whether a refined episode is played: one is trained, or its reward counts."""
        return any(kind != "draft" for part in self.parts for kind in (*part.kinds, *part.group))

    @property
    def needs_feedback(self) -> bool:
        """Whether drafts get feedback."""
        return self.refines or self.teacher == "feedback"

    @property
    def teacher(self) -> Teacher | None:
        """The teacher of the part that distils, if there is one."""
        return None if self.distillation is None else self.distillation.teacher

    @property
    def options(self) -> frozenset[str]:
        """The options of `algorithm` that this objective reads; others would be ignored, so they are refused."""
        names: set[str] = set()
        for part in self.parts:
            if isinstance(part.weight, str):
                names.add(part.weight.removeprefix("1 - "))
            if part.advantage == "group_norm":
                names |= {"norm_adv_by_std_in_grpo", "std_floor"}
            if part.advantage == "accepted":
                names.add("erl.accept")
            if part.loss == "shaped":
                names.add("shaping_gamma")
            if part.loss == "clipped" and "refined_base" in part.kinds:
                names.add("refined_old_logp")
            if part.distils:
                section = "distill" if part.teacher == "experts" else "sdpo"
                own = ("teachers",) if part.teacher == "experts" else ("teacher", "teacher_rate")
                compared = ("alpha", "top_k", "tail") if part.loss == "distill_logits" else ()
                names |= {f"{section}.{option}" for option in (*own, "ratio_clip", *compared)}
        return frozenset(names)
