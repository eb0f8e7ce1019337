"""Environment variables: those that launchers read, those of OpenMP, and the temporary folders that they name."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path

from omegaconf import DictConfig

from ditto.settings import BadConfig
from soul.errors import BadSettings
from soul.files.writable import check_writable
from soul.host_resources import THREAD_VARIABLES, physical_cores
from soul.mistakes import Mistakes

VARIABLE = "OMP_NUM_THREADS"
OVERLAPPING = "ditto_colocate_async"  # the mode in which devices sample while they train
LONGEST_SOCKET = 107  # bytes of a path in the kernel's structure (unix(7)), without its last, empty byte
RAY_SOCKET = "session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store"  # below Ray's folder
VLLM_SOCKET = "12345678-1234-1234-1234-123456789012"  # below the temporary folder


def names_in(variable: str, environment: Mapping[str, str]) -> list[str]:
    """The space-separated names in a variable; a name that contains spaces is in quotes.

    Raises:
        BadSettings: a quote is not closed.
    """
    try:
        return shlex.split(environment.get(variable, ""))
    except ValueError as error:
        raise BadSettings(
            f"{variable}={environment[variable]}: a quote is not closed ({error}). Separate names with spaces, put a "
            "name that contains spaces in quotes, and put a backslash before a quote that is part of a name."
        ) from error


def says_yes(variable: str, environment: Mapping[str, str]) -> bool:
    """True if a variable is 1 or true; 0, false, or nothing mean no.

    Raises:
        BadSettings: it says something else.
    """
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


def check_temporary_folders(environment: Mapping[str, str], ray_folder: str | None, starts_ray: bool) -> None:
    """Check that the folders can be written to, and that the paths of sockets in them are short enough.

    Args:
        environment: the variables of this process.
        ray_folder: ray_kwargs.ray_init._temp_dir, which Ray uses instead of RAY_TMPDIR.
        starts_ray: whether the run starts Ray, so that Ray's folder is on this machine.

    Raises:
        BadConfig, NotWritable: the message names the variable.
    """
    found = Mistakes()
    for variable in ("TMPDIR", "RAY_TMPDIR"):
        if folder := environment.get(variable):
            with found.of():
                check_writable(folder, variable)
    with found.of():
        _check_length(environment.get("TMPDIR") or tempfile.gettempdir(), VLLM_SOCKET, "TMPDIR", "vLLM")
    if starts_ray:
        variable = "RAY_TMPDIR" if environment.get("RAY_TMPDIR") else "TMPDIR"
        above = environment.get(variable) or tempfile.gettempdir()
        setting = "ray_kwargs.ray_init._temp_dir" if ray_folder else variable
        with found.of():
            _check_length(ray_folder or os.path.join(above, "ray"), RAY_SOCKET, setting, "Ray")
    found.report()


def _check_length(folder: str, socket: str, setting: str, who: str) -> None:
    folder = os.path.abspath(folder)
    length = len(os.fsencode(Path(folder) / socket))
    if length > LONGEST_SOCKET:
        most = LONGEST_SOCKET - len(os.fsencode(socket)) - 1 - (len("/ray") if setting.endswith("TMPDIR") else 0)
        raise BadConfig(
            f"{setting}: {who}'s sockets below {folder} would have paths of {length} bytes, and the kernel allows "
            f"{LONGEST_SOCKET}. Use a folder whose path has at most {most} bytes, e.g. {setting}=/tmp."
        )
