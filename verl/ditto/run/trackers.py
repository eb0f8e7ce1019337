"""Folders of verl's loggers (`trainer.logger`) inside the run's own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

# logger -> the variables that say where it writes, and their values for a run's folder
_VARIABLES = {
    "tensorboard": {"TENSORBOARD_DIR": "{folder}/tensorboard"},
    "wandb": {"WANDB_DIR": "{folder}/wandb", "WANDB_CACHE_DIR": "{folder}/wandb/cache"},
    "mlflow": {"MLFLOW_TRACKING_URI": "sqlite:///{folder}/mlflow.db"},
    "file": {"VERL_FILE_LOGGER_PATH": "{folder}/logged.jsonl"},
}


def set_logger_folders(folder: Path, loggers: str | Sequence[str], project: str) -> None:
    """Set the variables of these loggers, if they are unset, for this process and its children.

    By default they write into the current folder, `/tmp` or the home folder, where runs overwrite each other.
    """
    names = [loggers] if isinstance(loggers, str) else list(loggers)
    own_mlflow = "mlflow" in names and "MLFLOW_TRACKING_URI" not in os.environ
    for variable, value in (pair for name in names for pair in _VARIABLES.get(name, {}).items()):
        os.environ.setdefault(variable, value.format(folder=folder.absolute()))
    if "wandb" in names:  # if its folder is missing, it writes to the temporary folder
        Path(os.environ["WANDB_DIR"]).mkdir(parents=True, exist_ok=True)
    if own_mlflow:  # no variable says where a local MLflow puts the files of a run, so the experiment is made here
        import mlflow

        folder.mkdir(parents=True, exist_ok=True)
        mlflow.set_tracking_uri(os.environ["MLFLOW_TRACKING_URI"])
        if mlflow.get_experiment_by_name(project) is None:
            mlflow.create_experiment(project, artifact_location=(folder.absolute() / "mlflow_files").as_uri())
