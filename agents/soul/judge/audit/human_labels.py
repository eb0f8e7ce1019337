"""Read human labels of simulated conversations from a file, to compare a judge with them.

Labels keep apart what people said (`people`), what a judge said when the text was written (`recorded`), and the texts,
which alone reach a judge (`ask`). There are three kinds of records, distinguished by their fields. A file (JSONL, or
.json with one list) may mix them:

    {"conversation_id": .., "real": [{role, content}, ..], "simulated": [..], "human_score": 0.7 or [0.6, null, 0.8]}
    {"conversation_id": .., "real": [..], "simulated": [..], "human_label": "real" | "simulated" | "tie", or a list}
    {"conversation_id": .., "metric": "goal", "human_score": 7 or [7, null, 4], "judge_score": 5}

The last kind has a judge's score, so nobody is asked again. The others may have one, for `soul judge agree --recorded`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from soul.errors import BadRow
from soul.judge.judge import Judge
from soul.judge.mirrorbench_judgments import WIN, gteval, pairwise
from soul.message import Message
from soul.validation_errors import first_problem

Scores = Sequence[float | None]  # one for each annotator; None: this one gave none
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


def _win(label: Any) -> float:
    if str(label) not in WIN:
        raise ValueError(f"is {label!r}; write {', '.join(WIN)}")
    return WIN[label]


_Turns = Annotated[tuple[Turn, ...], AfterValidator(_with_user)]
_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]  # strict: JSON's true is not 1
_Each = BeforeValidator(lambda label: label if isinstance(label, list | tuple) else (label,))  # one per annotator
_Labels = AfterValidator(_labelled)


class Label(Protocol):
    """One text that people have labelled, on one metric or several."""

    @property
    def people(self) -> Mapping[str, Scores]:
        """The scores of people by metric."""

    @property
    def recorded(self) -> Mapping[str, float]:
        """The scores by metric that some judge gave earlier; empty if there are none."""

    async def ask(self, judge: Judge, seed: int, sample: int) -> Mapping[str, float]:
        """Ask the judge for its scores by metric.

        Args:
            seed: for the order of a pair.
            sample: the number of a repeated judgment.

        Raises:
            SessionError: the judge gave no verdict.
        """


class _Labelled(BaseModel):
    """A record with one metric."""

    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)

    conversation_id: str
    metric: str
    judge_score: _Number | None = None
    scores: Annotated[tuple[_Number | None, ...], _Each, _Labels] = Field(validation_alias="human_score")

    @property
    def people(self) -> Mapping[str, Scores]:
        return {self.metric: self.scores}

    @property
    def recorded(self) -> Mapping[str, float]:
        return {} if self.judge_score is None else {self.metric: self.judge_score}


class _Pair(_Labelled):
    real: _Turns
    simulated: _Turns

    @property
    def conversations(self) -> tuple[list[Message], list[Message]]:
        """The real and the simulated conversation, as shown to judges."""
        real, simulated = (
            [Message(role=t.role, content=t.content) for t in side] for side in (self.real, self.simulated)
        )
        return real, simulated


class GTEvalLabel(_Pair):
    """How closely the simulated user's turns resemble the real user's according to people, one score per annotator."""

    metric: Literal["gteval"] = "gteval"
    scores: Annotated[tuple[Annotated[_Number, Field(ge=0, le=1)] | None, ...], _Each, _Labels] = Field(
        validation_alias="human_score"
    )

    async def ask(self, judge: Judge, seed: int, sample: int) -> Mapping[str, float]:
        return {self.metric: (await gteval(judge, *self.conversations, sample)).score}


class PairwiseLabel(_Pair):
    """The conversation whose user people took for the human, one label per annotator, as values of `Pairwise.score`."""

    metric: Literal["pairwise"] = "pairwise"
    scores: Annotated[tuple[Annotated[float, BeforeValidator(_win)] | None, ...], _Each, _Labels] = Field(
        validation_alias="human_label"
    )

    async def ask(self, judge: Judge, seed: int, sample: int) -> Mapping[str, float]:
        return {self.metric: (await pairwise(judge, *self.conversations, seed, sample)).score}


class RecordedLabel(_Labelled):
    """People's scores of one text on a metric of its task, one per annotator, and the score that its judge gave."""

    judge_score: _Number

    async def ask(self, judge: Judge, seed: int, sample: int) -> Mapping[str, float]:
        return self.recorded


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
    kind: type[PairwiseLabel | RecordedLabel | GTEvalLabel]
    kind = PairwiseLabel if "human_label" in record else RecordedLabel if "metric" in record else GTEvalLabel
    try:
        return kind.model_validate(record)
    except ValidationError as error:
        problem = first_problem(error)
        raise BadRow(f"{where}, field {problem.field}: {problem.message}. {REMEDY}") from error
