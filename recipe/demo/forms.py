"""The two forms of the demo's exercises: a HiToM question with letters, or a ParaToMi question with places.

An exercise (`stories.py`) is a story, a question, four containers and the right one. A form turns it into a task's
record, and a place into the text that the task expects in its answer tag. The demo trains on the first form; the demo
of distillation trains an expert on each.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from soul.message import Message
from soul.one_turn import parse_options
from soul.task import Task
from soul.tasks.hitom import HiToM
from soul.tasks.paratomi import ParaToMi

Record = dict[str, Any]


@dataclass(frozen=True)
class Form:
    """A form of the exercises.

    Attributes:
        record: returns the exercise as a record of the task.
        answer: returns the content of the answer tag for a place of the exercise.
    """

    task: Task[Any]
    record: Callable[[Record], Record]
    answer: Callable[[Record, str], str]

    def prompt(self, exercise: Record, feedback: str | None = None) -> list[Message]:
        """The prompt, exactly as the task renders it."""
        return self.task.prompt(self.task.row_type.model_validate(self.record(exercise)), feedback)


def _letter(exercise: Record, place: str) -> str:
    return next(letter for letter, text in parse_options(exercise["choices"]).items() if text == place)


def _paratomi_record(exercise: Record) -> Record:
    thought = re.fullmatch(r"Where does (\w+) really think the (\w+) is\?", exercise["question"])
    return {
        "index": exercise["index"],
        "story": [re.sub(r"^\d+ ", "", line) for line in exercise["story"].splitlines()],
        "question": f"Where will {thought[1]} look for the {thought[2]}?" if thought else exercise["question"],
        "cands": list(parse_options(exercise["choices"]).values()),
        "correct_answer": exercise["correct_answer"],
        "qType": "first_order_tom" if thought else "reality",
    }


HITOM = Form(HiToM(), dict, _letter)
PARATOMI = Form(ParaToMi(), _paratomi_record, lambda _, place: place)
