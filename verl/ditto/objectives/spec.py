"""An objective is a tuple of parts; a part holds its sequences and its functions: advantage, loss and weight.

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

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, model_validator
from pydantic.dataclasses import dataclass

from ditto.objectives.advantages import group_norm
from ditto.objectives.losses import clipped
from ditto.objectives.options import ObjectiveOptions

Kind = Literal["draft", "refined_base", "refined_feedback"]

# Who is pi_T in a distillation, and which options of `algorithm` it reads.
#   feedback  the policy in the feedback context (algorithm.sdpo)
#   experts   the checkpoint that teaches the row's task, in the base context (algorithm.distill)
Teacher = Literal["feedback", "experts"]

_CHECKED = ConfigDict(extra="forbid")
_NAMED = PlainSerializer(lambda value: getattr(value, "__name__", value))  # settings are written as JSON


@dataclass(frozen=True, config=_CHECKED)
class Part:
    """One loss term.

    Attributes:
        name: unique within the objective.
        kinds: the kinds of sequence that it trains.
        advantage: the factor of an episode's sequences from rewards (`advantages.py`); a distillation has none.
        group: the kinds whose episodes form the group; () means `kinds`.
        average_over: the part is divided by the tokens or sequences of these kinds that the objective trains; () means
            `kinds`. Two parts that are one average over both name both.
        loss: what the sampled tokens add to the loss (`losses.py`).
        teacher: of a distillation.
        weight: a number >= 0, or a function of the options that returns one.

    Raises:
        ValidationError: a value of another type, or a combination without a meaning.
    """

    name: str
    kinds: Annotated[tuple[Kind, ...], Field(min_length=1)]
    advantage: Annotated[Callable[..., float], _NAMED] = group_norm
    group: tuple[Kind, ...] = ()
    average_over: tuple[Kind, ...] = ()
    loss: Annotated[Callable[..., Any], _NAMED] = clipped
    teacher: Teacher = "feedback"
    weight: Annotated[Callable[[ObjectiveOptions], float] | Annotated[float, Field(ge=0)], _NAMED] = 1.0

    @model_validator(mode="after")
    def _has_a_meaning(self) -> Part:
        if self.distils and self.kinds != ("draft",):
            raise ValueError(f"part {self.name}: a distillation scores drafts: kinds=('draft',)")
        if self.group and not {kind == "draft" for kind in self.kinds} <= {kind == "draft" for kind in self.group}:
            raise ValueError(f"part {self.name}: group must contain the episodes of {', '.join(self.kinds)}")
        if self.average_over and not set(self.kinds) <= set(self.average_over):
            raise ValueError(f"part {self.name}: average_over must contain {', '.join(self.kinds)}")
        return self

    @property
    def compares(self) -> str | None:
        """The episodes that the advantage compares one with: "group", "drafts" or "own draft"; None: with nothing."""
        return None if self.distils else getattr(self.advantage, "compares", None)

    @property
    def teacher_gives(self) -> str | None:
        """The output that the loss needs of its teacher: "log_probs" or "hidden_states"; None: there is no teacher."""
        return getattr(self.loss, "teacher_gives", None)

    @property
    def distils(self) -> bool:
        """True if the part compares the policy with a teacher instead of following rewards."""
        return self.teacher_gives is not None

    @property
    def clips(self) -> bool:
        """True if the part has verl's clipped policy loss."""
        return self.loss is clipped

    @property
    def options(self) -> set[str]:
        """The options of `algorithm` that the part reads."""
        read = set(getattr(self.loss, "reads", ()))
        if self.distils:
            own = {"teachers"} if self.teacher == "experts" else {"teacher", "teacher_rate"}
            read = {f"{'distill' if self.teacher == 'experts' else 'sdpo'}.{name}" for name in read | own}
        else:
            read |= set(getattr(self.advantage, "reads", ()))
        if callable(self.weight):
            self.weight(_Recorder(ObjectiveOptions(), read))  # type: ignore[arg-type]
        return read


class _Recorder:
    """Options that note the names of those that are read."""

    def __init__(self, options: BaseModel, read: set[str], section: str = "") -> None:
        self._options, self._read, self._section = options, read, section

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._options, name)
        if isinstance(value, BaseModel):
            return _Recorder(value, self._read, f"{name}.")
        self._read.add(self._section + name)
        return value


@dataclass(frozen=True, config=_CHECKED)
class Objective:
    """The parts and the refined episodes of an `algorithm.objective`.

    Attributes:
        refined: which refined episodes of a prompt are trained and counted: "all", or only the "best" one.

    Raises:
        ValidationError: no part, two parts of one name, or a kind that two parts would train.
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
    def teacher(self) -> Teacher | None:
        """The teacher of the part that distils, if there is one."""
        return None if self.distillation is None else self.distillation.teacher

    @property
    def compares_logits(self) -> bool:
        """True if a part compares whole distributions with a teacher's."""
        return any(part.teacher_gives == "hidden_states" for part in self.parts)

    @property
    def clips(self) -> bool:
        """True if a part has verl's clipped policy loss."""
        return any(part.clips for part in self.parts)

    @property
    def compares_refined_with_old(self) -> bool:
        """True if a part divides by pi_old of refined answers in the base context, in which they were not sampled."""
        return any(getattr(part.loss, "divides", False) and "refined_base" in part.kinds for part in self.parts)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of sequence that are built and trained."""
        return tuple(dict.fromkeys(kind for part in self.parts for kind in part.kinds))

    @property
    def refines(self) -> bool:
        """True if a refined episode is played: one is trained, or its reward counts."""
        return any(kind != "draft" for part in self.parts for kind in (*part.kinds, *part.group))

    @property
    def needs_feedback(self) -> bool:
        """True if drafts get feedback."""
        return self.refines or self.teacher == "feedback"

    @property
    def options(self) -> frozenset[str]:
        """The options of `algorithm` that this objective reads; others would be ignored, so they are refused."""
        return frozenset(name for part in self.parts for name in part.options)
