"""End the processes below another one. Ray leaves some behind: a rollout engine is slow to notice a dead parent."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import psutil

EXIT_S = 10.0  # how long we wait for killed processes to exit


def below(pid: int | None = None) -> list[psutil.Process]:
    """All descendants of a process, by default of this one."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def kill(processes: Sequence[psutil.Process]) -> None:
    """Kill these processes by id and wait until they are gone."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=EXIT_S)
