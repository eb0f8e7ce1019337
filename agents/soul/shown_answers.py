"""The question of a sample, the right answer, and the answer that was given, as the task's own scoring reads it."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from soul import tasks
from soul.record import SessionRecord
from soul.task import Task
from soul.task_types import Episode, Row

# Fields of records that may hold the question; the first one with text counts.
QUESTION_FIELDS = (
    *("question", "problem", "topic", "intent", "task_description", "current_context", "anchor_post"),
    *("raw_prompt", "prompt_text", "prompt", "scenario", "history"),
)
MOST_CHARACTERS = 300  # of a question that a training notes
_LABELLED = re.compile(r"^\s*question:\s*(\S.*)$", re.IGNORECASE | re.MULTILINE)


class Answers(NamedTuple):
    """The question of a sample ("" if the record has none), the right answer and the given one (None if absent)."""

    question: str
    target: str | None
    given: str | None


def answers_of(samples: Iterable[SessionRecord]) -> list[Answers]:
    """Question and answers of each sample."""
    return [answers_to(sample) for sample in samples]


def answers_to(sample: SessionRecord) -> Answers:
    """Question and answers of a sample: read from its record, or as a training has noted them."""
    if sample.record:
        return Answers(question_of(sample.record), *_target_and_given(sample))
    return Answers(sample.question, sample.target, sample.draft.given)


def note_answers(trace: SessionRecord, task: Task[Any], row: Row, episodes: Iterable[Episode | None]) -> None:
    """Note question and answers in the trace of a training session.

    Args:
        episodes: the draft's, and the refined one's if there is one.
    """
    trace.question, trace.target = question_of(row.model_dump())[:MOST_CHARACTERS], task.target(row)
    for attempt, episode in zip(trace.attempts, episodes, strict=False):
        attempt.given = task.given(row, episode) if episode else None


def question_of(record: Mapping[str, Any]) -> str:
    """The question in a record, on one line: the text after "Question:", or else the first line of the field."""
    texts = (record.get(name) for name in QUESTION_FIELDS)
    text = next((text for text in texts if isinstance(text, str) and text.strip()), "")
    if labelled := _LABELLED.search(text):
        return labelled.group(1).strip()
    return text.strip().partition("\n")[0].strip()


def _target_and_given(sample: SessionRecord) -> tuple[str | None, str | None]:
    task = tasks.load(sample.task)
    if type(task).target is Task.target:  # no single answer is right, so there is no need to parse the row
        return None, None
    try:
        row = task.row_type.model_validate(sample.record)
    except ValidationError:  # this version of the task does not accept the record
        return None, None
    return task.target(row), task.given(row, task.saved_episode(sample.draft)) if sample.draft.seats else None
