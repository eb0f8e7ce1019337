"""Keep the files of verl's loggers (`trainer.logger`) inside the run's folder.

By default they write into the current folder, `/tmp` or the home folder, where runs of the same name overwrite each
other. A variable that the user has set wins.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

# logger -> the variable that says where it writes, and the value for a run's folder
_VARIABLES = {
    "tensorboard": ("TENSORBOARD_DIR", "{folder}/tensorboard"),
    "wandb": ("WANDB_DIR", "{folder}/wandb"),
    "swanlab": ("SWANLAB_LOG_DIR", "{folder}/swanlab"),
    "mlflow": ("MLFLOW_TRACKING_URI", "sqlite:///{folder}/mlflow.db"),
    "trackio": ("TRACKIO_DIR", "{folder}/trackio"),
    "file": ("VERL_FILE_LOGGER_PATH", "{folder}/logged.jsonl"),
}


def set_logger_folders(folder: Path, loggers: Sequence[str]) -> None:
    """Set the variables of these loggers, if they are unset, for this process and its children."""
    for variable, value in (_VARIABLES[name] for name in loggers if name in _VARIABLES):
        os.environ.setdefault(variable, value.format(folder=folder.absolute()))
    if "wandb" in loggers:  # if its folder is missing, it writes to the temporary folder
        Path(os.environ["WANDB_DIR"]).mkdir(parents=True, exist_ok=True)
