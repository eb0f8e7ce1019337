"""The launcher and its ranks as real processes under torchrun's launcher; what they do here is wait or fail.

tests/e2e/test_sft_stops.py has SIGTERM, Ctrl-C and a full disk.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from sft.run.stop import SAME_SIGNAL_S
from tests.e2e.run import ROOT

pytestmark = pytest.mark.e2e

RANK = """
import os, sys, time
from sft.run import stop
from sft.run.ranks import rank_main

def train():
    word, rank = sys.argv[1], os.environ["RANK"]
    print("rank", rank, "runs", flush=True)
    while not stop.requested() or word == "deaf":
        time.sleep(0.02)
        if rank == "1" and not os.path.exists(os.path.join(os.environ["TMPDIR"], "both_run")):
            continue  # a rank that fails before the other has begun would end it unseen
        if word == "defect" and rank == "1":
            raise RuntimeError("something broke")
    return 128 + stop.requested()

sys.exit(rank_main(train))
"""

LAUNCHER = """
import sys
from pathlib import Path
from omegaconf import OmegaConf
from soul.cli.error_border import run_command
from sft.run.ranks import run_ranks

folder, word, save_s = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
trainer = {"nnodes": 1, "n_gpus_per_node": 2, "default_local_dir": str(folder)}
config = OmegaConf.create({"trainer": trainer, "run": {"save_on_signal_s": save_s, "dir": str(folder)}})
sys.exit(run_command(lambda: run_ranks(config, [str(folder / "rank.py"), word], None)))
"""


class Run:
    """A launcher with two ranks that are up."""

    def __init__(self, folder: Path, word: str, save_s: float = 60.0) -> None:
        (folder / "rank.py").write_text(RANK)
        (folder / "launcher.py").write_text(LAUNCHER)
        (folder / "global_step_7").mkdir()
        (folder / ".partial" / "global_step_8").mkdir(parents=True)
        self.log = folder / "log.txt"
        command = [sys.executable, str(folder / "launcher.py"), str(folder), word, str(save_s)]
        paths = {"PYTHONPATH": f"{ROOT}/verl:{ROOT}", "TMPDIR": str(folder)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env={**os.environ, **paths}, stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while self.text.count("runs") < 2:
            time.sleep(0.02)
            if time.monotonic() > deadline or self.process.poll() is not None:
                self.process.kill()
                raise AssertionError(self.text)
        self.ranks = psutil.Process(self.process.pid).children(recursive=True)
        (folder / "both_run").touch()

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def end(self, signals: Sequence[signal.Signals] = ()) -> int:
        """Send the signals, a moment apart; wait for the end of all processes."""
        for number in signals:
            self.process.send_signal(number)
            time.sleep(SAME_SIGNAL_S + 0.5)
        try:
            code = self.process.wait(60)
        finally:
            self.process.kill()
        _, left = psutil.wait_procs(self.ranks, 10)
        assert not left, left
        return code


@pytest.mark.parametrize(
    ("word", "save_s", "signals", "code", "last"),
    [
        ("obedient", 60, [signal.SIGUSR1], 138, "Stopped by SIGUSR1. The last checkpoint is "),
        ("deaf", 60, [signal.SIGTERM, signal.SIGTERM], 143, "Stopped by SIGTERM. The last checkpoint is "),
        ("deaf", 1, [signal.SIGTERM], 143, "Stopped by SIGTERM. The last checkpoint is "),
    ],
)
def test_signals(tmp_path: Path, word: str, save_s: float, signals: list[signal.Signals], code: int, last: str) -> None:
    run = Run(tmp_path, word, save_s)
    assert run.end(signals) == code, run.text
    assert "Traceback" not in run.text and run.text.strip().splitlines()[-1].startswith(last), run.text
    assert not (tmp_path / ".partial").exists() and (tmp_path / "global_step_7").exists()


def test_an_unexpected_error_of_a_rank_keeps_its_traceback_in_a_file(tmp_path: Path) -> None:
    run = Run(tmp_path, "defect")
    assert run.end() == 1
    assert "something broke" in run.text and "Traceback" not in run.text
    (file,) = re.findall(r"The traceback is in (\S+);", run.text)
    assert 'raise RuntimeError("something broke")' in Path(file).read_text()


def test_a_killed_rank_ends_the_run_with_a_line(tmp_path: Path) -> None:
    run = Run(tmp_path, "deaf", save_s=1)
    run.ranks[0].kill()
    assert run.end() == 1  # the other rank hears SIGTERM only; torchrun kills it after its grace period
    assert (
        "was ended by SIGKILL" in run.text
        and "global_step_7; the same command continues from it" in run.text
        and "Traceback" not in run.text
    )


def test_ranks_do_not_outlive_a_killed_launcher(tmp_path: Path) -> None:
    run = Run(tmp_path, "deaf")
    run.process.kill()
    assert run.end() == -signal.SIGKILL


NODE = LAUNCHER.replace('"nnodes": 1, "n_gpus_per_node": 2', '"nnodes": 2, "n_gpus_per_node": 1')
PLAIN_RANK = "import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], 'runs', flush=True)"


def test_a_node_waits_for_the_first_one(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(PLAIN_RANK)
    (tmp_path / "launcher.py").write_text(NODE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    launchers = []
    for rank in (1, 0):
        variables = {"PYTHONPATH": f"{ROOT}/verl:{ROOT}:{ROOT}/agents", "NODE_RANK": str(rank), "MASTER_PORT": port}
        variables["MASTER_ADDR"] = "127.0.0.1"
        command = [sys.executable, str(tmp_path / "launcher.py"), str(tmp_path), "plain", "60"]
        launchers.append(subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True))
        time.sleep(2)
    said = [launcher.communicate(timeout=90)[0] for launcher in launchers]
    assert [launcher.returncode for launcher in launchers] == [0, 0]
    assert "rank 1 of 2 runs" in said[0] and "rank 0 of 2 runs" in said[1]
