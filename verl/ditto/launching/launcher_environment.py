"""The environment variables of the launchers (run_rl.sh, recipe/ditto/run_rl.sh, run_sft.sh) as overrides.

They stand before the words of the command line, which win. What a variable holds may be any text; it is quoted here, in
one place (`override_words.quoted`).
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from ditto.launching.override_words import quoted
from ditto.settings import BadConfig
from soul import tasks
from soul.files.writable import check_writable

# Variables of run_sft.sh that hold a text or a whole number, and their keys.
_SFT_TEXTS = {"DATA_DIR": "data.dir", "ACTOR_MODEL_PATH": "model.path", "RL_TEST_FILES": "trainer.rl_test_files"}
_SFT_NUMBERS = {
    "RL_TEST_FREQ": "trainer.rl_test_freq",
    "N_GPUS": "trainer.n_gpus_per_node",
    "NNODES": "trainer.nnodes",
    "TOTAL_TRAINING_STEPS": "trainer.total_training_steps",
    "TEST_FREQ": "trainer.test_freq",
    "SAVE_FREQ": "trainer.save_freq",
}


def rl_words(task: str, environment: Mapping[str, str]) -> list[str]:
    """The overrides for a task, several with commas, "all" or "paper".

    Raises:
        UnknownTask: with the nearest name. BadConfig, NotWritable: a variable that cannot be.
    """
    launches = tasks.launches(task)
    for launch in launches:
        tasks.load(launch.task)
    data = Path(environment.get("DATA_DIR") or "data")
    train = [str(data / "sim_rl_data" / f"{launch.train}.parquet") for launch in launches]
    val = [str(data / "sim_eval_data" / f"{launch.val}.parquet") for launch in launches]
    train = _words("TRAIN_FILES", environment) or train
    words = [
        *_common(environment, f"ditto-rl-{task.replace(',', '+')}"),
        quoted("data.train_files", train, "TRAIN_FILES"),
        quoted("data.val_files", _words("VAL_FILES", environment) or val, "VAL_FILES"),
    ]
    if len(train) > 1:
        words += ["data.mixture.rows_per_task=1024", "data.mixture.val_rows_per_task=100"]
    if model := environment.get("ACTOR_MODEL_PATH"):
        words.append(quoted("actor_rollout_ref.model.path", model, "ACTOR_MODEL_PATH"))
    return words


def sft_words(environment: Mapping[str, str]) -> list[str]:
    """The overrides for a supervised training.

    Raises:
        BadConfig, NotWritable: a variable that cannot be.
    """
    words = _common(environment, "osim-8b-mid")
    for variable in ("TRAIN_FILES", "VAL_FILES"):
        if files := _words(variable, environment):
            words.append(quoted(f"data.{variable.lower()}", files, variable))
    texts = {variable: key for variable, key in _SFT_TEXTS.items() if environment.get(variable)}
    words += [quoted(key, environment[variable], variable) for variable, key in texts.items()]
    numbers = {variable: key for variable, key in _SFT_NUMBERS.items() if environment.get(variable)}
    return words + [f"{key}={_number(variable, environment)}" for variable, key in numbers.items()]


def _common(environment: Mapping[str, str], usual_name: str) -> list[str]:
    """Platform, name and folder of the run; and where what it brings along is kept: below OUTPUT_DIR."""
    platform = environment.get("PLATFORM") or "gpu"
    if platform not in ("cpu", "gpu"):
        raise BadConfig(f"PLATFORM={platform}: use cpu or gpu, or leave it unset.")
    if environment.get("OMP_NUM_THREADS"):
        _number("OMP_NUM_THREADS", environment)
    output = environment.get("OUTPUT_DIR") or "outputs"
    name = environment.get("EXPERIMENT_NAME") or usual_name
    words = [
        f"platform={platform}",
        quoted("trainer.experiment_name", name, "EXPERIMENT_NAME"),
        quoted("run.dir", f"{output}/{name}", "OUTPUT_DIR"),
    ]
    check_writable(output, "OUTPUT_DIR")
    folder = Path(output).absolute()
    os.environ.setdefault("HF_HOME", str(folder / "hf_home"))
    os.environ.setdefault("WANDB_DIR", str(folder / "wandb"))
    Path(os.environ["WANDB_DIR"]).mkdir(parents=True, exist_ok=True)  # wandb writes elsewhere where it is missing
    return words + (["+dry_run=true"] if _yes("DRY_RUN", environment) else [])


def _yes(variable: str, environment: Mapping[str, str]) -> bool:
    value = environment.get(variable, "").lower()
    if value not in ("", "0", "1", "true", "false"):
        raise BadConfig(f"{variable}={value}: use 1 or 0.")
    return value in ("1", "true")


def _words(variable: str, environment: Mapping[str, str]) -> list[str]:
    """The names in a variable, separated by spaces; put a name that contains spaces in quotes."""
    try:
        return shlex.split(environment.get(variable, ""))
    except ValueError as error:
        raise BadConfig(
            f"{variable}={environment[variable]}: a quote is left open ({error}). Separate names by spaces; put a "
            "name that contains spaces in quotes, and a backslash before a quote in a name."
        ) from error


def _number(variable: str, environment: Mapping[str, str]) -> int:
    if not re.fullmatch(r"-?\d+", environment[variable].strip()):
        raise BadConfig(f"{variable}={environment[variable]}: use a whole number.")
    return int(environment[variable])
