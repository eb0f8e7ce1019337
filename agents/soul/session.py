"""Draft -> verdict -> gate -> feedback -> refined -> verdict: one driver for every task.

`run_session` is one coroutine per session. All sessions of all prompts run concurrently; none waits for the batch. The
draft and the refined episode go through the same `play` and the same `judge`. An error inside a session becomes a
`Failure` with its stage and cause: it is masked and counted, never scored, and other sessions go on. If the policy said
nothing that can be judged, that is not a failure: the episode gets the task's lowest reward without a judge call.
`Session.to_record` returns what traces and journals keep (agents/soul/record.py).
"""

import asyncio
import re
import time
import traceback
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from soul.errors import SessionError
from soul.feedback_context import FeedbackContext, feedback_contexts
from soul.judge import Contentless, Gateway, Usage
from soul.judge.call.kept_call import KeptCall
from soul.judge.call.untrusted import neutral
from soul.jury import canary_opinion, judge_with_jury
from soul.leaks.redaction import is_empty, redact
from soul.policy import Players
from soul.record import AttemptRecord, Failure, OpinionRecord, SessionRecord, Stage, opening, record_hash
from soul.task import Task
from soul.task_types import Episode, Opinion, Row, Verdict

ANSWERED = "answered"  # the metric of every task that asks for a form: the share of turns that have it
SAID_NOTHING = (
    "Nothing in what you said could be judged. Say something of substance, in the form that the task asks for."
)
Context = Literal["base", "feedback"]
T = TypeVar("T")
Sides = Mapping[str, tuple[Any, Gateway]]  # side -> the row as it sees it, and the scope that counts its calls


class RefineSettings(BaseModel):
    """Conditions under which a draft gets feedback and a refined episode."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    when: str = Field(
        default="always",
        description="Which drafts get feedback and a second attempt: `always` (the paper), `failed` (not full marks), "
        "or `below:0.4` (a reward below 0.4).",
    )
    max_feedback_chars: int = Field(default=3000, ge=1, description="Feedback is cut to this many characters.")
    reveal_reference: bool = Field(default=False, description="For ablations, let the gold answer into the feedback.")
    episode_deadline_s: float | None = Field(
        default=None, gt=0, description="Seconds that the play of one episode may take; null sets no limit."
    )

    @field_validator("when")
    @classmethod
    def _known_gate(cls, when: str) -> str:
        if when in ("always", "failed") or re.fullmatch(r"below:-?\d+(\.\d+)?", when):
            return when
        raise ValueError("use always, failed or below:<reward>, e.g. below:0.4")

    def opens(self, verdict: Verdict, full_marks: float) -> bool:
        """True if this draft gets feedback and a refined episode."""
        if self.when == "always":
            return True
        threshold = full_marks if self.when == "failed" else float(self.when.removeprefix("below:"))
        return verdict.reward < threshold


@dataclass
class Attempt:
    """One episode and its verdict. If either is missing, `failure` says why."""

    players: Players
    episode: Episode | None = None
    verdict: Verdict | None = None
    failure: Failure | None = None
    canary: Opinion | None = None  # what a second judge says, for diagnosis alone
    contentless: bool = False  # the policy said nothing; the verdict has the task's lowest reward
    calls: list[KeptCall] = field(default_factory=list)  # of the judge, and of who writes the feedback
    seconds: dict[str, float] = field(default_factory=dict)  # by stage
    started: dict[str, float] = field(default_factory=dict)  # stage -> unix time

    @property
    def valid(self) -> bool:
        return self.verdict is not None

    def require_verdict(self) -> Verdict:
        """The verdict. Raises SessionError: there is none."""
        if self.verdict is None:
            assert self.failure is not None
            raise SessionError(self.failure.cause, self.failure.detail)
        return self.verdict

    def of_sides(self, sides: Collection[str]) -> dict[str, Self]:
        """The attempt as each side sees it, not judged yet: with its own seat; the first side ("") has all others."""
        if len(sides) == 1:
            return dict.fromkeys(sides, self)

        def of(side: str) -> Any:
            def own(seats: Mapping[str, Any]) -> dict[str, Any]:
                return {seat: of_seat for seat, of_seat in seats.items() if (seat if seat in sides else "") == side}

            players = replace(self.players, seats=own(self.players.seats), bases=own(self.players.bases))
            episode = replace(self.episode, seats=own(self.episode.seats)) if self.episode else None
            return replace(
                self, players=players, episode=episode, calls=[], seconds={**self.seconds}, started={**self.started}
            )

        return {side: of(side) for side in sides}

    @contextmanager
    def timed(self, stage: Stage) -> Iterator[None]:
        self.started[stage], start = time.time(), time.perf_counter()
        yield
        self.seconds[stage] = time.perf_counter() - start

    def to_record(self) -> AttemptRecord:
        """The record of the attempt that traces and journals keep."""
        episode: dict[str, Any] = self.episode.to_json() if self.episode else {"seats": None, "ended": None}
        seats, ended, verdict = episode.pop("seats"), episode.pop("ended"), self.verdict
        bases = {seat: opening(base) for seat, base in self.players.bases.items()}
        return AttemptRecord(
            seats=seats,
            base={seat: base for seat, base in bases.items() if seat in (seats or {}) and base != opening(seats[seat])},
            ended=ended,
            episode=episode,
            reward=verdict.reward if verdict else None,
            metrics=dict(verdict.metrics) if verdict else None,
            critique=verdict.critique if verdict else None,
            jury=[OpinionRecord.from_opinion(opinion) for opinion in verdict.jury] if verdict else [],
            canary=OpinionRecord.from_opinion(self.canary) if self.canary else None,
            contentless=self.contentless,
            calls=self.calls,
            failure=self.failure,
            seconds=self.seconds,
            started=self.started,
        )


@dataclass
class Session:
    """One draft and what follows from it."""

    task: str
    row: Row
    step: int
    draft: Attempt
    feedback: str | None = None
    feedback_failure: Failure | None = None
    redacted: list[str] = field(default_factory=list)  # the passages of the feedback that were blanked
    full_marks: float = 1.0  # the reward of a right answer: the best value of the task's headline
    refined: Attempt | None = None
    contexts: Mapping[str, FeedbackContext] = field(default_factory=dict)  # by seat, where they are asked for
    prompts: tuple[str, ...] = ()  # the judge prompts of the task, with their versions
    usage: dict[str, Usage] = field(default_factory=dict)  # by role
    side: str = ""  # the seat whose session it is, where several have a goal of their own; "": the first one
    others: list["Session"] = field(default_factory=list)  # those of the further sides, which share the play

    def to_record(self, file: str = "<memory>", number: int = 0) -> SessionRecord:
        """The session's record. Evaluation and trainer add the fields that only they know.

        Args:
            file, number: the task file, and the row's position in it (`TaskRow`).
        """
        return SessionRecord(
            task=self.task,
            file=file,
            number=number,
            row=self.row.index,
            record_hash=record_hash(self.row),
            step=self.step,
            side=self.side,
            draft=self.draft.to_record(),
            feedback=self.feedback,
            feedback_failure=self.feedback_failure,
            redactions=len(self.redacted),
            redacted=self.redacted,
            full_marks=self.full_marks,
            prompts=list(self.prompts),
            refined=self.refined.to_record() if self.refined else None,
            usage=self.usage,
        )


async def _guarded(stage: Stage, work: Awaitable[T]) -> T | Failure:
    """Run one stage. Any exception becomes a failure of this session alone."""
    try:
        return await work
    except Contentless:
        raise  # not a failure: the episode gets the task's lowest reward
    except SessionError as error:
        return Failure(stage, error.cause, error.detail)
    except TimeoutError:
        return Failure(stage, "deadline", "the episode took longer than refine.episode_deadline_s")
    except Exception:  # noqa: BLE001 - a bug in one task's code must not end the run; the trace keeps its traceback
        return Failure(stage, "task_error", traceback.format_exc(limit=-8))


async def _attempts(
    task: Task[Any],
    sides: Sides,
    players: Players,
    feedback: Mapping[str, str],
    settings: RefineSettings,
    judged: Collection[str],
    canary: bool,
) -> tuple[Attempt, dict[str, Attempt]]:
    """The play, and side by side its attempt; those of `judged` sides have a verdict or a failure."""
    row, gateway = sides[""]
    players.feedback = {side: text for side, text in feedback.items() if side}
    played = await play(task, row, players, gateway, feedback.get(""), settings)
    attempts = played.of_sides(sides)

    async def judge(side: str) -> None:
        attempt, (row, gateway) = attempts[side], sides[side]
        if attempt.episode is None:
            return
        scored = score(attempt, task, row, gateway)
        if canary and gateway.canary is not None:
            _, attempt.canary = await asyncio.gather(scored, canary_opinion(task, row, attempt.episode, gateway))
        else:
            await scored

    await asyncio.gather(*map(judge, judged))
    return played, attempts


async def play(
    task: Task[Any], row: Row, players: Players, gateway: Gateway, feedback: str | None, settings: RefineSettings
) -> Attempt:
    """Play a row. The attempt holds the episode or the failure; `score` judges the episode."""
    attempt = Attempt(replace(players, gateway=gateway))
    with attempt.timed("play"):
        playing = asyncio.wait_for(task.play(row, attempt.players, feedback), settings.episode_deadline_s)
        episode = await _guarded("play", playing)
    if isinstance(episode, Failure):
        attempt.failure = episode
    else:
        attempt.episode = episode
    return attempt


async def score(attempt: Attempt, task: Task[Any], row: Row, gateway: Gateway) -> None:
    """Judge an attempt's episode and store the verdict or the failure in the attempt."""
    assert attempt.episode is not None
    with attempt.timed("judge"):
        try:
            verdict = await _guarded("judge", judge_with_jury(task, row, attempt.episode, gateway))
        except Contentless:
            verdict = await _guarded("judge", _worst(task, row, attempt.episode))
            attempt.contentless = isinstance(verdict, Verdict)
    attempt.calls = gateway.take_calls()
    if isinstance(verdict, Failure):
        attempt.failure = verdict
    elif problem := task.headline.problem(verdict.reward):
        attempt.failure = Failure("judge", "invalid", problem)
    else:
        attempt.verdict = verdict


async def _worst(task: Task[Any], row: Row, episode: Episode) -> Verdict:
    worst = task.headline.worst
    metrics = {task.headline.name: worst, **({ANSWERED: 0.0} if ANSWERED in task.better else {})}
    return Verdict(worst, metrics, task.missing_form(row, episode) or SAID_NOTHING)


async def _safe_feedback(
    task: Task[Any], row: Row, draft: Attempt, gateway: Gateway, settings: RefineSettings
) -> tuple[str, list[str]] | None:
    """The feedback without control tokens and gold answer, truncated, and the passages that were blanked; None if the
    task has no feedback on this draft. What the draft lacks of the form comes first."""
    assert draft.episode is not None and draft.verdict is not None
    redacted: list[str] = []
    lacks = task.missing_form(row, draft.episode)
    try:
        text = await task.feedback(row, draft.episode, draft.verdict, gateway.feedback)
    except Contentless:
        text = lacks or SAID_NOTHING
    if text is None or text == lacks:
        return (lacks, redacted) if lacks else None
    text = neutral(text)  # a critic may quote what the policy wrote
    if not settings.reveal_reference:
        prompt = "\n".join(message["content"] for message in task.prompt(row))
        text, redacted = redact(text, task.secrets(row), task.choices(row), prompt)
    return (f"{lacks} {text}" if lacks else text)[: settings.max_feedback_chars], redacted


async def run_session(
    task: Task[Any],
    row: Row,
    new_players: Callable[[Context], Players],
    gateway: Gateway,
    settings: RefineSettings,
    *,
    step: int = 0,
    refine: bool | Collection[str] = True,
    contexts: bool | Collection[str] = False,
    canary: bool = False,
    hidden: frozenset[str] = frozenset(),
    goes_on: Callable[[Session], Awaitable[bool]] | None = None,
) -> Session:
    """Play one session of a row.

    Args:
        new_players: creates the participants of one episode; the refined one gets the context "feedback".
        gateway: judge, feedback, partner and environment; the session counts its calls in a scope of its own.
        step: the training step.
        refine: False in validation and test: no refined episode. Or the sides that get one (`Task.side_rows`; "" is the
            first): the others play it without feedback, as partners, and are not judged.
        contexts: also find the prompts of the draft's seats with the feedback, for self-distillation. Or the sides.
        canary: let the gateway's canary, if there is one, score the episodes too.
        hidden: dimensions of the task that its judge is not asked for.
        goes_on: asked with the session so far before its feedback is written, and again before the refined episode;
            the session ends if it returns False. None: it always goes on.

    Returns:
        The session of the first side. Errors inside it do not raise; see `Attempt.failure` and `feedback_failure`.
    """
    sides = {side: (of, gateway.scope(task.name, hidden)) for side, of in {"": row, **task.side_rows(row)}.items()}
    refined_sides, context_sides = (set(sides if of is True else of or ()) for of in (refine, contexts))
    played, drafts = await _attempts(task, sides, new_players("base"), {}, settings, list(sides), canary)
    sessions = _sessions(task, row, step, drafts)
    session = sessions[""]

    async def may_go_on() -> bool:
        session.usage = sides[""][1].usage()
        return goes_on is None or await goes_on(session)

    def open_gate(side: str) -> bool:
        verdict = drafts[side].verdict
        return verdict is not None and settings.opens(verdict, task.headline.high)

    gate = {side: sessions[side] for side in sides if side in refined_sides | context_sides and open_gate(side)}
    if gate and await may_go_on():
        await asyncio.gather(*(add_feedback(each, task, *sides[side], settings) for side, each in gate.items()))
    feedback = {side: each.feedback for side, each in gate.items() if each.feedback is not None}
    if wanted := {side: text for side, text in feedback.items() if side in context_sides}:
        await _add_contexts(sessions, task, played, sides, wanted, settings)
    if (wanted := {side: text for side, text in feedback.items() if side in refined_sides}) and await may_go_on():
        _, refined = await _attempts(task, sides, new_players("feedback"), wanted, settings, list(wanted), canary)
        for side in wanted:
            sessions[side].refined = refined[side]
    for side, each in sessions.items():
        each.usage = sides[side][1].usage()
    return session


async def _add_contexts(
    sessions: Mapping[str, Session],
    task: Task[Any],
    played: Attempt,
    sides: Sides,
    feedback: Mapping[str, str],
    settings: RefineSettings,
) -> None:
    """Find the prompts with the feedback of these sides' seats, in one repetition of the draft."""
    assert played.episode is not None
    row, scope = sides[""]
    found = await feedback_contexts(task, row, played.episode, scope, feedback, settings.episode_deadline_s)
    for side in feedback:
        seats = sessions[side].draft.players.seats
        sessions[side].contexts = {seat: context for seat, context in found.items() if seat in seats}


def _sessions(task: Task[Any], row: Row, step: int, drafts: Mapping[str, Attempt]) -> dict[str, Session]:
    """The session of each side; the first one's has the others."""
    prompts = tuple(prompt.id for prompt in task.prompts)
    sessions = {
        side: Session(task.name, row, step, draft, full_marks=task.headline.high, prompts=prompts, side=side)
        for side, draft in drafts.items()
    }
    sessions[""].others = [session for side, session in sessions.items() if side]
    return sessions


async def add_feedback(session: Session, task: Task[Any], row: Row, scope: Gateway, settings: RefineSettings) -> None:
    """Store the feedback on the draft in the session, or the reason why there is none."""
    with session.draft.timed("feedback"):
        feedback = await _guarded("feedback", _safe_feedback(task, row, session.draft, scope, settings))
    session.draft.calls += scope.take_calls()
    if isinstance(feedback, Failure):
        session.feedback_failure = feedback
    elif feedback is not None:
        text, session.redacted = feedback
        if is_empty(text):
            session.feedback_failure = Failure("feedback", "leak", "nothing was left once the answer was withheld")
        else:
            session.feedback = text
