"""The memory and the cores of this machine that a new process can use, within a container's limits (cgroup v2)."""

import gc
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
_CPUS = Path("/sys/devices/system/cpu")
# Variables of processes that share the cores. Between two loops a thread of OpenMP spins for less than a millisecond,
# then it sleeps: one that spins on takes its core from other processes, and to wake it for every loop costs more than
# the small loops of an adapter do.
THREAD_VARIABLES = {"GOMP_SPINCOUNT": "20000"}
YOUNG = 50_000  # objects created and not freed before the youngest generation is collected; Python's default is 700
OLDER = 20  # collections of a generation before the next older one is collected


def free_memory(meminfo: Path = Path("/proc/meminfo"), cgroup: Path = CGROUP) -> int:
    """Bytes that new processes can use: what the kernel counts as available, or less if a container's limit is lower.

    Args:
        cgroup: the folder of the container's limits; without it there is no limit.
    """
    available = int(re.findall(r"^MemAvailable:\s*(\d+) kB", meminfo.read_text(), re.MULTILINE)[0]) * 1024
    limit = _first_word(cgroup / "memory.max")
    if not limit.isdigit():
        return available
    used = int(_first_word(cgroup / "memory.current"))
    dropped = re.findall(r"^inactive_file (\d+)", (cgroup / "memory.stat").read_text(), re.MULTILINE)
    return max(min(available, int(limit) - used + int(dropped[0] if dropped else 0)), 0)


def physical_cores(cpus: Path = _CPUS, cgroup: Path = CGROUP) -> int:
    """Number of cores that this process may use. Two hardware threads of a core count once: they share its arithmetic.

    Args:
        cpus: the kernel's folder of processors.
    """
    allowed = os.sched_getaffinity(0)
    cores = {_first_word(cpus / f"cpu{number}/topology/thread_siblings_list") or str(number) for number in allowed}
    words = (cgroup / "cpu.max").read_text().split() if (cgroup / "cpu.max").is_file() else ["max"]
    quota = int(words[0]) // int(words[1]) if words[0].isdigit() else len(cores)
    return max(min(len(cores), quota), 1)


def _first_word(file: Path) -> str:
    """The first word of a file; empty without the file."""
    return (file.read_text().split() or [""])[0] if file.is_file() else ""


@contextmanager
def infrequent_gc() -> Iterator[None]:
    """Collect garbage less often, and never among the objects that exist already; also a decorator.

    A run keeps every sample. With Python's defaults, a fifth of its CPU time goes into scanning all imported and kept
    objects again and again for reference cycles, which are rare here.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(YOUNG, OLDER, OLDER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
