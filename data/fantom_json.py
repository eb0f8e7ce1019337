"""The official file of FANToM, `fantom_v1.json`: questions of every scored kind about each conversation.

An entry is one set of questions about one piece of information in a conversation. Of its questions

    beliefQAs                                             become choices between the right and the wrong belief
    answerabilityQA_list, infoAccessibilityQA_list        ask for all names
    answerabilityQAs_binary, infoAccessibilityQAs_binary  ask yes or no
    factQA                                                is shown with the others; it is no row of its own

The official code also asks for each belief in free words and compares sentence embeddings. Those questions are the
same, so here they are asked as choices only.

Some people missed another part of the conversation: "no:long" means that only the full conversation shows why the
answer is no. As in the official code, such questions are left out when the short context is shown.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from data.builder_cli import Rows
from data.reading import read_json
from data.rows import Record, numbered
from soul.task_types import NotBlank
from soul.validation_errors import first_problem

Context = Literal["short", "full"]
NO_IN_THE_FULL_CONVERSATION = "no:long"


class _Part(BaseModel):
    """A part of the file; keys that are not used here are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class _Fact(_Part):
    question: NotBlank
    correct_answer: NotBlank


class _Question(_Part):
    question: NotBlank
    question_type: str
    missed_info_accessibility: str = ""


class _Belief(_Question):
    correct_answer: NotBlank
    wrong_answer: NotBlank
    tom_type: str = ""


class _Names(_Question):
    correct_answer: list[str]
    wrong_answer: list[str] = []


class _YesOrNo(_Question):
    correct_answer: str


class _Entry(_Part):
    """One set of questions."""

    set_id: NotBlank  # conversation, part, set: "12-0-1"
    short_context: NotBlank
    full_context: NotBlank
    fact: _Fact = Field(validation_alias="factQA")
    beliefs: list[_Belief] = Field(validation_alias="beliefQAs")
    answerability_list: _Names | None = Field(validation_alias="answerabilityQA_list")
    answerability_binary: list[_YesOrNo] = Field(validation_alias="answerabilityQAs_binary")
    access_list: _Names | None = Field(validation_alias="infoAccessibilityQA_list")
    access_binary: list[_YesOrNo] = Field(validation_alias="infoAccessibilityQAs_binary")

    @property
    def target(self) -> str:
        """What questions about answerability are about."""
        return f"Target: {self.fact.question}"

    @property
    def information(self) -> str:
        """What questions about access to information are about."""
        return f"Information: {self.fact.question} {self.fact.correct_answer}"


_FILE = TypeAdapter(list[_Entry])


def conversation(set_id: str) -> str:
    """The conversation of an official set id: "12" of "12-0-1"."""
    return set_id.partition("-")[0]


def convert(path: Path, seed: int = 0, context: Context = "short") -> Rows:
    """All scored questions of the official file as `extra_info` dicts, in its order.

    The place of a right belief depends only on (seed, set id, number of the question).

    Raises:
        ValueError: the file is not the official one; names file, entry (from 0) and field.
    """
    try:
        entries = _FILE.validate_python(read_json(path))
    except ValidationError as error:
        place, message, *_ = first_problem(error)
        entry, *field = place or ("file",)
        name = ".".join(map(str, field)) or "entry"
        raise ValueError(
            f"{path}: entry {entry}: field '{name}': {message}; is this FANToM's fantom_v1.json?"
        ) from error
    left_out: Counter[str] = Counter()
    records = (record for entry in entries for record in _rows_of(entry, seed, context, left_out))
    return Rows(numbered(records), left_out)


def _rows_of(entry: _Entry, seed: int, context: Context, left_out: Counter[str]) -> Iterator[Record]:
    """The rows of a set, each with the number of those that count as a whole ("ALL" in the official code)."""
    records = list(_questions(entry, seed, context, left_out))
    counted = sum(record["missed_info_accessibility"] == "inaccessible" for record in records)
    shared = {"context": getattr(entry, f"{context}_context"), "set_id": entry.set_id, "set_rows": counted}
    return ({**shared, **record} for record in records)


def _questions(entry: _Entry, seed: int, context: Context, left_out: Counter[str]) -> Iterator[Record]:
    for number, belief in enumerate(entry.beliefs):
        yield _choice(belief, random.Random(f"fantom:{seed}:{entry.set_id}:{number}"))
    for names, about in ((entry.answerability_list, entry.target), (entry.access_list, entry.information)):
        if names is not None and not names.correct_answer:
            left_out["a list question whose answer is nobody"] += 1
        elif names is not None:
            missed = _missed([names], context, bool(names.wrong_answer))
            answers = {
                "correct_answer": json.dumps(names.correct_answer),
                "wrong_answer": json.dumps(names.wrong_answer),
            }
            yield _record(names, about, missed, **answers)
    for group, about in ((entry.answerability_binary, entry.target), (entry.access_binary, entry.information)):
        missed = _missed(group, context, any(question.correct_answer != "yes" for question in group))
        for question in group:
            answer = question.correct_answer.strip().lower()
            if answer == NO_IN_THE_FULL_CONVERSATION and context == "short":
                left_out["a yes-or-no question whose no only the full conversation shows (--context full)"] += 1
            elif answer not in ("yes", "no", NO_IN_THE_FULL_CONVERSATION):
                left_out[f"a yes-or-no question whose answer is {answer!r}"] += 1
            else:
                yield _record(question, about, missed, correct_answer=answer.partition(":")[0])


def _missed(questions: list[_Names] | list[_YesOrNo], context: Context, somebody_missed_it: bool) -> str:
    """Whether somebody missed the information: "inaccessible" if so.

    The file states it for the short context. In the full context more people may have missed it, and the official code
    then decides by the answers.
    """
    accessibility = questions[0].missed_info_accessibility if questions else ""
    return "inaccessible" if context == "full" and somebody_missed_it else accessibility


def _choice(belief: _Belief, rng: random.Random) -> Record:
    choices = [belief.correct_answer, belief.wrong_answer]
    rng.shuffle(choices)
    return _record(
        belief,
        "",
        belief.missed_info_accessibility,
        question_type=f"{belief.question_type}:multiple-choice",
        tom_type=belief.tom_type,
        answer_choices=json.dumps(choices, ensure_ascii=False),
        correct_answer=str(choices.index(belief.correct_answer)),
        wrong_answer=belief.wrong_answer,
    )


def _record(question: _Question, about: str, missed: str, **fields: str) -> Record:
    """A row without its context. All columns are texts, because the kinds of questions share them."""
    return {
        "question": question.question,
        "extra_info": about,
        "question_type": question.question_type,
        "tom_type": "",
        "missed_info_accessibility": missed,
        "answer_choices": "[]",
        "wrong_answer": "",
        **fields,
    }
