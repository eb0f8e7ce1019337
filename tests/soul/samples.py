"""What the tests of `soul` share: one small row of every kind of question, real records, a judge nobody may ask.

Real records lie outside the repository (`SOUL_DATA_SOURCES`, default `../shared/data`); tests that need them skip
where they are absent.
"""

import asyncio
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from soul import examples
from soul.rows.task_files import TaskRow, parse_row
from soul.task_types import Episode, Verdict
from soul.testing import FakeOpenAI, fake_judge

# Of the tasks that differ only in name (AlignX, Humanual), one.
TASKS = [name for name in examples.names() if not re.match(r"(alignx_|humanual-)", name)]
DATA = Path(
    os.environ.get("SOUL_DATA_SOURCES") or Path(__file__).resolve().parents[2].parent / "shared" / "data"
)  # parents[2] is the repository


class Sample(NamedTuple):
    """A record with texts that a rule must score in full, and texts that it must not score at all."""

    task: str
    record: Mapping[str, Any]
    right: tuple[str, ...]
    wrong: tuple[str, ...]

    @property
    def item(self) -> TaskRow:
        """The validated row."""
        return parse_row(self.task, self.record)


HITOM = {
    "index": 0,
    "story": "1 Mia and Tom entered the hall.\n2 The tomato is in the green_box.\n3 Mia moved it to the red_crate.",
    "question": "Where is the tomato really?",
    "choices": "A. green_box, B. red_crate, C. blue_drawer",
    "correct_answer": "red_crate",
    "question_order": 0,
}
PARATOMI = {
    "index": 0,
    "story": ["Isla entered the garden", "The gloves are in the crate", "Isla moved the gloves to the treasure_chest"],
    "question": "Where will Isla look for the gloves?",
    "cands": ["garden", "crate", "treasure_chest"],
    "correct_answer": "treasure_chest",
    "qType": "first_order_no_tom",
}
_TALK = {"index": 0, "context": "Ann: I keep bees.\nBob: How many hives?\nAnn: Three.\nCarl: Hello, I just joined."}
FANTOM_CHOICE = {
    **_TALK,
    "question": "What does Carl believe about Ann's bees?",
    "question_type": "tom:belief:inaccessible:multiple-choice",
    "answer_choices": ["Carl believes Ann keeps three hives.", "Carl does not know about the bees."],
    "correct_answer": 1,
}
FANTOM_LIST = {
    **_TALK,
    "question": "List all the characters who know how many hives Ann keeps.",
    "question_type": "tom:answerability:list",
    "correct_answer": ["Ann", "Bob"],
    "wrong_answer": ["Carl"],
}
FANTOM_BINARY = {
    **_TALK,
    "question": "Does Carl know how many hives Ann keeps? Answer yes or no.",
    "question_type": "tom:answerability:binary",
    "correct_answer": "no",
}
FANTOM_FACT = {
    **_TALK,
    "question": "How many hives does Ann keep?",
    "question_type": "fact",
    "correct_answer": "three hives",
}

SAMPLES: dict[str, Sample] = {
    "hitom": Sample(
        "hitom", HITOM, ("B", "b", "(B)", "B."), ("A", "C", "Z", "green_box", "B because she saw it", "A, B")
    ),
    "paratomi": Sample(
        "paratomi",
        PARATOMI,
        ("treasure_chest", "treasure chest", "Treasure Chest", "in the treasure  chest"),
        ("crate", "treasure_chest or crate", "treasure", "treasure_chests", "treasure_chest in the garden"),
    ),
    "fantom_choice": Sample("fantom", FANTOM_CHOICE, ("B", "b", "(b)", "B."), ("A", "C", "1", "I say B", "AB")),
    "fantom_list": Sample(
        "fantom",
        FANTOM_LIST,
        ("Ann, Bob", "bob and ANN", "Bob,Ann"),
        ("Ann", "Ann, Bob, Carl", "Anna, Bob", "Bobby, Ann"),
    ),
    "fantom_binary": Sample(
        "fantom",
        FANTOM_BINARY,
        ("no", "No", "No.", "NO, she left"),
        ("yes", "yes and no", "Nobody told her", "not", "know"),
    ),
    "fantom_fact": Sample("fantom", FANTOM_FACT, ("three hives", "Three hives.", "the three hives"), ("two", "bees")),
}


def load(name: str) -> tuple[Sample, TaskRow]:
    """The sample of that name and its validated row."""
    return SAMPLES[name], SAMPLES[name].item


def tagged(answer: str) -> str:
    return f"Let me think about who was there.\n<answer>{answer}</answer>"


def episode_of(item: TaskRow, text: str, feedback: str | None = None) -> Episode:
    """The episode in which the policy answered the row's prompt with this text."""
    return Episode({"policy": [*item.task.prompt(item.row, feedback), {"role": "assistant", "content": text}]})


def verdict_of(item: TaskRow, text: str, feedback: str | None = None) -> Verdict:
    """The verdict of a rule-scored task; its judge must not be asked."""
    fake = FakeOpenAI(_nobody_asks)
    verdict = asyncio.run(item.task.judge(item.row, episode_of(item, text, feedback), fake_judge(fake)))
    assert not fake.requests, "a task that scores by rule asked the judge for a score"
    return verdict


def _nobody_asks(request: Any) -> Any:
    raise AssertionError("a task that scores by rule asked the judge for a score")


def source(*parts: str) -> Path:
    """A file of real records; the test skips where it is absent."""
    path = DATA.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"real records are absent: {path} (set SOUL_DATA_SOURCES to the folder that holds {parts[0]}/)")
    return path
