"""Seconds and peak memory of work on a GPU, or on this process's CPU. Needs torch alone."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import torch


def seconds_of(work: Callable[[], object], repeats: int, on_gpu: bool) -> list[float]:
    """Wall seconds of each repetition; a GPU has finished its work before a clock stops."""
    seconds = []
    for _ in range(repeats):
        if on_gpu:
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds


def reset_peak(on_gpu: bool) -> int:
    """Reset the peak. Returns the bytes in use: of the GPU's allocator, or of this process."""
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5")  # Linux: resets the peak of resident memory
    return _process_memory("VmRSS")


def peak(on_gpu: bool) -> int:
    """The largest number of bytes in use since the reset."""
    return torch.cuda.max_memory_allocated() if on_gpu else _process_memory("VmHWM")


def _process_memory(name: str) -> int:
    match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match
    return 1024 * int(match[1])
