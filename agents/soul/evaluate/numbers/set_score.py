"""The metrics of a set as a whole (`Task.set_metrics`), from the samples of its rows.

If the task has a `set_headline`, their mean is the score of the set; otherwise the score is the mean of the rewards,
and these metrics are shown beside it. Samples without a verdict do not count. For the bounds of the score, the worst
and the best possible sample replace them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from soul.metrics.set_metrics import Edge, Outcome, SetScore
from soul.record import SessionRecord
from soul.task import Task


@dataclass(frozen=True)
class SetScores:
    """The score over the valid samples, and its bounds: with all other samples at worst and at best."""

    valid: SetScore
    worst: SetScore
    best: SetScore


def set_scores(task: Task[Any], by_row: Sequence[Sequence[SessionRecord]]) -> SetScores | None:
    """The scores of a set from its samples, row by row; None if the task's score is the mean of its rewards."""
    if task.set_headline is None:
        return None
    valid = score_of(task, by_row)
    if all(sample.draft.valid for samples in by_row for sample in samples):
        return SetScores(valid, valid, valid)
    return SetScores(valid, score_of(task, by_row, "worst"), score_of(task, by_row, "best"))


def metrics_beside(task: Task[Any], by_row: Sequence[Sequence[SessionRecord]]) -> Mapping[str, float]:
    """The metrics of a set that are not its score; empty if the task no longer accepts one of the records.

    The score needs no rows, so the report of an old run shows it without these metrics.
    """
    if type(task).set_metrics is Task.set_metrics or task.set_headline is not None:
        return {}  # without a look at the rows, because to validate them takes time
    try:
        return score_of(task, by_row).parts
    except ValidationError:
        return {}


def score_of(task: Task[Any], by_row: Sequence[Sequence[SessionRecord]], missing: Edge | None = None) -> SetScore:
    """The score over the rows with a valid sample; with `missing`, over all rows, with invalid samples as that."""
    kept = [[sample for sample in samples if sample.draft.valid or missing] for samples in by_row]
    rows = [samples for samples in kept if samples]
    outcomes = [
        Outcome(
            place,
            1 / len(samples),
            task.row_type.model_validate(sample.record),
            task.saved(sample.draft) if sample.draft.valid else missing or "worst",
        )
        for place, samples in enumerate(rows)
        for sample in samples
    ]
    return SetScore.from_metrics(len(rows), task.set_metrics(len(rows), outcomes) if rows else ())
