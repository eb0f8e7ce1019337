"""Read human labels of simulated conversations from a file, to compare a judge with them.

There are three kinds of records, distinguished by their fields. A file (JSONL, or .json with one list) may mix them:

    {"conversation_id": .., "real": [{role, content}, ..], "simulated": [..], "human_score": 0.7 or [0.6, null, 0.8]}
    {"conversation_id": .., "real": [..], "simulated": [..], "human_label": "real" | "simulated" | "tie", or a list}
    {"conversation_id": .., "metric": "goal", "human_score": 7 or [7, null, 4], "judge_score": 5}

The last kind has what a judge said when the text was written, so nobody is asked again.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from soul.errors import BadRow
from soul.judge.mirrorbench_judgments import WIN, Taken
from soul.message import Message
from soul.validation_errors import first_problem

REMEDY = "Fix the record; the docstring of soul.judge.audit.human_labels shows the kinds."


class Turn(BaseModel):
    """One turn of a labelled conversation. Other fields of the record never reach the judge."""

    model_config = ConfigDict(frozen=True)

    role: Literal["user", "assistant"]
    content: str


def _with_user(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    if not any(turn.role == "user" for turn in turns):
        raise ValueError("has no turn of the user, who is to be judged")
    return turns


def _labelled(labels: tuple[Any, ...]) -> tuple[Any, ...]:
    if all(label is None for label in labels):
        raise ValueError("no annotator has labelled this record yet; label it or remove it from the file")
    return labels


_Turns = Annotated[tuple[Turn, ...], AfterValidator(_with_user)]
_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]  # strict: JSON's true is not 1
_Score = Annotated[_Number, Field(ge=0, le=1)]


class _Label(BaseModel):
    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)

    conversation_id: str
    real: _Turns
    simulated: _Turns

    @property
    def conversations(self) -> tuple[list[Message], list[Message]]:
        """The real and the simulated conversation, as shown to judges."""
        real, simulated = (
            [Message(role=t.role, content=t.content) for t in side] for side in (self.real, self.simulated)
        )
        return real, simulated


_Each = BeforeValidator(lambda label: label if isinstance(label, list | tuple) else (label,))  # one per annotator


class GTEvalLabel(_Label):
    """How closely the simulated user's turns resemble the real user's according to people, one score per annotator."""

    scores: Annotated[tuple[_Score | None, ...], _Each, AfterValidator(_labelled)] = Field(
        validation_alias="human_score"
    )


class PairwiseLabel(_Label):
    """The conversation whose user people took for the human, one label per annotator."""

    labels: Annotated[tuple[Taken | None, ...], _Each, AfterValidator(_labelled)] = Field(
        validation_alias="human_label"
    )

    @property
    def scores(self) -> tuple[float | None, ...]:
        """The labels as numbers, with the values of `Pairwise.score`."""
        return tuple(None if label is None else WIN[label] for label in self.labels)


class RecordedLabel(BaseModel):
    """People's scores of one text on a metric of its task, one per annotator, and the score that its judge gave."""

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)

    conversation_id: str
    metric: str
    judge_score: _Number
    scores: Annotated[tuple[_Number | None, ...], _Each, AfterValidator(_labelled)] = Field(
        validation_alias="human_score"
    )


Label = GTEvalLabel | PairwiseLabel | RecordedLabel


def read_labels(path: str | Path) -> list[Label]:
    """All labelled records of a file, in order.

    Raises:
        BadRow: a record is invalid; the message names file, line, field and remedy.
    """
    path = Path(path)
    labels = [parse(record, where) for where, record in _records(path)]
    if not labels:
        raise BadRow(f"{path}: the file has no records. Check the path, or export the labels again.")
    return labels


def _records(path: Path) -> Iterator[tuple[str, Any]]:
    """Every record with its place, for messages."""
    where = str(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".json":
            yield from ((f"{path}, record {number}", record) for number, record in enumerate(json.loads(text), 1))
            return
        for number, line in enumerate(text.split("\n"), 1):  # not splitlines: JSON strings may hold U+2028
            where = f"{path}, line {number}"
            if line.strip():
                yield where, json.loads(line)
    except (OSError, ValueError, RecursionError) as error:
        raise BadRow(f"{where}: cannot be read as JSON ({error}). Write a .json list, or .jsonl with lines.") from error


def parse(record: Any, where: str) -> Label:
    """One record; `where` is its place, for messages."""
    if not isinstance(record, dict):
        raise BadRow(f"{where}: expected an object, got {type(record).__name__}. {REMEDY}")
    kind = PairwiseLabel if "human_label" in record else RecordedLabel if "judge_score" in record else GTEvalLabel
    try:
        return kind.model_validate(record)
    except ValidationError as error:
        problem = first_problem(error)
        raise BadRow(f"{where}, field {problem.field}: {problem.message}. {REMEDY}") from error
