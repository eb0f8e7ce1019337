"""What a sample was about, in few words: the question, the right answer, and the answer that was given.

Question and answers stand side by side in the list of samples and above the conversation. The answers come from the
task itself (`Task.target`, `Task.given`), so that the report reads an answer exactly as the score does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from agents import tasks
from agents.task import Task

# Fields that hold what a row asks, in the order in which they are tried: a question, a task, then a scene.
QUESTION_FIELDS = (
    *("question", "problem", "topic", "intent", "task_description", "current_context", "anchor_post"),
    *("raw_prompt", "prompt_text", "prompt", "scenario", "history"),
)
_LABELLED = re.compile(r"^\s*question:\s*(\S.*)$", re.IGNORECASE | re.MULTILINE)


class Answers(NamedTuple):
    """The question of a sample, "" where its record has none, and the two answers, None where there is none."""

    question: str
    target: str | None
    given: str | None


def answers_of(samples: Iterable[Mapping[str, Any]]) -> list[Answers]:
    """For every line of the journal what was asked and answered."""
    return [Answers(question_of(sample["record"]), *_target_and_given(sample)) for sample in samples]


def question_of(record: Mapping[str, Any]) -> str:
    """What a record asks, on one line: the line after "Question:", or else the first line of the field."""
    texts = (record.get(name) for name in QUESTION_FIELDS)
    text = next((text for text in texts if isinstance(text, str) and text.strip()), "")
    if labelled := _LABELLED.search(text):
        return labelled.group(1).strip()
    return text.strip().partition("\n")[0].strip()


def _target_and_given(sample: Mapping[str, Any]) -> tuple[str | None, str | None]:
    task = tasks.load(sample["task"])
    if type(task).target is Task.target:  # no single answer is right: do not spend time on reading the row
        return None, None
    try:
        row = task.row_type.model_validate(sample["record"])
    except ValidationError:  # a sample of another version of the task; its record is shown as it is
        return None, None
    draft = sample["draft"]
    return task.target(row), task.given(row, task.saved_episode(draft)) if draft["seats"] else None
