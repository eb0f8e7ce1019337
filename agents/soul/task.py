"""The one interface that all tasks implement, and the few words it is made of.

A task plays a row (`play`), judges the episode (`judge`) and says in words what to do better (`feedback`). `play` and
`judge` are the same code for the draft and for the refined episode: feedback is an argument, so the two can never
drift apart. The driver (`refine.py`), evaluation, training, tests and docs use nothing else of a task.
"""

from __future__ import annotations

import re
import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from soul.errors import Cause
from soul.message import Message

if TYPE_CHECKING:
    from soul.judge import Judge, Role
    from soul.metrics.set_metrics import Outcome, SetMetric
    from soul.policy import Players
    from soul.prompts import Prompt
    from soul.record import AttemptRecord
    from soul.rows.quotations import Choices


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is blank")
    return text.strip()


# A text field of a row that must hold something; surrounding blanks go.
NotBlank = Annotated[str, AfterValidator(_not_blank)]


class Row(BaseModel):
    """One record of a task's parquet file. An absent key and a null are the same thing."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    index: int

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, record: Any) -> Any:
        # Loading several files together makes absent keys null; a prompt must not depend on that.
        if isinstance(record, Mapping):
            return {key: value for key, value in record.items() if value is not None}
        return record


RowT = TypeVar("RowT", bound=Row)


@dataclass(frozen=True)
class Metric:
    """A headline metric: its name, range, direction and the place in the paper that defines it."""

    name: str
    low: float = 0.0
    high: float = 1.0
    higher_is_better: bool = True
    source: str = ""

    @property
    def worst(self) -> float:
        """The value of an episode in which nothing was said."""
        return self.low if self.higher_is_better else self.high


class Strata(NamedTuple):
    """The kind of group (`Task.groups`) by which evaluation draws a part of a set.

    Attributes:
        equal: every value of the kind gets the same number of rows; otherwise the share that it has of the set.
    """

    kind: str
    equal: bool = False


BOOK = "book"  # keys of this kind are compared across tasks: CoSER and LifeChoices use the same novels


class GroupKey(NamedTuple):
    """One thing that ties rows together: GroupKey("story", "Mia entered the hall. ..."). See `Task.group_keys`."""

    kind: str
    value: str

    @classmethod
    def from_text(cls, kind: str, text: str) -> Self:
        """A key that ignores case and white space."""
        return cls(kind, " ".join(text.casefold().split()))

    @classmethod
    def from_title(cls, title: str) -> Self:
        """The key of a book: "Emma" and "EMMA." are one book."""
        return cls(BOOK, " ".join(re.findall(r"\w+", title.casefold())))

    def __str__(self) -> str:
        shown = self.value if len(self.value) <= 80 else f"{self.value[:77]}..."
        return f'{self.kind} "{shown}"'


@dataclass(frozen=True)
class Episode:
    """One play of a row.

    Attributes:
        seats: what each seat of the policy saw and said, in order, its own turns with role assistant.
        ended: why the play ended ("answered", "length", "left", "turn_limit", ...).
    """

    seats: Mapping[str, Sequence[Message]]
    ended: str = "answered"

    @property
    def answer(self) -> str:
        """The policy's own last turn, as it was sampled; "" if it has none.

        With several seats this is the last turn of the last seat. A task whose seats take turns overrides it in its
        `episode_type`.
        """
        turns = [said["content"] for seat in self.seats.values() for said in seat if said["role"] == "assistant"]
        return turns[-1] if turns else ""

    def to_json(self) -> dict[str, Any]:
        """All of it as plain JSON, as `of` reads it back: to judge it later. Who adds fields adds them here."""
        return {"seats": {seat: list(messages) for seat, messages in self.seats.items()}, "ended": self.ended}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read `to_json` back. Who adds fields that hold more than plain values reads them here."""
        return cls(**value)


@dataclass(frozen=True)
class Verdict:
    """What the judge says of an episode: the reward in the task's documented range, metrics, and a critique if any.

    Attributes:
        jury: the opinions behind it, where several judges were asked.
    """

    reward: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    critique: str | None = None
    jury: tuple[Opinion, ...] = ()


class Scored(NamedTuple):
    """An episode and what the judge says of it."""

    episode: Episode
    verdict: Verdict


@dataclass(frozen=True)
class Opinion:
    """What one member of a jury said: a verdict, or the cause why there is none."""

    judge: str
    verdict: Verdict | None
    failure: Cause | None = None


class Task(ABC, Generic[RowT]):
    """A task of SOUL. Subclasses set `name`, `row_type` and `headline` and write play, judge and feedback."""

    name: ClassVar[str]
    version: ClassVar[int] = 1  # raise it when play or scoring change: an evaluation then takes its samples anew
    row_type: type[RowT]
    headline: ClassVar[Metric]  # the metric that is the reward of an episode; a set's score is the mean of its rewards
    set_headline: ClassVar[Metric | None] = None  # if given, a set's score is this: the mean of `set_metrics`
    episode_type: ClassVar[type[Episode]] = Episode  # what `play` returns, for who reads a saved one back
    # Calls that each role gets for one episode (play and verdict), and for the feedback on it: for the plan of a run,
    # and for the check that every endpoint that will be asked can be.
    calls_per_episode: ClassVar[Mapping[Role, float]] = {"judge": 1.0}
    calls_per_feedback: ClassVar[float] = 0.0
    # Options that make this task cheaper: "option=value" -> the calls of an episode under it, as above. The plan of a
    # run prints their prices.
    cheaper: Mapping[str, Mapping[Role, float]] = {}
    strata: ClassVar[Strata | None] = None  # how a part of a set is drawn; None: plainly at random
    policy_turns: ClassVar[float] = 1.0  # turns of all the policy's seats in an episode, for the plan of an evaluation
    # Fields of the row that may be shortened when its prompt is too long, in this order, and which end of them stays:
    # a biography's start, a history's end (agents/soul/rows/truncation.py).
    cuts: ClassVar[tuple[tuple[str, Literal["start", "end"]], ...]] = ()

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The judge prompts that this task uses; their versions enter the trace."""
        return ()

    @abstractmethod
    async def play(self, row: RowT, players: Players, feedback: str | None) -> Episode:
        """Play the row once. With feedback the policy's instructions carry it; partners never see it."""

    @abstractmethod
    async def judge(self, row: RowT, episode: Episode, judge: Judge) -> Verdict:
        """Score an episode. Equal episodes get equal verdicts, whether draft or refined.

        Raises:
            JudgeFailure: the judge gave no verdict. Never return a made-up score instead.
            Contentless: the policy said nothing (`Judge.ask(said=...)`): the driver gives `headline.worst`.
        """

    @abstractmethod
    async def feedback(self, row: RowT, episode: Episode, verdict: Verdict, judge: Judge) -> str | None:
        """Say in words how the episode can be improved; None where there is nothing to say.

        Raises:
            JudgeFailure: the model that writes the feedback gave none.
        """

    @abstractmethod
    def prompt(self, row: RowT, feedback: str | None = None) -> list[Message]:
        """The first messages a seat sees. The longest of the seats where a task has several: used to check lengths."""

    def secrets(self, row: RowT) -> Sequence[str]:
        """Texts that feedback must not contain: the gold answer, and what would give it away by elimination."""
        return ()

    def choices(self, row: RowT) -> Choices | None:
        """The lettered options of a row, which feedback must neither point at nor quote; None where there are none."""
        return None

    def groups(self, row: RowT) -> Mapping[str, str]:
        """What the row belongs to, by kind: {"order": "2"}. Evaluation breaks its numbers down by these.

        Few values a kind (question types, subsets, topics), known from the record alone. What differs from episode to
        episode (dimensions of a verdict) is a metric instead.
        """
        return {}

    def group_keys(self, row: RowT) -> Sequence[GroupKey]:
        """What ties the row to others: its story, conversation, book, user. Best name first.

        Rows that share a key must be on the same side of a split, however different their prompts are
        (`soul.rows.overlap`). Keys of the kind BOOK are compared across tasks, all others within a task.

        Override this where rows come in groups. The default is the prompt: only equal prompts are one group.
        """
        return [GroupKey.from_text("prompt", " ".join(message["content"] for message in self.prompt(row)))]

    def held_out_keys(self, row: RowT) -> Sequence[GroupKey]:
        """The keys that no training row may have when this row is evaluated: a selection of `group_keys`."""
        return self.group_keys(row)

    def target(self, row: RowT) -> str | None:
        """The right answer, as a report shows it beside the given one; None where no single answer is right.

        For example "B. the green box", or "A. 7 or C. 7.0" where each of several options is right.
        """
        return None

    def given(self, row: RowT, episode: Episode) -> str | None:
        """The answer that was read from an episode, in the words of `target`.

        A right answer equals the target, or is one of those that the target lists. None where no answer could be read,
        and for tasks without a target.
        """
        return None

    def human_answer(self, row: RowT) -> str | None:
        """What a person said or wrote in the policy's place, where no single answer is right and the row has it.

        Exports use it as the target for other tools. A right answer need not have the same words.
        """
        return None

    def check(self, row: RowT) -> None:
        """Check what the schema cannot: for instance that the gold answer is among the choices.

        Raises:
            ValueError: with the field's name first, as in "correct_answer: ...".
        """

    @classmethod
    def saved_episode(cls, attempt: AttemptRecord) -> Episode:
        """The episode of a recorded attempt that was played."""
        saved = {"seats": attempt.seats, "ended": attempt.ended, **attempt.episode}
        return cls.episode_type.from_json({field.name: saved[field.name] for field in fields(cls.episode_type)})

    @classmethod
    def saved(cls, attempt: AttemptRecord) -> Scored:
        """Episode and verdict of a recorded attempt that has a verdict."""
        assert attempt.verdict is not None
        return Scored(cls.saved_episode(attempt), attempt.verdict)

    def set_metrics(self, rows: int, outcomes: Sequence[Outcome]) -> Sequence[SetMetric]:
        """The metrics whose mean is the score of a set; only for tasks with a `set_headline`.

        Which metrics are defined should depend on the rows and not on the answers, so that two models are scored by the
        same ones. Every metric must lie within the range of `set_headline`.

        Args:
            rows: how many rows the set has; `Outcome.place` numbers them.
            outcomes: samples of these rows, at least one for each.
        """
        raise NotImplementedError(f"{self.name} has no set_headline, so the score of a set is the mean of the rewards")

    def summarize(self, scored: Sequence[Scored]) -> dict[str, float]:
        """Set-level metrics of the episodes with a verdict: the mean of every metric they report, and of the reward."""
        verdicts = [verdict for _, verdict in scored]
        names = dict.fromkeys(name for verdict in verdicts for name in verdict.metrics)
        means = {name: statistics.fmean(v.metrics[name] for v in verdicts if name in v.metrics) for name in names}
        if verdicts:
            means["reward"] = statistics.fmean(v.reward for v in verdicts)
        return means
