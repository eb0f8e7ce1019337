"""A socket of its own for each run's weight sync.

verl 0.9.1 names the socket between actor and rollout engine after Ray's job (`/tmp/rl-colocate-zmq-<job>-...`). The
first job of every Ray cluster has the same number, so of two runs on one machine that sync at the same time one takes
the other's socket away: a run hangs, or an engine gets the other run's weights. The driver gives each run a number
(`VARIABLE`, through Ray's runtime environment), and both ends of the socket add it to the job's.
"""

from __future__ import annotations

import os

VARIABLE = "DITTO_RUN_ID"
_JOB = "VERL_RAY_JOB_ID"  # verl's servers set it for their engines


def own_name(socket: str, job: str) -> str:
    """The sender's name of the socket, with the run's number after the job's."""
    run = os.environ.get(VARIABLE)
    return socket.replace(f"-{job}-", f"-{job}.{run}-", 1) if run else socket


def name_for_engine() -> None:
    """Let the engine in this process, or started by it, read the name that the sender uses."""
    run, job = os.environ.get(VARIABLE), os.environ.get(_JOB)
    if run and job and not job.endswith(f".{run}"):  # a server's process, the engine's, and its workers' call this
        os.environ[_JOB] = f"{job}.{run}"
