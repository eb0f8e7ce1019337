"""A training run on two nodes: two `ray start` processes with working folders of their own, as a scheduler starts them.

`recipe.ditto.ray_node` is what the Slurm script runs on every node. Here both nodes are this
machine, so their ports are chosen freely; everything else is what several machines do.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from soul.testing import FakeOpenAI, Json
from tests.e2e.cluster import OF_A_RUN
from tests.e2e.run import SENTINEL_KEY, Run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]  # busy machines: the waits below end first

STEPS, NODES = 2, 2
CRITIQUE = {"critique": "You answered where the thing is now. Ask what the character saw last.", "ready": True}
RAY = "--num-cpus=6 --num-gpus=1 --min-worker-port=0 --max-worker-port=0"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Finished:
    """The run, and the exit code of each node."""

    def __init__(self, run: Run, codes: list[int], worker_log: str) -> None:
        self.run, self.codes, self.worker_log = run, codes, worker_log


@pytest.fixture(scope="module")
def finished(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    folder = tmp_path_factory.mktemp("two_nodes")
    ray_folder = tempfile.mkdtemp(prefix="ray-")  # a short path: sockets lie in it
    head = f"127.0.0.1:{free_port()}"

    def node(rank: int, *more: str) -> list[str]:
        ray = " ".join((RAY, *more))
        words = ["--rank", str(rank), "--nodes", str(NODES), "--head", head, f"--ray={ray}", "--limit-s", "240", "--"]
        return [sys.executable, "-m", "recipe.ditto.ray_node", *words]

    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    with FakeOpenAI(lambda _request: Json(CRITIQUE)) as judge:
        run = Run(folder, world / "train.parquet", world / "heldback.parquet", world / "warm", judge.url)
        run.overrides = [
            "algorithm.objective=critique_grpo",
            f"trainer.nnodes={NODES}",
            "trainer.n_gpus_per_node=1",
            "actor_rollout_ref.model.lora_rank=0",
            f"trainer.total_training_steps={STEPS}",
            "trainer.save_freq=100",
            "trainer.test_freq=-1",
            "trainer.val_before_train=false",
        ]
        run.environment, run.before = token, node(0, f"--temp-dir={ray_folder}", "--include-dashboard=false")
        run.cwd, elsewhere = folder / "node0", folder / "node1"
        run.cwd.mkdir()
        elsewhere.mkdir()
        # The second node has no key and no setting of the run, only the variable by which its processes are found.
        known = {name: value for name, value in os.environ.items() if not name.startswith(OF_A_RUN)}
        run.start()
        try:
            with (elsewhere / "log.txt").open("wb") as log:
                second = subprocess.Popen(
                    [*node(1, "--node-ip-address=127.0.0.1"), "unused"],
                    cwd=elsewhere,
                    env={**known, **token, "OUTPUT_DIR": str(folder)},
                    stdout=log,
                    stderr=log,
                )
            codes = [run.wait(1200), second.wait(120)]
            yield Finished(run, codes, (elsewhere / "log.txt").read_text(errors="replace"))
        finally:
            run.kill()
            shutil.rmtree(ray_folder)


def test_both_nodes_end_with_the_training(finished: Finished) -> None:
    assert finished.codes == [0, 0], f"{finished.run.tail()}\n{finished.worker_log[-3000:]}"
    assert f"Ray is running on {NODES} nodes at " in finished.run.log.read_text(errors="replace")
    assert [process.name() for process in finished.run.descendants()] == []


def test_every_step_is_trained_by_a_process_on_each_node(finished: Finished) -> None:
    run = finished.run
    assert sorted(run.metrics()) == list(range(1, STEPS + 1)) and run.tracked_step() == STEPS
    assert json.loads((run.dir / "run.json").read_text())["hosts"] == NODES
    shards = {path.name for path in (run.dir / f"global_step_{STEPS}").rglob(f"model_world_size_{NODES}_rank_*.pt")}
    assert shards == {f"model_world_size_{NODES}_rank_{rank}.pt" for rank in range(NODES)}


def test_the_nodes_write_into_the_run_folder_and_nowhere_else(finished: Finished) -> None:
    run = finished.run
    assert [path.name for path in run.cwd.iterdir()] == []
    assert [path.name for path in (run.folder / "node1").iterdir()] == ["log.txt"]
    for text in (finished.worker_log, run.log.read_text(errors="replace")):
        assert SENTINEL_KEY not in text
