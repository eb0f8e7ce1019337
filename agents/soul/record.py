"""The record of a session: one JSON line in the traces of a training run or in the journal of an evaluation.

`SessionRecord.to_line` is the only writer of such a line and `SessionRecord.from_line` the only reader; `read_records`
reads a whole file. Every line carries the version of its format, `schema_version`:

    1   lines without `schema_version`. A trace names file and row in one text (`where`), the fields that a task's
        episode adds stand beside `seats`, and the base context is not kept. `from_line` still reads them.
    2   the models below.

Raise SCHEMA_VERSION when a field changes its meaning or goes; a new field with a default does not need it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationError, computed_field

from soul.errors import Cause, SoulError
from soul.judge.call.usage import Usage
from soul.message import Message
from soul.task import Opinion, Row, Verdict

SCHEMA_VERSION = 2
Stage = Literal["play", "judge", "feedback"]
Conversations = dict[str, list[Message]]  # seat of the policy -> what it saw and said, its own turns as assistant


class BadRecord(SoulError):
    """A line of a trace or journal is no session record, or one of a version that this release does not read."""


@dataclass(frozen=True)
class Failure:
    """What went wrong, and where: masked and counted, never a score."""

    stage: Stage
    cause: Cause
    detail: str


class OpinionRecord(BaseModel):
    """What one member of a jury said: reward and metrics, or the cause why there are none."""

    judge: str
    failure: Cause | None = None
    reward: float | None = None
    metrics: dict[str, float] = Field(default_factory=dict)

    @classmethod
    def from_opinion(cls, opinion: Opinion) -> OpinionRecord:
        """The opinion without its critique, which is part of the jury's."""
        if opinion.verdict is None:
            return cls(judge=opinion.judge, failure=opinion.failure)
        return cls(judge=opinion.judge, reward=opinion.verdict.reward, metrics=dict(opinion.verdict.metrics))


class AttemptRecord(BaseModel):
    """One episode and its verdict: the draft or the refined one.

    Attributes:
        seats: None where the play failed.
        base: seat -> the messages before its first turn without the feedback, where that differs from `seats`: the
            context in which a refined answer is trained. None in records of version 1, which did not keep it.
        ended: why the play ended ("answered", "turn_limit", ...); None where it failed.
        episode: what the task's episode holds beside `seats` and `ended` (Sotopia's acts, CoSER's lines).
        reward: in the task's own range; None where there is no verdict.
        contentless: the policy said nothing that could be judged; the reward is the task's worst.
        seconds: by stage.
    """

    seats: Conversations | None = None
    base: Conversations | None = None
    ended: str | None = None
    episode: dict[str, Any] = Field(default_factory=dict)
    reward: float | None = None
    metrics: dict[str, float] | None = None
    critique: str | None = None
    jury: list[OpinionRecord] = Field(default_factory=list)
    contentless: bool = False
    failure: Failure | None = None
    seconds: dict[str, float] = Field(default_factory=dict)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def valid(self) -> bool:
        """Whether there is a verdict."""
        return self.reward is not None

    @property
    def verdict(self) -> Verdict | None:
        """Reward, metrics and critique; None where there is no verdict."""
        return None if self.reward is None else Verdict(self.reward, self.metrics or {}, self.critique)

    @property
    def cause(self) -> str | None:
        """Why there is no verdict; None where there is one."""
        if self.valid:
            return None
        return self.failure.cause if self.failure else "unknown"

    def in_base_context(self) -> Conversations | None:
        """The conversations as they are trained, without the feedback; None in records that did not keep `base`."""
        if self.base is None:
            return None
        return {
            seat: [*self.base[seat], *dropwhile(_is_context, messages)] if seat in self.base else messages
            for seat, messages in (self.seats or {}).items()
        }


class SessionRecord(BaseModel):
    """One session: its row, draft, feedback and refined episode, and what they cost.

    Attributes:
        file, number: the task file and the row's place in it, from 0; `row` is the index that the record carries.
        sample: number of the sample among those of its row (evaluation).
        set: the evaluation set; "" in training.
        record: the row's fields, so that the sample can be shown and judged again without the file; {} in training.
        record_hash: `record_hash` of the row as it was played, shortened or not; "" in lines of version 1.
        stamp: of an evaluation's sample: what it depends on (`evaluate.run.settings.stamp_of`).
        shortened: fields of the record that were cut to fit the model's context.
        groups: what the row belongs to (`Task.groups`).
        prompts: ids of the task's judge prompts, with their versions.
        feedback_failure: why there is no feedback where the gate asked for it.
        redactions: places of the feedback that were blanked.
        full_marks: the reward of a right answer: the best of the task's headline.
        usage: what each role's calls took; "policy" only where the policy is an endpoint.
        step: the training step; 0 in an evaluation.
        session, prompt: ids of the session and of its prompt's group in training; "" in an evaluation.
        model_version: training step of the weights that sampled last.
        out_of_tokens: attempt -> sequences whose seat had no room for another turn.
        advantages: kind of sequence -> advantage, of the sequences that were trained.
    """

    schema_version: int = SCHEMA_VERSION
    task: str
    set: str = ""
    file: str = ""
    number: int
    row: int
    sample: int = 0
    record_hash: str = ""
    record: dict[str, Any] = Field(default_factory=dict)
    stamp: str = ""
    shortened: list[str] = Field(default_factory=list)
    groups: dict[str, str] = Field(default_factory=dict)
    prompts: list[str] = Field(default_factory=list)
    draft: AttemptRecord
    feedback: str | None = None
    feedback_failure: Failure | None = None
    redactions: int = 0
    full_marks: float = 1.0
    refined: AttemptRecord | None = None
    usage: dict[str, Usage] = Field(default_factory=dict)
    step: int = 0
    session: str = ""
    prompt: str = ""
    model_version: int | None = None
    out_of_tokens: dict[str, int] = Field(default_factory=dict)
    advantages: dict[str, float] = Field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int, int]:
        """Which sample of an evaluation it is: set, row of the file, number of the sample."""
        return self.set, self.number, self.sample

    @property
    def attempts(self) -> list[AttemptRecord]:
        """The draft, and the refined episode where there is one."""
        return [self.draft, *([self.refined] if self.refined else [])]

    def to_line(self, ascii_only: bool = False) -> str:
        """The record as one line of JSON."""
        # Not `model_dump_json`: it refuses half a surrogate pair, which texts of a model may hold.
        return json.dumps(self.model_dump(), ensure_ascii=ascii_only)

    @classmethod
    def from_line(cls, line: str | bytes, where: str) -> SessionRecord:
        """Read `to_line` back, or a line of version 1.

        Args:
            where: file and line number, for the message of an error.

        Raises:
            BadRecord: the line is no record, or one of another version.
        """
        try:
            value = dict(json.loads(line))
            version = value.get("schema_version", 1)
            if version == 1:
                value = _from_version_1(value)
            elif version != SCHEMA_VERSION:
                raise BadRecord(
                    f"{where} has schema_version {version!r}, and this release reads 1 to {SCHEMA_VERSION}. Use the "
                    "release of soul that wrote the file, or move the file away and let the command write a new one."
                )
            return cls.model_validate(value)
        except ValidationError as error:
            reason = _first_problem(error)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
        raise BadRecord(
            f"{where} is no sample ({reason}). Remove the line; a repeated evaluation takes the sample again."
        )


class RecordLine(NamedTuple):
    """A line of a file: the bytes at which it begins and ends, and its record."""

    start: int
    end: int
    record: SessionRecord


def read_records(file: Path) -> Iterator[RecordLine]:
    """The records of a trace or journal, one at a time. A last line that a crash cut short is left out.

    Raises:
        BadRecord: a whole line is no record, or one of another version.
    """
    end = 0
    with file.open("rb") as opened:
        for number, line in enumerate(opened, start=1):
            if not line.endswith(b"\n"):
                return
            start, end = end, end + len(line)
            yield RecordLine(start, end, SessionRecord.from_line(line, f"{file}: line {number}"))


def opening(messages: Sequence[Message]) -> list[Message]:
    """What a seat saw before its first turn."""
    return list(takewhile(_is_context, messages))


def record_hash(row: Row) -> str:
    """A hash of the row's fields without its index: rows with equal records are one row."""
    return digest(["record", row.model_dump(mode="json", exclude={"index"})])


def digest(value: Any) -> str:
    """32 hex digits of a JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _is_context(message: Message) -> bool:
    return message["role"] != "assistant"


def _from_version_1(value: dict[str, Any]) -> dict[str, Any]:
    """A line of version 1 as one of version 2."""
    if "where" in value:
        file, _, number = value["where"].rpartition(", row ")
        value |= {"file": file, "number": int(number)}
    for name in ("draft", "refined"):
        attempt: Mapping[str, Any] | None = value.get(name)
        if attempt is not None:
            others = attempt.keys() - AttemptRecord.model_fields.keys() - {"valid"}
            value[name] = {**attempt, "episode": {key: attempt[key] for key in attempt if key in others}}
    return {**value, "schema_version": SCHEMA_VERSION}


def _first_problem(error: ValidationError) -> str:
    """The first thing that is wrong with a line, in a few words."""
    problems = error.errors(include_url=False)
    missing = sorted(".".join(map(str, one["loc"])) for one in problems if one["type"] == "missing")
    if missing:
        return f"it has no {missing[0]!r}"
    return f"{'.'.join(map(str, problems[0]['loc']))}: {problems[0]['msg']}"
