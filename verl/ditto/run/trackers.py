"""The output of a run to verl's loggers (`trainer.logger`): a folder inside the run's own, and a table of sessions.

The table goes to Weights & Biases: draft, critique and refined answer of a few sessions, side by side.

verl logs numbers, and the answers of a validation (`trainer.log_val_generations`), but no training sessions. `traces/`
and the viewer always have every session.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ditto.settings import RunSettings
from soul.record import AttemptRecord, SessionRecord

logger = logging.getLogger(__name__)

NAME = "sessions"  # of the table in the tracker
COLUMNS = ("step", "task", "row", "draft", "critique", "refined", "reward_draft", "reward_refined")
EVERY = 5  # steps
TEXT_CHARS = 4000  # shown of each text; traces have all of it

Cells = Sequence[str | int | float | None]
# logger -> the variables that say where it writes, and their values for a run's folder
_VARIABLES = {
    "tensorboard": {"TENSORBOARD_DIR": "{folder}/tensorboard"},
    "wandb": {
        "WANDB_DIR": "{folder}/wandb",
        "WANDB_DATA_DIR": "{folder}/wandb/data",  # tables before they are sent
        "WANDB_CACHE_DIR": "{folder}/wandb/cache",
    },
    "swanlab": {"SWANLAB_LOG_DIR": "{folder}/swanlab"},
    "mlflow": {"MLFLOW_TRACKING_URI": "sqlite:///{folder}/mlflow.db"},
    "trackio": {"TRACKIO_DIR": "{folder}/trackio"},
    "file": {"VERL_FILE_LOGGER_PATH": "{folder}/logged.jsonl"},
}


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
    """The policy's turns, with their seats if there are several."""
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


def set_logger_folders(folder: Path, loggers: str | Sequence[str], project: str) -> None:
    """Set the variables of these loggers, if they are unset, for this process and its children.

    By default they write into the current folder, `/tmp` or the home folder, where runs overwrite each other.

    Args:
        loggers: `trainer.logger`, one name or several.
        project: `trainer.project_name`.
    """
    names = [loggers] if isinstance(loggers, str) else list(loggers)
    own_mlflow = "mlflow" in names and "MLFLOW_TRACKING_URI" not in os.environ
    for variable, value in (pair for name in names for pair in _VARIABLES.get(name, {}).items()):
        os.environ.setdefault(variable, value.format(folder=folder.absolute()))
    if "wandb" in names:  # if its folder is missing, it writes to the temporary folder
        Path(os.environ["WANDB_DIR"]).mkdir(parents=True, exist_ok=True)
    if own_mlflow:
        _place_mlflow_artifacts(folder, project)


def _place_mlflow_artifacts(folder: Path, project: str) -> None:
    """Create the experiment before verl does: no variable says where a local MLflow puts the files of a run."""
    import mlflow

    folder.mkdir(parents=True, exist_ok=True)
    mlflow.set_tracking_uri(os.environ["MLFLOW_TRACKING_URI"])
    if mlflow.get_experiment_by_name(project) is None:
        mlflow.create_experiment(project, artifact_location=(folder.absolute() / "mlflow_files").as_uri())
