"""The interface that all tasks implement, and the types it uses.

A task plays a row (`play`), judges the episode (`judge`) and says in words what to improve (`feedback`). The draft and
the refined episode run the same `play` and `judge`, with feedback as an argument, so that the two cannot drift apart.
The driver (`session.py`), evaluation, training, tests and docs use only this interface.
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
    from soul.rows.quotations import Choices


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is blank")
    return text.strip()


# A text field of a row that must not be blank; surrounding white space is removed.
NotBlank = Annotated[str, AfterValidator(_not_blank)]


class Row(BaseModel):
    """One record of a task's parquet file. A null counts as an absent key."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    index: int

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, record: Any) -> Any:
        # Loading several files together turns absent keys into nulls, and a prompt must not depend on that.
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
        """The value of an episode in which the policy said nothing."""
        return self.low if self.higher_is_better else self.high


class Strata(NamedTuple):
    """The kind of group (`Task.groups`) by which evaluation stratifies a sample of a set.

    Attributes:
        kind: a key of `Task.groups`.
        equal: draw the same number of rows for every value of the kind, instead of its share of the set.
    """

    kind: str
    equal: bool = False


BOOK = "book"  # keys of this kind are compared across tasks, because CoSER and LifeChoices use the same novels


class GroupKey(NamedTuple):
    """Something that rows have in common: GroupKey("story", "Mia entered the hall. ..."). See `Task.group_keys`."""

    kind: str
    value: str

    @classmethod
    def from_text(cls, kind: str, text: str) -> Self:
        """A key that ignores case and white space."""
        return cls(kind, " ".join(text.casefold().split()))

    @classmethod
    def from_title(cls, title: str) -> Self:
        """The key of a book: "Emma" and "EMMA." are the same book."""
        return cls(BOOK, " ".join(re.findall(r"\w+", title.casefold())))

    def __str__(self) -> str:
        shown = self.value if len(self.value) <= 80 else f"{self.value[:77]}..."
        return f'{self.kind} "{shown}"'


@dataclass(frozen=True)
class Episode:
    """One play of a row.

    Attributes:
        seats: seat of the policy -> what it saw and said, in order; its own turns have the role assistant.
        ended: why the play ended ("answered", "length", "left", "turn_limit", ...).
    """

    seats: Mapping[str, Sequence[Message]]
    ended: str = "answered"

    @property
    def answer(self) -> str:
        """The policy's last turn, as it was sampled; "" if there is none.

        With several seats this is the last turn of the last seat. A task whose seats take turns overrides it in its
        `episode_type`.
        """
        turns = [
            message["content"] for seat in self.seats.values() for message in seat if message["role"] == "assistant"
        ]
        return turns[-1] if turns else ""

    def to_json(self) -> dict[str, Any]:
        """The whole episode as plain JSON, which `from_json` reads back. Subclasses with extra fields override this."""
        return {"seats": {seat: list(messages) for seat, messages in self.seats.items()}, "ended": self.ended}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the result of `to_json` back. Subclasses whose extra fields are not plain values override this."""
        return cls(**value)


@dataclass(frozen=True)
class Verdict:
    """The judge's verdict on an episode.

    Attributes:
        reward: in the range of the task's `headline`.
        metrics: metric -> value.
        critique: what was wrong and what to improve, if the judge says so.
        jury: the opinions behind the verdict, if there are several judges.
    """

    reward: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    critique: str | None = None
    jury: tuple[Opinion, ...] = ()


class Scored(NamedTuple):
    """An episode and its verdict."""

    episode: Episode
    verdict: Verdict


@dataclass(frozen=True)
class Opinion:
    """The opinion of one member of a jury: a verdict, or the cause of its failure."""

    judge: str
    verdict: Verdict | None
    failure: Cause | None = None

    def to_json(self) -> dict[str, Any]:
        """The part of the opinion that the trace keeps."""
        verdict = {"reward": self.verdict.reward, "metrics": dict(self.verdict.metrics)} if self.verdict else {}
        return {"judge": self.judge, "failure": self.failure, **verdict}


class Task(ABC, Generic[RowT]):
    """A task of SOUL. Subclasses set `name`, `row_type` and `headline`, and implement the abstract methods."""

    name: ClassVar[str]
    version: ClassVar[int] = 1  # raise it when play or scoring change, so that an evaluation repeats its samples
    row_type: type[RowT]
    headline: ClassVar[Metric]  # the metric that is an episode's reward; a set's score is the mean of its rewards
    set_headline: ClassVar[Metric | None] = None  # if given, a set's score is the mean of `set_metrics` instead
    episode_type: ClassVar[type[Episode]] = Episode  # the type that `play` returns, to read saved episodes back
    # Calls that each role gets for one episode (play and verdict), and for the feedback on it. The plan of a run uses
    # them, and so does the check that all the endpoints that a run needs can be reached.
    calls_per_episode: ClassVar[Mapping[Role, float]] = {"judge": 1.0}
    calls_per_feedback: ClassVar[float] = 0.0
    # Options that make this task cheaper: "option=value" -> the calls for an episode with it, as above. The plan of a
    # run prints their prices.
    cheaper: Mapping[str, Mapping[Role, float]] = {}
    strata: ClassVar[Strata | None] = None  # how a sample of a set is stratified; None: not at all
    policy_turns: ClassVar[float] = 1.0  # turns of all the policy's seats in an episode, for the plan of an evaluation
    # Fields of the row that may be shortened if its prompt is too long, in this order, and the end to keep: the start
    # of a biography, the end of a history (soul/rows/truncation.py).
    cuts: ClassVar[tuple[tuple[str, Literal["start", "end"]], ...]] = ()

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The judge prompts that this task uses; the trace records their versions."""
        return ()

    @abstractmethod
    async def play(self, row: RowT, players: Players, feedback: str | None) -> Episode:
        """Play the row once. Feedback, if given, is part of the policy's instructions; partners never see it."""

    @abstractmethod
    async def judge(self, row: RowT, episode: Episode, judge: Judge) -> Verdict:
        """Score an episode. Equal episodes must get equal verdicts, whether draft or refined.

        Raises:
            JudgeFailure: the judge gave no verdict. Never return an invented score instead.
            Contentless: the policy said nothing (`Judge.ask(said=...)`); the driver then gives `headline.worst`.
        """

    @abstractmethod
    async def feedback(self, row: RowT, episode: Episode, verdict: Verdict, judge: Judge) -> str | None:
        """Say in words how to improve the episode; None if there is nothing to say.

        Raises:
            JudgeFailure: the model that should write the feedback failed.
        """

    @abstractmethod
    def prompt(self, row: RowT, feedback: str | None = None) -> list[Message]:
        """The first messages that a seat sees; with several seats, the longest of their prompts.

        This is also used to check lengths.
        """

    def secrets(self, row: RowT) -> Sequence[str]:
        """Texts that feedback must not contain: the gold answer, and anything that reveals it by elimination."""
        return ()

    def choices(self, row: RowT) -> Choices | None:
        """The lettered options of a row, which feedback must neither point at nor quote; None if there are none."""
        return None

    def groups(self, row: RowT) -> Mapping[str, str]:
        """The groups of the row, by kind: {"order": "2"}. Evaluation breaks its numbers down by these groups.

        Each kind should have few values (question types, subsets, topics), which follow from the record alone. Anything
        that differs from episode to episode (dimensions of a verdict) is a metric instead.
        """
        return {}

    def group_keys(self, row: RowT) -> Sequence[GroupKey]:
        """What the row has in common with others: its story, conversation, book, user. The best name comes first.

        Rows that share a key must be on the same side of a split, however different their prompts are
        (`soul.rows.overlap`). Keys of the kind BOOK are compared across tasks, all others within a task.

        Override this if rows come in groups. The default key is the prompt, so that only equal prompts form a group.
        """
        return [GroupKey.from_text("prompt", " ".join(message["content"] for message in self.prompt(row)))]

    def held_out_keys(self, row: RowT) -> Sequence[GroupKey]:
        """The keys that no training row may have if this row is evaluated: a subset of `group_keys`."""
        return self.group_keys(row)

    def target(self, row: RowT) -> str | None:
        """The right answer, as reports show it beside the given one; None if no single answer is right.

        For example "B. the green box", or "A. 7 or C. 7.0" if several options are right.
        """
        return None

    def given(self, row: RowT, episode: Episode) -> str | None:
        """The answer that was read from an episode, in the form of `target`.

        A right answer equals the target, or is one of those that the target lists. None if no answer could be read, and
        for tasks without a target.
        """
        return None

    def human_answer(self, row: RowT) -> str | None:
        """What a person said or wrote in the policy's place, if no single answer is right and the row has it.

        Exports use it as the target for other tools. A good answer need not use the same words.
        """
        return None

    def check(self, row: RowT) -> None:
        """Check what the schema cannot, for example that the gold answer is among the choices.

        Raises:
            ValueError: the row is invalid; the message begins with the field's name, as in "correct_answer: ...".
        """

    @classmethod
    def saved_episode(cls, attempt: Mapping[str, Any]) -> Episode:
        """The episode in an attempt as traces and journals keep it (`Attempt.to_json`)."""
        return cls.episode_type.from_json({field.name: attempt[field.name] for field in fields(cls.episode_type)})

    @classmethod
    def saved(cls, attempt: Mapping[str, Any]) -> Scored:
        """Episode and verdict of an attempt that has one, as traces and journals keep it."""
        return Scored(cls.saved_episode(attempt), Verdict(attempt["reward"], attempt["metrics"]))

    def set_metrics(self, rows: int, outcomes: Sequence[Outcome]) -> Sequence[SetMetric]:
        """The metrics whose mean is the score of a set; only for tasks with a `set_headline`.

        Which metrics are defined should depend on the rows and not on the answers, so that all models are scored by the
        same metrics. Every metric must lie within the range of `set_headline`.

        Args:
            rows: the number of rows in the set; `Outcome.place` numbers them.
            outcomes: samples of these rows, at least one for each.
        """
        raise NotImplementedError(f"{self.name} has no set_headline: the score of a set is the mean of its rewards")

    def summarize(self, scored: Sequence[Scored]) -> dict[str, float]:
        """Set-level metrics of the episodes with a verdict: the mean of the reward and of every metric they report."""
        verdicts = [verdict for _, verdict in scored]
        names = dict.fromkeys(name for verdict in verdicts for name in verdict.metrics)
        means = {name: statistics.fmean(v.metrics[name] for v in verdicts if name in v.metrics) for name in names}
        if verdicts:
            means["reward"] = statistics.fmean(v.reward for v in verdicts)
        return means
