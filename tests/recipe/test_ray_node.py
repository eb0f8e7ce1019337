"""recipe/ditto/ray_node.py: the words of `ray start`, a head that never answers, and a signal that the command gets.

tests/e2e/test_two_nodes.py trains on two nodes of it.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

pytest.importorskip("ray")

from recipe.ditto.ray_node import main, start_words
from soul.cli.error_border import FAILED


def test_the_first_node_starts_the_head_and_the_others_join_it() -> None:
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start"]
    assert start_words(0, "10.0.0.1:6379", ["--num-cpus=27"]) == [
        *(*ray, "--head", "--node-ip-address=10.0.0.1", "--port=6379", "--block", "--disable-usage-stats"),
        "--num-cpus=27",
    ]
    assert start_words(1, "10.0.0.1:6379") == [*ray, "--address=10.0.0.1:6379", "--block", "--disable-usage-stats"]


def test_a_head_that_never_answers_ends_the_other_nodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing listens on port 1."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    words = ["--rank", "1", "--nodes", "2", "--head", "127.0.0.1:1", "--ray=--num-cpus=1", "--limit-s", "0.1"]
    assert main([*words, "--", "true"]) == FAILED
    assert "NoCluster: Ray's head at 127.0.0.1:1 does not answer after 0.1 s (--limit-s)" in capsys.readouterr().err


COMMAND = """
import os, ray, signal, sys, time
from pathlib import Path
received = []
ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
signal.signal(signal.SIGTERM, lambda *_: received.append(1))
Path(sys.argv[1]).touch()
while not received:
    time.sleep(0.05)
assert ray.get(ray.remote(lambda: 42).remote()) == 42  # a step is saved with Ray
sys.exit(143)
"""


@pytest.mark.e2e  # a Ray cluster
@pytest.mark.timeout(300)
def test_sigterm_is_the_commands_and_ray_outlives_it(tmp_path: Path) -> None:
    """A scheduler signals every process of the job; the command's exit code is the job's, and nothing is left."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        head = f"127.0.0.1:{probe.getsockname()[1]}"
    ray_folder = tempfile.mkdtemp(prefix="ray-")  # a short path: sockets lie in it
    ray = f"--ray=--num-cpus=2 --include-dashboard=false --temp-dir={ray_folder}"
    words = ["--rank", "0", "--nodes", "1", "--head", head, ray, "--limit-s", "120", "--"]
    command = [sys.executable, "-c", COMMAND, str(tmp_path / "ready")]
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    node = [sys.executable, "-m", "recipe.ditto.ray_node", *words, *command]
    process = subprocess.Popen(node, env=environment, start_new_session=True)
    try:
        while not (tmp_path / "ready").exists():
            assert process.poll() is None
            time.sleep(0.1)
        below = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(120) == 143
        assert not psutil.wait_procs(below, timeout=20)[1]
    finally:
        process.kill()
        shutil.rmtree(ray_folder)
