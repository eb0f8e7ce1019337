"""Read human labels of simulated conversations from a file, to compare a judge with them.

There are two kinds of records, distinguished by their label. A file (JSONL, or .json with one list) may mix them:

    {"conversation_id": .., "real": [{role, content}, ..], "simulated": [..], "human_score": 0.7 or [0.6, null, 0.8]}
    {"conversation_id": .., "real": [..], "simulated": [..], "human_label": "real" | "simulated" | "tie", or a list}

MirrorBench's own annotation files (`gteval_labeled.json`, `pi_pairwise_labeled.json`) can be read as they are. Their
pairwise records do not say which side is simulated, so `pi_pairwise_judge_scores.json` must be in the same folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from soul.errors import BadRow
from soul.judge.mirrorbench_judgments import WIN, Taken
from soul.message import Message
from soul.validation_errors import first_problem

REMEDY = "Fix the record; the docstring of soul.judge.audit.human_labels shows both kinds."
SLOT = "ground_truth_synthetic_slot"  # MirrorBench's field that says which side is the simulated conversation


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


def _each_annotator(label: Any) -> Any:
    return label if isinstance(label, list | tuple) else (label,)


_Turns = Annotated[tuple[Turn, ...], AfterValidator(_with_user)]
_Score = Annotated[float, Field(ge=0, le=1, strict=True, allow_inf_nan=False)]  # strict: JSON's true is not 1


class _Label(BaseModel):
    model_config = ConfigDict(frozen=True, coerce_numbers_to_str=True)

    conversation_id: str = Field(validation_alias=AliasChoices("conversation_id", "sample_id"))
    real: _Turns = Field(validation_alias=AliasChoices("real", "real_conversation"))
    simulated: _Turns = Field(validation_alias=AliasChoices("simulated", "synthetic_conversation"))

    @property
    def conversations(self) -> tuple[list[Message], list[Message]]:
        """The real and the simulated conversation, as shown to judges."""
        real, simulated = (
            [Message(role=t.role, content=t.content) for t in side] for side in (self.real, self.simulated)
        )
        return real, simulated


class GTEvalLabel(_Label):
    """How closely the simulated user's turns resemble the real user's according to people, one score per annotator."""

    scores: Annotated[tuple[_Score | None, ...], BeforeValidator(_each_annotator), AfterValidator(_labelled)] = Field(
        validation_alias=AliasChoices("human_score", "human_label")
    )


class PairwiseLabel(_Label):
    """The conversation whose user people took for the human, one label per annotator."""

    labels: Annotated[tuple[Taken | None, ...], BeforeValidator(_each_annotator), AfterValidator(_labelled)] = Field(
        validation_alias="human_label"
    )

    @property
    def scores(self) -> tuple[float | None, ...]:
        """The labels as numbers, with the values of `Pairwise.score`."""
        return tuple(None if label is None else WIN[label] for label in self.labels)


Label = GTEvalLabel | PairwiseLabel


def read_labels(path: str | Path) -> list[Label]:
    """All labelled records of a file, in order.

    Raises:
        BadRow: a record is invalid; the message names file, line, field and remedy.
    """
    path = Path(path)
    slots = _slots(path)
    labels = [_parse(record, where, slots) for where, record in _records(path)]
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


def _parse(record: Any, where: str, slots: Mapping[Any, Any]) -> Label:
    if not isinstance(record, dict):
        raise BadRow(f"{where}: expected an object, got {type(record).__name__}. {REMEDY}")
    if "conversation_a" in record:
        record = _unblind(record, where, slots)
    label = record.get("human_label", record.get("human_score"))
    first = next((each for each in _each_annotator(label) if each is not None), None)
    kind = PairwiseLabel if isinstance(first, str) else GTEvalLabel
    try:
        return kind.model_validate(record)
    except ValidationError as error:
        problem = first_problem(error)
        raise BadRow(f"{where}, field {problem.field}: {problem.message}. {REMEDY}") from error


def _unblind(record: Mapping[str, Any], where: str, slots: Mapping[Any, Any]) -> dict[str, Any]:
    """A pairwise record of MirrorBench (conversations a and b, label A, B or Tie) in our format."""
    slot = record.get(SLOT) or slots.get(record.get("sample_id"))
    if slot not in ("A", "B"):
        raise BadRow(
            f'{where}, field {SLOT}: does not say which side is simulated, "A" or "B". Put MirrorBench\'s '
            "pi_pairwise_judge_scores.json into the same folder, or add the field to the record."
        )
    sides = ("conversation_b", "conversation_a") if slot == "A" else ("conversation_a", "conversation_b")
    taken = {slot: "simulated", "B" if slot == "A" else "A": "real", "TIE": "tie", "NONE": None}
    given = _each_annotator(record.get("human_label"))
    labels = [taken.get(str(label).strip().upper(), label) for label in given]
    return {**record, "real": record.get(sides[0]), "simulated": record.get(sides[1]), "human_label": labels}


def _slots(path: Path) -> dict[Any, Any]:
    """Which side is simulated, from the file of MirrorBench's export with the fields that annotators must not see."""
    scores = path.with_name(f"{path.stem.removesuffix('_labeled').removesuffix('_samples')}_judge_scores.json")
    if not scores.is_file():
        return {}
    return {record.get("sample_id"): record.get(SLOT) for record in json.loads(scores.read_text(encoding="utf-8"))}
