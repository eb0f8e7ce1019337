"""The record of a session: one JSON line in the traces of a training run or in the journal of an evaluation.

Only `SessionRecord.to_line` writes such a line, and only `SessionRecord.from_line` reads one; `read_records` reads a
whole file. Every line has the version of its format, `schema_version`: raise SCHEMA_VERSION when you remove a field or
change its meaning. A new field with a default does not need that.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile, groupby, takewhile
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationError, computed_field

from soul.errors import Cause, SoulError
from soul.files.line_file import read_lines
from soul.judge.call.kept_call import KeptCall
from soul.judge.call.usage import Usage
from soul.message import Message
from soul.task_types import Opinion, Row, Verdict
from soul.validation_errors import first_problem

SCHEMA_VERSION = 2
Number = Annotated[float, Field(strict=True)]  # neither text nor true
Reward = Annotated[Number, Field(allow_inf_nan=False)]
Stage = Literal["play", "judge", "feedback"]
Conversations = dict[str, list[Message]]  # seat of the policy -> what it saw and said, its own turns as assistant


class BadRecord(SoulError):
    """A line of a trace or journal is not a session record, or has a version that this release cannot read."""


@dataclass(frozen=True)
class Failure:
    """The cause of a failure and its stage. A failed attempt is masked and counted, never scored."""

    stage: Stage
    cause: Cause
    detail: str


class OpinionRecord(BaseModel):
    """The opinion of a jury member or of the canary: reward and metrics, or why there are none (None: not asked)."""

    judge: str
    failure: Cause | None = None
    reward: Reward | None = None
    metrics: dict[str, Number] = Field(default_factory=dict)

    @classmethod
    def from_opinion(cls, opinion: Opinion) -> OpinionRecord:
        """The opinion without its critique, which the jury's critique contains."""
        if opinion.verdict is None:
            return cls(judge=opinion.judge, failure=opinion.failure)
        return cls(judge=opinion.judge, reward=opinion.verdict.reward, metrics=dict(opinion.verdict.metrics))


class AttemptRecord(BaseModel):
    """One episode and its verdict: the draft or the refined one.

    Attributes:
        seats: None if the play failed.
        base: seat -> the messages before its first turn, without the feedback, for the seats where that differs from
            `seats`. Refined answers are trained in this context.
        ended: why the play ended ("answered", "turn_limit", ...); None if it failed.
        given: in training, the answer that was read from the episode (`Task.given`).
        episode: the other fields of the task's episode class (Sotopia's acts, CoSER's lines).
        reward: in the task's own range; None if there is no verdict.
        canary: the opinion of a second judge, whose score never reaches the reward; None if it was not asked.
        contentless: the policy said nothing that could be judged; the reward is the task's worst.
        calls: what the judge was asked about the episode, and who wrote the feedback on it (the draft's).
        seconds: by stage.
        started: stage -> when it began, unix time.
    """

    seats: Conversations | None = None
    base: Conversations = Field(default_factory=dict)
    ended: str | None = None
    given: str | None = None
    episode: dict[str, Any] = Field(default_factory=dict)
    reward: Reward | None = None
    metrics: dict[str, Number] | None = None
    critique: str | None = None
    jury: list[OpinionRecord] = Field(default_factory=list)
    canary: OpinionRecord | None = None
    contentless: bool = False
    calls: list[KeptCall] = Field(default_factory=list)
    failure: Failure | None = None
    seconds: dict[str, float] = Field(default_factory=dict)
    started: dict[str, float] = Field(default_factory=dict)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def valid(self) -> bool:
        """True if there is a verdict."""
        return self.reward is not None

    @property
    def verdict(self) -> Verdict | None:
        """Reward, metrics and critique; None if there is no verdict."""
        return None if self.reward is None else Verdict(self.reward, self.metrics or {}, self.critique)

    @property
    def cause(self) -> str | None:
        """The reason why there is no verdict; None if there is one."""
        if self.valid:
            return None
        return self.failure.cause if self.failure else "unknown"

    def in_base_context(self) -> Conversations:
        """The conversations without the feedback, as they are trained."""
        return {
            seat: [*self.base[seat], *dropwhile(_is_context, messages)] if seat in self.base else messages
            for seat, messages in (self.seats or {}).items()
        }


class SequenceSummary(BaseModel):
    """A training sequence of a session: its size, its log-probs, and what the loss did with it.

    Attributes:
        seat: the seat of the policy that sampled it.
        kind: the kind as which the objective trains it: "draft", "refined_base", "refined_feedback".
        prompt_tokens: length of the prompt that is trained.
        response_tokens: tokens that the policy sampled; turns of others in between do not count.
        turn_times: start (unix time) and seconds of each turn; the same for every kind of an attempt.
        logp_sampled: mean log-prob of a response token in the context in which it was sampled, from the rollout engine.
        logp_base: the same without the feedback, from the actor before the step's first update; None if it was not
            computed.
        advantage: None if no part of the objective trains the sequence by its reward.
        weight: what one response token weighs in that part of the loss, over the mini-batch; None without an advantage.
        distill_weight: the same in the part that distils; None if none does.
        masked: why the sequence is not trained, such as "no verdict" or "zero spread"; None if it is.
        prompt_ids, response: with `run.trace_tokens`, the tokens; those after the prompt with the rollout engine's
            log-prob, None where the policy did not sample the token.
    """

    attempt: Literal["draft", "refined"]
    seat: str
    kind: str
    prompt_tokens: int
    response_tokens: int
    turn_times: list[tuple[float, float]] = Field(default_factory=list)
    logp_sampled: float | None = None
    logp_base: float | None = None
    advantage: float | None = None
    weight: float | None = None
    distill_weight: float | None = None
    masked: str | None = None
    prompt_ids: list[int] = Field(default_factory=list)
    response: list[tuple[int, float | None]] = Field(default_factory=list)


class SessionRecord(BaseModel):
    """One session: its row, draft, feedback, refined episode and cost.

    Attributes:
        file, number: the task file, and the row's position in it, from 0; `row` is the record's own index.
        sample: which of the row's samples this is, from 0 (evaluation).
        set: the evaluation set; "" in training.
        record: the row's fields, so that the sample can be shown and judged again without the file; {} in training.
        question, target: in training, the row's question and right answer (`soul.shown_answers`).
        record_hash: `record_hash` of the row as it was played, shortened or not.
        stamp: a hash of what an evaluation's sample depends on (`evaluate.run.settings.stamp_of`).
        shortened: fields of the record that were truncated to fit the model's context.
        groups: what the row belongs to (`Task.groups`).
        prompts: ids of the task's judge prompts, with their versions.
        feedback_failure: why there is no feedback although the gate asked for it.
        redactions: how many passages of the feedback were blanked.
        redacted: those passages.
        full_marks: the reward of a right answer: the best value of the task's headline.
        usage: role -> calls, tokens and cost; "policy" only if the policy is an endpoint.
        step: the training step; 0 in an evaluation.
        side: the seat whose session it is, where several seats of a play have a goal of their own; "" for the first.
        policy: the policy that played it, where a run trains several.
        session, prompt: ids of the session and of its prompt's group in training; "" in an evaluation.
        model_version: the training step of the weights that sampled the last turn.
        out_of_tokens: attempt -> number of sequences whose seat had no room for another turn.
        advantages: kind of sequence -> advantage, for the sequences that were trained.
        sequences: the training sequences of the session; their advantages, weights and `logp_base` follow once the step
            is trained.
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
    question: str = ""
    target: str | None = None
    stamp: str = ""
    shortened: list[str] = Field(default_factory=list)
    groups: dict[str, str] = Field(default_factory=dict)
    prompts: list[str] = Field(default_factory=list)
    draft: AttemptRecord
    feedback: str | None = None
    feedback_failure: Failure | None = None
    redactions: int = 0
    redacted: list[str] = Field(default_factory=list)
    full_marks: Reward = 1.0
    refined: AttemptRecord | None = None
    usage: dict[str, Usage] = Field(default_factory=dict)
    step: int = 0
    side: str = ""
    policy: str = ""
    session: str = ""
    prompt: str = ""
    model_version: int | None = None
    out_of_tokens: dict[str, int] = Field(default_factory=dict)
    advantages: dict[str, float] = Field(default_factory=dict)
    sequences: list[SequenceSummary] = Field(default_factory=list)

    @property
    def key(self) -> tuple[str, int, int]:
        """Identifies a sample of an evaluation: set, position of the row, number of the sample."""
        return self.set, self.number, self.sample

    @property
    def name(self) -> str:
        """The session's name in its run; a file's name can begin with it."""
        return re.sub(r"[^\w.-]+", "_", self.session or "-".join(map(str, self.key)), flags=re.ASCII)

    @property
    def attempts(self) -> list[AttemptRecord]:
        """The draft, and the refined episode if there is one."""
        return [self.draft, *([self.refined] if self.refined else [])]

    @property
    def span(self) -> tuple[float, float] | None:
        """Begin of the session's first stage and end of its last one, in unix time; None if the record has no times."""
        stages = [
            (each.started[stage], s)
            for each in self.attempts
            for stage, s in each.seconds.items()
            if stage in each.started
        ]
        return (min(start for start, _ in stages), max(map(sum, stages))) if stages else None

    def turns(self, attempt: str, seat: str) -> Iterator[tuple[float, float, dict[str, Any]]]:
        """The policy's turns in an episode: start, seconds, and what is known of the tokens, by ATIF's names."""
        own = [one for one in self.sequences if (one.attempt, one.seat) == (attempt, seat)]
        for one in [each for each in own if each.kind != "refined_base"] or own:  # the context that was sampled in
            read, times = list(one.prompt_ids), iter(one.turn_times)
            for others, run in groupby(one.response, key=lambda pair: pair[1] is None):
                ids, logprobs = map(list, zip(*run, strict=True))
                if not others:
                    known = {"prompt_token_ids": list(read), "completion_token_ids": ids, "logprobs": logprobs}
                    yield *next(times), {"prompt_tokens": len(read), "completion_tokens": len(ids), **known}
                read += ids
            counts = {"prompt_tokens": one.prompt_tokens, "completion_tokens": one.response_tokens}
            yield from ((*time, counts if len(one.turn_times) == 1 else {}) for time in times)

    @property
    def sampled_tokens(self) -> int:
        """Number of tokens sampled in training. A refined episode counts once, also if several kinds are trained."""
        kinds = Counter[tuple[str, str]]()
        for sequence in self.sequences:
            kinds[sequence.attempt, sequence.kind] += sequence.response_tokens
        return sum(max(n for (of, _), n in kinds.items() if of == attempt) for attempt in {of for of, _ in kinds})

    def to_line(self, ascii_only: bool = False) -> str:
        """The record as one line of JSON, which UTF-8 can encode."""
        # Not `model_dump_json`: it raises on lone surrogates, which a model's text may contain.
        line = json.dumps(self.model_dump(), ensure_ascii=ascii_only)
        try:
            line.encode()
        except UnicodeEncodeError:
            return line.encode(errors="backslashreplace").decode()  # JSON's own escape
        return line

    @classmethod
    def from_line(cls, line: str | bytes, where: str) -> SessionRecord:
        """Parse a line of `to_line`.

        Args:
            where: file and line number, for error messages.

        Raises:
            BadRecord: the line is not a record, or has another version.
        """
        try:
            value = dict(json.loads(line))
            if (version := value.get("schema_version")) != SCHEMA_VERSION:
                raise BadRecord(
                    f"{where} has schema_version {version!r}; this release reads {SCHEMA_VERSION}. Use the release of "
                    "soul that wrote the file, or move the file away and let the command write a new one."
                )
            return cls.model_validate(value)
        except ValidationError as error:
            problem = first_problem(error)
            reason = f"{problem.field}: {problem.message}"
        except (ValueError, TypeError) as error:
            reason = f"{type(error).__name__}: {error}"
        raise BadRecord(
            f"{where} is not a session record ({reason}). Remove the line; an evaluation runs the sample again."
        )


class RecordLine(NamedTuple):
    """A line of a file: the byte offsets of its start and end, and its record."""

    start: int
    end: int
    record: SessionRecord


def read_records(file: Path) -> Iterator[RecordLine]:
    """The records of a trace or journal, one at a time. An incomplete last line, left by a crash, is skipped.

    Raises:
        BadRecord: a complete line is not a record, or has an unknown version.
        DamagedFile: a packed file is damaged.
    """
    for number, (start, end, line) in enumerate(read_lines(file), start=1):
        yield RecordLine(start, end, SessionRecord.from_line(line, f"{file}: line {number}"))


def opening(messages: Sequence[Message]) -> list[Message]:
    """The messages that a seat saw before its first turn."""
    return list(takewhile(_is_context, messages))


def record_hash(row: Row) -> str:
    """A hash of the row's fields without its index: equal for rows with equal records."""
    return digest(["record", row.model_dump(mode="json", exclude={"index"})])


def digest(value: Any) -> str:
    """A hash of a JSON value, 32 hex digits."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _is_context(message: Message) -> bool:
    return message["role"] != "assistant"
