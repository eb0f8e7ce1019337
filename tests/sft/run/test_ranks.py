"""The launcher and its ranks as real processes under torchrun's launcher; what they do here is wait or fail."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.e2e.run import ROOT

pytestmark = pytest.mark.e2e

RANK = """
import os, sys, time
from soul.errors import OutOfSpace
from sft.run import stop
from sft.run.ranks import rank_main

def train():
    word, rank = sys.argv[1], os.environ["RANK"]
    print("rank", rank, "runs", flush=True)
    while not stop.requested() or word == "deaf":
        time.sleep(0.02)
        if rank == "1" and not os.path.exists(os.path.join(os.environ["TMPDIR"], "both_run")):
            continue  # a rank that fails before the other has begun would end it unseen
        if word == "full" and rank == "1":
            raise OutOfSpace("no space left in /some/folder, needs about 3.0 GB.")
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
config = OmegaConf.create({"trainer": trainer, "run": {"save_on_signal_s": save_s}})
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
            time.sleep(0.3)
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
        ("obedient", 60, [signal.SIGTERM], 143, "Stopped by SIGTERM. The last checkpoint is "),
        ("obedient", 60, [signal.SIGINT], 130, "Stopped by Ctrl-C. The last checkpoint is "),
        ("deaf", 60, [signal.SIGTERM, signal.SIGTERM], 143, "Ended by SIGTERM without saving the current step."),
        ("deaf", 60, [signal.SIGINT, signal.SIGINT], 130, "Ended by Ctrl-C without saving the current step."),
        ("deaf", 2, [signal.SIGTERM], 143, "Ended by SIGTERM without saving the current step."),
        ("deaf", 0, [signal.SIGTERM], 143, "Ended by SIGTERM without saving the current step."),
    ],
)
def test_signals(tmp_path: Path, word: str, save_s: float, signals: list[signal.Signals], code: int, last: str) -> None:
    run = Run(tmp_path, word, save_s)
    assert run.end(signals) == code, run.text
    assert "Traceback" not in run.text and run.text.strip().splitlines()[-1].startswith(last), run.text
    assert not (tmp_path / ".partial").exists() and (tmp_path / "global_step_7").exists()


def test_a_typed_error_of_a_rank_is_one_paragraph(tmp_path: Path) -> None:
    run = Run(tmp_path, "full")
    assert run.end() == 1
    assert "OutOfSpace: no space left in /some/folder, needs about 3.0 GB." in run.text and "Traceback" not in run.text


def test_an_unexpected_error_of_a_rank_keeps_its_traceback_in_a_file(tmp_path: Path) -> None:
    run = Run(tmp_path, "defect")
    assert run.end() == 1
    assert "something broke" in run.text and "Traceback" not in run.text
    (file,) = re.findall(r"The traceback is in (\S+);", run.text)
    assert 'raise RuntimeError("something broke")' in Path(file).read_text()


def test_a_killed_rank_ends_the_run_with_a_line(tmp_path: Path) -> None:
    run = Run(tmp_path, "deaf")
    run.ranks[0].kill()
    assert run.end() == 1  # the other rank hears SIGTERM only; torchrun's launcher kills it after its grace period
    assert (
        "was killed (SIGKILL)" in run.text
        and "global_step_7; the same command continues from it" in run.text
        and "Traceback" not in run.text
    )


def test_ranks_do_not_outlive_a_killed_launcher(tmp_path: Path) -> None:
    run = Run(tmp_path, "deaf")
    run.process.kill()
    assert run.end() == -signal.SIGKILL


NODE = LAUNCHER.replace('"nnodes": 1, "n_gpus_per_node": 2', '"nnodes": 2, "n_gpus_per_node": 1')
PLAIN_RANK = "import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], 'runs', flush=True)"


class Nodes:
    """Launchers of two nodes, on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.launchers = folder, list[subprocess.Popen[bytes]]()
        (folder / "rank.py").write_text(PLAIN_RANK)
        (folder / "launcher.py").write_text(NODE)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = str(free.getsockname()[1])

    def start(self, rank: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(self.folder / "launcher.py"), str(self.folder), "plain", "60"]
        paths = f"{ROOT}/verl:{ROOT}:{ROOT}/agents"
        variables = {"PYTHONPATH": paths, "NODE_RANK": str(rank), "MASTER_PORT": self.port}
        with self.log(rank).open("wb") as log:
            self.launchers.append(subprocess.Popen(command, env={**os.environ, **variables}, stdout=log, stderr=log))
        return self.launchers[-1]

    def log(self, rank: int) -> Path:
        return self.folder / f"node{rank}.txt"

    def await_text(self, rank: int, text: str) -> None:
        deadline = time.monotonic() + 60
        while text not in self.log(rank).read_text():
            assert time.monotonic() < deadline, self.log(rank).read_text()
            time.sleep(0.05)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path)
    yield nodes
    for launcher in nodes.launchers:
        launcher.kill()


def test_a_node_waits_for_the_first_one(nodes: Nodes) -> None:
    """The first node may copy a checkpoint for longer than torchrun's launcher waits for it."""
    second = nodes.start(1)
    nodes.await_text(1, "waiting for the first node (NODE_RANK=0) at 127.0.0.1:")
    first = nodes.start(0)
    assert (first.wait(60), second.wait(60)) == (0, 0), nodes.log(1).read_text()
    assert "rank 0 of 2 runs" in nodes.log(0).read_text() and "rank 1 of 2 runs" in nodes.log(1).read_text()


def test_a_node_that_waits_hears_signals(nodes: Nodes) -> None:
    second = nodes.start(1)
    nodes.await_text(1, "waiting for the first node")
    second.send_signal(signal.SIGTERM)
    assert second.wait(10) == 143 and "Ended by SIGTERM" in nodes.log(1).read_text()
