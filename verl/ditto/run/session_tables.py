"""A few sessions of a step as a table in the tracker: draft, critique and refined answer, side by side.

verl logs numbers, and the answers of a validation (`trainer.log_val_generations`), but no training sessions. W&B,
MLflow, SwanLab and Trackio have tables. TensorBoard has none; `traces/` always has every session.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ditto.settings import RunSettings
from soul.record import AttemptRecord, SessionRecord

logger = logging.getLogger(__name__)

NAME = "sessions"  # of the table in the tracker
COLUMNS = ("step", "task", "row", "draft", "critique", "refined", "reward_draft", "reward_refined")
TEXT_CHARS = 4000  # shown of each text; traces have all of it

Cells = Sequence[str | int | float | None]


def log_sessions(
    trackers: Mapping[str, Any], settings: RunSettings, step: int, records: Sequence[SessionRecord]
) -> None:
    """Write a table of some sessions, if the step is due (`run.logged_sessions`, `run.logged_sessions_freq`).

    Args:
        trackers: verl's `Tracking.logger`, the trackers of the run by their names.
        records: the sessions of the step.
    """
    writers = {name: _WRITERS[name] for name in trackers if name in _WRITERS}
    if not writers or not settings.logged_sessions or step % settings.logged_sessions_freq:
        return
    rows = table_rows(records, settings.logged_sessions)
    for name, write in writers.items():
        try:
            write(step, rows)
        except Exception as error:  # noqa: BLE001 - another program's errors, of any class; a table never ends a run
            logger.warning("%s did not take the table of sessions: %s: %s", name, type(error).__name__, error)


def table_rows(records: Sequence[SessionRecord], count: int) -> list[Cells]:
    """The rows of the table: sessions from the lowest to the highest reward of their drafts, evenly spaced.

    Args:
        records: the sessions of a step. Those without a verdict are left out.
        count: how many rows at most.
    """
    ranked = sorted((record for record in records if record.draft.valid), key=_rank)
    if len(ranked) > count:
        spread = (len(ranked) - 1) / max(count - 1, 1)
        ranked = [ranked[round(place * spread)] for place in range(count)]
    return [_cells(record) for record in ranked]


def _rank(record: SessionRecord) -> tuple[float, str]:
    return record.draft.reward or 0.0, record.session


def _cells(record: SessionRecord) -> Cells:
    refined = record.refined
    return (
        *(record.step, record.task, record.row),
        *(_text(record.draft), _shortened(record.feedback or record.draft.critique or "")),
        *(_text(refined) if refined else "", record.draft.reward, refined.reward if refined else None),
    )


def _text(attempt: AttemptRecord) -> str:
    """What the policy said: its turns, with their seats if there are several."""
    return _shortened("\n\n".join(_turns(attempt)))


def _turns(attempt: AttemptRecord) -> Iterator[str]:
    seats = attempt.seats or {}
    for seat, messages in seats.items():
        for message in messages:
            if message["role"] == "assistant":
                yield f"{seat}: {message['content']}" if len(seats) > 1 else message["content"]


def _shortened(text: str) -> str:
    """The text without lone surrogates, which no tracker can encode, and not longer than TEXT_CHARS."""
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= TEXT_CHARS else f"{text[:TEXT_CHARS]} ..."


def _to_wandb(step: int, rows: Sequence[Cells]) -> None:
    import wandb

    wandb.log({NAME: wandb.Table(columns=list(COLUMNS), data=[list(row) for row in rows])}, step=step)


def _to_mlflow(step: int, rows: Sequence[Cells]) -> None:
    import mlflow

    columns = {name: list(values) for name, values in zip(COLUMNS, zip(*rows, strict=True), strict=True)}
    mlflow.log_table(columns, f"{NAME}/step_{step:06d}.json")


def _to_swanlab(step: int, rows: Sequence[Cells]) -> None:
    import swanlab

    table = swanlab.echarts.Table()
    table.add(headers=list(COLUMNS), rows=[["" if cell is None else cell for cell in row] for row in rows])
    swanlab.log({NAME: table}, step=step)


def _to_trackio(step: int, rows: Sequence[Cells]) -> None:
    import pandas as pd
    import trackio

    trackio.log({NAME: trackio.Table(dataframe=pd.DataFrame(rows, columns=list(COLUMNS)))}, step=step)


_WRITERS: Mapping[str, Callable[[int, Sequence[Cells]], None]] = {
    "wandb": _to_wandb,
    "mlflow": _to_mlflow,
    "swanlab": _to_swanlab,
    "trackio": _to_trackio,
}
