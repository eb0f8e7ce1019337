"""A process may use the machine's memory and cores within a container's limits."""

import os
from pathlib import Path

import pytest

from soul.host_resources import free_memory, physical_cores

MEMINFO = "MemTotal:       24000000 kB\nMemAvailable:   20000000 kB\n"


@pytest.mark.parametrize(
    ("limit", "free"),
    [
        (None, 20_000_000 * 1024),
        ("max", 20_000_000 * 1024),
        ("8000000000", 8_000_000_000 - 3_000_000_000 + 500_000_000),  # the kernel drops cached files first
        ("900000000000", 20_000_000 * 1024),
        ("1000000", 0),
    ],
)
def test_free_memory_is_the_smaller_of_machine_and_container(limit: str | None, free: int, tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(MEMINFO)
    if limit is not None:
        (tmp_path / "memory.max").write_text(f"{limit}\n")
        (tmp_path / "memory.current").write_text("3000000000\n")
        (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 500000000\n")
    assert free_memory(tmp_path / "meminfo", tmp_path) == free


@pytest.mark.parametrize(("quota", "cores"), [(None, 2), ("max 100000", 2), ("150000 100000", 1), ("900000 100000", 2)])
def test_two_threads_of_a_core_count_once(
    quota: str | None, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0, 1, 2})
    for number, siblings in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        (tmp_path / f"cpu{number}/topology").mkdir(parents=True)
        (tmp_path / f"cpu{number}/topology/thread_siblings_list").write_text(f"{siblings}\n")
    if quota is not None:
        (tmp_path / "cpu.max").write_text(f"{quota}\n")
    assert physical_cores(tmp_path, tmp_path) == cores
