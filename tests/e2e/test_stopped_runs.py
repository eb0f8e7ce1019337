"""One run that is stopped in every way a user or a scheduler has, and continued by the same command each time.

Each start has another objective, so that this costs no start of its own to see: a run may change it.

On real components: Ray, an FSDP worker, a vLLM engine. Signals go to the whole process group, as a terminal's and
SLURM's do. The run folder is a small file system of its own where this may be mounted, so that it can be filled.
"""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from soul.testing import FakeOpenAI, Json
from tests.e2e.run import Run

pytestmark = pytest.mark.e2e

CRITIQUE = {"critique": "You answered where the thing is now. Ask what the character saw last.", "ready": True}
START_S, STOP_S = 420, 120


@pytest.fixture(scope="module")
def run(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("stopped")
    disk = folder / "run"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "soul-test", str(disk)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    with FakeOpenAI(lambda _request: Json(CRITIQUE)) as judge:
        run = Run(folder, world / "train.parquet", world / "heldback.parquet", world / "warm", judge.url)
        run.environment = {"RAY_ADDRESS": "local"}
        run.overrides = [
            "actor_rollout_ref.model.lora_rank=0",
            "actor_rollout_ref.actor.optim.lr=1e-5",  # on a busy machine it trains for long before a signal arrives
            "trainer.n_gpus_per_node=1",
            "trainer.total_training_steps=500",
            "trainer.total_epochs=500",
            "trainer.save_freq=500",
            "trainer.test_freq=0",
            "trainer.val_before_train=false",
            "data.val_max_samples=4",
        ]
        try:
            yield run
        finally:
            if run.process is not None and run.descendants():
                run.kill()
            if mounted:
                subprocess.run(["umount", "--lazy", str(disk)], check=True)


def steps(run: Run) -> set[int]:
    path = run.dir / "metrics.jsonl"
    return {int(json.loads(line)["step"]) for line in path.read_text().splitlines()} if path.exists() else set()


def start(run: Run, *more: str) -> None:
    """Start it, with a log of its own, and wait for a new step."""
    run.log.unlink(missing_ok=True)
    before = steps(run)
    run.start(*more)
    run.until(lambda: bool(steps(run) - before), START_S, "a step")


def parents_of_actors(run: Run) -> set[int]:
    names = tuple(f"ray::{name}" for name in ("TaskRunner", "WorkerDict", "AgentLoopWorker", "vLLM", "TransferQueue"))
    actors = [process for process in run.descendants() if " ".join(process.cmdline()).startswith(names)]
    assert len(actors) >= len(names)
    return {process.ppid() for process in actors}


def stop(run: Run, number: signal.Signals) -> tuple[int, str]:
    """Send the signal to the process group. Returns exit code and the last line of the log that is not empty."""
    assert run.process is not None
    os.killpg(run.process.pid, number)
    code = run.wait(STOP_S)
    text = run.log.read_text(errors="replace")
    assert "Traceback" not in text and "SIGTERM received at" not in text, run.tail()
    assert [process.name() for process in run.descendants()] == []
    (line,) = re.findall(r"^Stopped by .*$", text, re.MULTILINE)
    return code, line


def test_a_second_start_ends_at_once_and_ctrl_c_saves_the_step(run: Run) -> None:
    start(run, "algorithm.objective=ditto_no_feedback_loss")
    assert len(parents_of_actors(run)) == 1, "workers import for themselves: see raylet.err for the fork server's error"
    driver = next(process for process in run.descendants() if "train_ppo.py" in " ".join(process.cmdline()))
    second = Run(run.folder, run.train, run.val, run.model, run.judge_url, run.overrides, run.environment)
    second.start()
    assert second.wait(120) == 2, run.tail()
    text = run.log.read_text(errors="replace")
    assert f"FolderInUse: {run.dir} is in use by process {driver.pid} on host {os.uname().nodename} (.lease)" in text
    assert driver.is_running() and run.process is not None and run.process.poll() is None
    code, line = stop(run, signal.SIGINT)
    last = max(steps(run))
    assert code == 130
    assert line == (
        f"Stopped by Ctrl-C after the current step. The last checkpoint is {run.dir}/global_step_{last}; the same "
        "command continues from it."
    )
    assert run.tracked_step() == last and sorted(steps(run)) == list(range(1, last + 1))


def test_a_full_disk_leaves_the_earlier_checkpoint_whole(run: Run) -> None:
    if not os.path.ismount(run.dir):
        pytest.skip("needs the right to mount a small file system")
    before = run.tracked_step()
    checkpoint = {path: path.stat().st_size for path in (run.dir / f"global_step_{before}").rglob("*")}
    filler = run.dir / "filler"
    free = os.statvfs(run.dir).f_bavail * os.statvfs(run.dir).f_frsize
    filler.write_bytes(b"0" * (free - 2_000_000))
    run.log.unlink()
    run.start("trainer.save_freq=1", "algorithm.objective=grpo", "trainer.resume_changed=true")
    assert run.wait(START_S) == 1, run.tail()
    text = run.log.read_text(errors="replace")
    assert f"OutOfSpace: no space left in {run.dir}, needs about 0.1 GB." in text, run.tail()
    assert "Traceback" not in text
    assert {path: path.stat().st_size for path in (run.dir / f"global_step_{before}").rglob("*")} == checkpoint
    assert run.tracked_step() == before and not (run.dir / ".partial").exists()
    assert [process.name() for process in run.descendants()] == []
    filler.unlink()  # the next test continues the run


def test_sigterm_saves_a_continued_run(run: Run) -> None:
    """Continued after a full disk, where one could be mounted."""
    before = run.tracked_step()
    start(run, "algorithm.objective=sdpo_token_grpo", "trainer.resume_changed=true")
    assert f"Resuming from {run.dir}/global_step_{before}" in run.log.read_text(errors="replace")
    code, line = stop(run, signal.SIGTERM)
    last = max(steps(run))
    assert code == 143 and last > before
    assert line.startswith(
        f"Stopped by SIGTERM after the current step. The last checkpoint is {run.dir}/global_step_{last};"
    )
    assert run.tracked_step() == last and sorted(steps(run)) == list(range(1, last + 1))


def test_a_signal_during_the_start_ends_it_without_waiting(run: Run) -> None:
    before = run.tracked_step()
    run.log.unlink()
    run.start("trainer.resume_changed=true")  # the recipe's objective again
    run.until(lambda: "DittoTaskRunner" in run.log.read_text(errors="replace"), START_S, "the trainer's start")
    began = time.monotonic()
    code, line = stop(run, signal.SIGINT)
    assert code == 130 and time.monotonic() - began < 45
    assert line.startswith("Stopped by Ctrl-C before the first step. The last checkpoint is")
    assert run.tracked_step() == before
