"""A few sessions of a step as a table in Weights & Biases: draft, critique and refined answer, side by side.

verl logs numbers, and the answers of a validation (`trainer.log_val_generations`), but no training sessions. `traces/`
and the viewer always have every session.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ditto.settings import RunSettings
from soul.record import AttemptRecord, SessionRecord

logger = logging.getLogger(__name__)

NAME = "sessions"  # of the table in the tracker
COLUMNS = ("step", "task", "row", "draft", "critique", "refined", "reward_draft", "reward_refined")
EVERY = 5  # steps
TEXT_CHARS = 4000  # shown of each text; traces have all of it

Cells = Sequence[str | int | float | None]


def log_sessions(
    trackers: Mapping[str, Any], settings: RunSettings, step: int, records: Sequence[SessionRecord]
) -> None:
    """Write a table of `run.logged_sessions` sessions, if the step is due.

    Args:
        trackers: verl's `Tracking.logger`, the trackers of the run by their names.
        records: the sessions of the step.
    """
    if "wandb" not in trackers or not settings.logged_sessions or step % EVERY:
        return
    import wandb

    rows: list[Iterable[Any]] = list(table_rows(records, settings.logged_sessions))
    try:
        wandb.log({NAME: wandb.Table(columns=list(COLUMNS), data=rows)}, step=step)
    except Exception as error:  # noqa: BLE001 - another program's errors, of any class; a table never ends a run
        logger.warning("wandb did not take the table of sessions: %s: %s", type(error).__name__, error)


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
