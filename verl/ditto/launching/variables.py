"""Environment variables: those that launchers read, and those of OpenMP."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping

from omegaconf import DictConfig

from soul.errors import BadSettings
from soul.host_resources import THREAD_VARIABLES, physical_cores

VARIABLE = "OMP_NUM_THREADS"
OVERLAPPING = "ditto_colocate_async"  # the mode in which devices sample while they train


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
