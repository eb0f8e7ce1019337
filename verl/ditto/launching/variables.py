"""Environment variables: those of OpenMP, and those of run_rl.sh, recipe/ditto/run_rl.sh and run_sft.sh.

The launchers' become Hydra overrides before those of the command line, which win. A variable may hold any text;
`override_parser.quoted` quotes it for Hydra.
"""

import logging
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from omegaconf import DictConfig

from ditto.launching.override_parser import quoted
from ditto.settings import BadConfig
from soul import tasks
from soul.errors import BadSettings, SoulError
from soul.files.disk_writes import check_writable
from soul.host_resources import THREAD_VARIABLES, physical_cores
from soul.rows.task_files import read_table

logger = logging.getLogger(__name__)

VARIABLE = "OMP_NUM_THREADS"
OVERLAPPING = "ditto_colocate_async"  # the mode in which devices sample while they train

# Variables that hold text or a whole number -> the key that each one sets.
_SFT_TEXTS = {"DATA_DIR": "data.dir", "ACTOR_MODEL_PATH": "model.path", "RL_TEST_FILES": "trainer.rl_test_files"}
_NUMBERS = {
    "N_GPUS": "trainer.n_gpus_per_node",
    "TOTAL_TRAINING_STEPS": "trainer.total_training_steps",
    "TEST_FREQ": "trainer.test_freq",
    "SAVE_FREQ": "trainer.save_freq",
}
_SFT_NUMBERS = _NUMBERS | {"RL_TEST_FREQ": "trainer.rl_test_freq", "NNODES": "trainer.nnodes"}
# Variables of other launchers -> what this one reads instead.
_UNREAD = {
    "MODEL_PATH": "ACTOR_MODEL_PATH",
    "MODEL_NAME": "ACTOR_MODEL_PATH",
    "JUDGE_MODEL": "JUDGE_MODEL_NAME",
    "TRAIN_FILE": "TRAIN_FILES",
    "VAL_FILE": "VAL_FILES",
    "NUM_GPUS": "N_GPUS",
    "TOTAL_STEPS": "TOTAL_TRAINING_STEPS",
    "LR": "the override of the learning rate (docs/configuration.md)",
    "LEARNING_RATE": "the override of the learning rate (docs/configuration.md)",
    "BATCH_SIZE": "data.train_batch_size=N",
}


def names_in(variable: str, environment: Mapping[str, str]) -> list[str]:
    """The space-separated names in a variable; a name that contains spaces is in quotes. Raises BadSettings."""
    try:
        return shlex.split(environment.get(variable, ""))
    except ValueError as error:
        raise BadSettings(
            f"{variable}={environment[variable]}: a quote is not closed ({error}). Separate names with spaces, put a "
            "name that contains spaces in quotes, and put a backslash before a quote that is part of a name."
        ) from error


def says_yes(variable: str, environment: Mapping[str, str]) -> bool:
    """True if a variable is 1 or true; 0, false, or nothing mean no. Raises BadSettings: it says something else."""
    value = environment.get(variable, "").lower()
    if value not in ("", "0", "1", "true", "false"):
        raise BadSettings(f"{variable}={environment[variable]}: use 1 or 0.")
    return value in ("1", "true")


def rl_words(task: str, environment: Mapping[str, str]) -> list[str]:
    """The overrides for an RL run on a task, several separated by commas, "all", or "paper"."""
    launches = tasks.launches(task)
    for launch in launches:
        tasks.load(launch.task)
    data = Path(environment.get("DATA_DIR") or "data")
    train = [str(data / "sim_rl_data" / f"{launch.train}.parquet") for launch in launches]
    val = [str(_validation_file(launch, data)) for launch in launches]
    if given := names_in("TRAIN_FILES", environment):
        _check_every_task_has_rows(task, [launch.task for launch in launches], given)
    train = given or train
    words = [
        *_common(environment, f"ditto-rl-{task.replace(',', '+')}"),
        quoted("data.train_files", train, "TRAIN_FILES"),
        quoted("data.val_files", names_in("VAL_FILES", environment) or val, "VAL_FILES"),
    ]
    if len(train) > 1:
        words += ["data.mixture.rows_per_task=1024", "data.mixture.val_rows_per_task=100"]
    if model := environment.get("ACTOR_MODEL_PATH"):
        words.append(quoted("actor_rollout_ref.model.path", model, "ACTOR_MODEL_PATH"))
    return words + _numbers(environment, _NUMBERS)


def _check_every_task_has_rows(task: str, names: Sequence[str], files: Sequence[str]) -> None:
    """Refuse files without a row of one of several tasks that TASK lists. What cannot be read is reported later."""
    if "," not in task or not all(Path(file).is_file() for file in files):
        return
    try:
        found = {str(name) for file in files for name in read_table(file)["data_source"].unique().to_pylist()}
        rows = {tasks.load(name).name for name in found}
    except SoulError:
        return
    if lacking := [name for name in names if tasks.load(name).name not in rows]:
        raise BadConfig(
            f"TASK={task}: TRAIN_FILES have no row of {', '.join(lacking)}, only of {', '.join(sorted(rows))}. Add its "
            "file, or leave the task out."
        )


def _validation_file(split: tasks.TrainingSplit, data: Path) -> Path:
    """The benchmark's file; the one that `data.train` generates, where only that one exists."""
    file, generated = data / "sim_eval_data" / f"{split.val}.parquet", tasks.generated_validation_file(split, data)
    return generated if generated.is_file() and not file.is_file() else file


def sft_words(environment: Mapping[str, str]) -> list[str]:
    """The overrides for supervised training."""
    words = _common(environment, "osim-8b-mid")
    for variable in ("TRAIN_FILES", "VAL_FILES"):
        if files := names_in(variable, environment):
            words.append(quoted(f"data.{variable.lower()}", files, variable))
    texts = {variable: key for variable, key in _SFT_TEXTS.items() if environment.get(variable)}
    words += [quoted(key, environment[variable], variable) for variable, key in texts.items()]
    return words + _numbers(environment, _SFT_NUMBERS)


def _numbers(environment: Mapping[str, str], keys: Mapping[str, str]) -> list[str]:
    return [f"{key}={_number(variable, environment)}" for variable, key in keys.items() if environment.get(variable)]


def _common(environment: Mapping[str, str], default_name: str) -> list[str]:
    """Platform, name and folder of the run. Also points HF_HOME below OUTPUT_DIR if it is unset."""
    platform = environment.get("PLATFORM") or "gpu"
    if platform not in ("cpu", "gpu"):
        raise BadConfig(f"PLATFORM={platform}: use cpu or gpu, or leave it unset.")
    for variable in _UNREAD.keys() & environment.keys():
        logger.warning("%s is not read by this launcher: use %s", variable, _UNREAD[variable])
    if environment.get(VARIABLE):
        _number(VARIABLE, environment)
    output = environment.get("OUTPUT_DIR") or "outputs"
    name = environment.get("EXPERIMENT_NAME") or default_name
    words = [
        f"platform={platform}",
        quoted("trainer.experiment_name", name, "EXPERIMENT_NAME"),
        quoted("run.dir", f"{output}/{name}", "OUTPUT_DIR"),
    ]
    check_writable(output, "OUTPUT_DIR")
    os.environ.setdefault("HF_HOME", str(Path(output).absolute() / "hf_home"))
    return words + (["+dry_run=true"] if says_yes("DRY_RUN", environment) else [])


def _number(variable: str, environment: Mapping[str, str]) -> int:
    if not re.fullmatch(r"-?\d+", environment[variable].strip()):
        raise BadConfig(f"{variable}={environment[variable]}: use a whole number.")
    return int(environment[variable])


def cpu_variables(config: DictConfig) -> dict[str, str]:
    """The environment variables of OpenMP for all processes of a run; those that the user has set stay.

    Trainer and rollout engine of a device take turns in synchronous training, so each has the device's share of the
    cores.
    """
    trainer, rollout = config.trainer, config.actor_rollout_ref.rollout
    devices = trainer.n_gpus_per_node + rollout.nnodes * rollout.n_gpus_per_node
    working = devices * (2 if trainer.v1.trainer_mode == OVERLAPPING else 1)
    chosen = {VARIABLE: str(max(physical_cores() // working, 1))} | THREAD_VARIABLES
    return {name: os.environ.get(name) or value for name, value in chosen.items()}
