"""Processes of a training whose parent is killed while they still import their libraries: they end too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.run import ROOT

STARTS = """
import multiprocessing, os, subprocess, sys, time
from pathlib import Path
from sft.run import ranks, stop

folder = Path(sys.argv[1])

def late(kind):
    (folder / "pid").write_text(str(os.getpid()))
    while not (folder / "go").exists():
        time.sleep(0.01)
    if kind == "rank":
        ranks.rank_main(lambda: time.sleep(60))
    else:
        stop.start_helper()
        time.sleep(60)

if __name__ == "__main__":
    if sys.argv[2] == "helper":
        multiprocessing.get_context("spawn").Process(target=late, args=("helper",)).start()
    elif sys.argv[2] == "launcher":
        os.environ[stop.LAUNCHER_VARIABLE] = str(os.getpid())
        subprocess.Popen([sys.executable, __file__, sys.argv[1], "rank"])
    else:
        late("rank")
    time.sleep(60)
"""


@pytest.mark.parametrize("kind", ["helper", "launcher"])
def test_a_process_does_not_outlive_a_parent_that_is_killed_before_it_is_ready(tmp_path: Path, kind: str) -> None:
    (tmp_path / "starts.py").write_text(STARTS)
    command = [sys.executable, str(tmp_path / "starts.py"), str(tmp_path), kind]
    parent = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": f"{ROOT}/verl:{ROOT}"})
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline and parent.poll() is None
        time.sleep(0.02)
    child = psutil.Process(int((tmp_path / "pid").read_text()))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    (tmp_path / "go").touch()
    try:
        child.wait(10)
    finally:
        if child.is_running():
            child.kill()
