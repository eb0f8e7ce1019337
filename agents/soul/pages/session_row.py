"""The row that the index keeps of one session: where it belongs, its rewards, why it failed, what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

from soul.judge.call.usage import Usage
from soul.record import AttemptRecord, SessionRecord
from soul.shown_answers import question_of

DIGITS = 6  # after the decimal point: more would double what a page loads, and the sessions keep them all
SHOWN_CHARACTERS = 120  # of a question, in the list
_SAME = 1e-9  # rewards that differ by less are equal


class SessionRow(NamedTuple):
    """A row of the table `sessions`, without its place in the files.

    Attributes:
        number: position of the row in its task file.
        prompt: the group of sessions that share a prompt.
        draft, refined: rewards; None without a verdict or an episode.
        cause: the first failure of the session: of the draft, the refined episode or the feedback.
        disagree: members of a jury, or judge and canary, gave an episode different rewards.
        seconds: from the first stage's start to the last one's end; without start times, the stages' sum.
        cost: US dollars; None if a price is unknown.
        prompts: ids of the judge's prompts.
        said, told: characters that the policy wrote in the draft, and those of the feedback; None without feedback.
        followed: 0: both answers are the same; 1: the refined one is another; 2: another, and right; None: not known.
        question: first words of the question; of the critique, if the row has no question.
    """

    task: str
    file: str
    number: int
    prompt: str
    session: str
    draft: float | None
    refined: float | None
    advantage_draft: float | None
    advantage_refined: float | None
    redactions: int
    cause: str | None
    disagree: int
    seconds: float
    cost: float | None
    prompts: str
    said: int
    told: int | None
    followed: int | None
    question: str

    @classmethod
    def from_record(cls, record: SessionRecord) -> SessionRow:
        """The row of a session."""
        draft, refined = record.draft, record.refined
        causes = [*(attempt.cause for attempt in record.attempts), getattr(record.feedback_failure, "cause", None)]
        advantages, usages = record.advantages, record.usage.values()
        unpriced = any(usage.unpriced for usage in usages)
        return cls(
            task=record.task,
            file=record.file,
            number=record.number,
            prompt=record.prompt or f"{record.file}:{record.number}",
            session=record.session,
            draft=_rounded(draft.reward),
            refined=_rounded(refined.reward if refined else None),
            advantage_draft=_rounded(advantages.get("draft")),
            advantage_refined=_rounded(advantages.get("refined_base", advantages.get("refined_feedback"))),
            redactions=record.redactions,
            cause=next(filter(None, causes), None),
            disagree=int(any(map(_disagree, record.attempts))),
            seconds=round(_seconds(record), 3),
            cost=None if unpriced else _rounded(sum(usage.cost_usd for usage in usages)),
            prompts=_storable(", ".join(record.prompts)),
            said=sum(len(one["content"]) for one in chain(*(draft.seats or {}).values()) if one["role"] == "assistant"),
            told=None if record.feedback is None else len(record.feedback),
            followed=_followed(record),
            question=_question(record),
        )


# Sums over a role's calls in some sessions, beside "failed": calls without a usable answer (see `Usage`).
CALL_SUMS = "calls requests cache_hits prompt_tokens completion_tokens cost_usd unpriced seconds queued_s".split()
Uses = tuple[str, Mapping[str, Usage]]  # a session's task and its calls by role


def calls_rows(sessions: Iterable[Uses]) -> list[dict[str, Any]]:
    """The calls of these sessions by role and task."""
    counts: dict[tuple[str, str], Usage] = {}
    for task, by_role in sessions:
        for role, usage in by_role.items():
            counts.setdefault((role, task), Usage()).merge(usage)
    return [
        {"role": role, "task": task, "failed": use.failures.total(), **{name: getattr(use, name) for name in CALL_SUMS}}
        for (role, task), use in counts.items()
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)


def _disagree(attempt: AttemptRecord) -> bool:
    rewards = [opinion.reward for opinion in attempt.jury if opinion.reward is not None]
    if attempt.canary and attempt.canary.reward is not None and attempt.reward is not None:
        rewards = [*rewards, attempt.canary.reward, attempt.reward]
    return bool(rewards) and max(rewards) - min(rewards) > _SAME


def _seconds(record: SessionRecord) -> float:
    if any(attempt.seconds.keys() - attempt.started.keys() for attempt in record.attempts):
        return sum(sum(attempt.seconds.values()) for attempt in record.attempts)
    start, end = record.span or (0.0, 0.0)
    return end - start


def _question(record: SessionRecord) -> str:
    text = (question_of(record.record) if record.record else record.question) or record.draft.critique or ""
    return _storable(" ".join(text.split())[:SHOWN_CHARACTERS])


def _storable(text: str) -> str:
    """The text without lone surrogates, which SQLite does not take."""
    return text.encode("utf-8", "replace").decode()


def _followed(record: SessionRecord) -> int | None:
    first, second = record.draft.given, record.refined.given if record.refined else None
    if first is None or second is None:
        return None
    right = (record.target, *(record.target or "").split(" or "))  # see `Task.target`
    return 0 if first == second else 2 if second in right else 1
