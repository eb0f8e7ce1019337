"""The number of threads with which each process of a run computes on a CPU."""

from __future__ import annotations

import os

from omegaconf import DictConfig

from soul.host_resources import THREAD_VARIABLES, physical_cores

VARIABLE = "OMP_NUM_THREADS"
OVERLAPPING = "ditto_colocate_async"  # the mode in which devices sample while they train


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
