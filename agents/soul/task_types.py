"""The types that tasks take and return: rows, the keys that group them, episodes, verdicts and metrics."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, model_validator

from soul.errors import Cause
from soul.message import Message


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


# Whether more or less of a metric is better.
Direction = Literal["higher", "lower"]


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

    def problem(self, value: float) -> str:
        """Say why `value` cannot be a reward: it is not a number, or outside the range; "" if it can."""
        if math.isfinite(value) and self.low - 1e-9 <= value <= self.high + 1e-9:
            return ""
        return f"the reward is {value}, outside {self.name}'s range {self.low:g} to {self.high:g}"


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
    """Something that rows have in common: GroupKey("story", "Mia entered the hall. ..."). See `Task.group_keys`.

    Attributes:
        prose: the value is a text of which another version may exist, with a word changed (`soul.rows.near_text`).
    """

    kind: str
    value: str
    prose: bool = False

    @classmethod
    def from_text(cls, kind: str, text: str, *, prose: bool = True) -> Self:
        """A key that ignores case and white space."""
        return cls(kind, " ".join(text.casefold().split()), prose)

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
        """The whole episode as plain JSON, which `from_json` reads back."""
        plain: dict[str, Any] = _adapter(type(self)).dump_python(self, mode="json")  # type: ignore[arg-type]
        return plain

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read the result of `to_json` back; keys of other episode types are ignored."""
        saved = {each.name: value[each.name] for each in fields(cls)}
        episode: Self = _adapter(cls).validate_python(saved)  # type: ignore[arg-type]
        return episode


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


@dataclass(frozen=True)
class Verdict:
    """The judge's verdict on an episode.

    Attributes:
        reward: in the range of the task's `headline`.
        metrics: metric -> value.
        critique: what was wrong and what to improve, if the judge says so.
        jury: what each judge said, if a jury gave the verdict; empty for a single judge.
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
    """The opinion of one member of a jury: a verdict, or the cause of its failure; neither if it was not asked."""

    judge: str
    verdict: Verdict | None
    failure: Cause | None = None
