"""Supervised training that is stopped: by SIGTERM, by Ctrl-C, by a full disk, by a second start; then it goes on."""

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ditto.run import manifest
from ditto.run.checkpoint import saved_steps
from soul.pages.facts import facts
from tests.e2e import sft_run
from tests.small_disk import small_disk

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model and a corpus."""
    folder = tmp_path_factory.mktemp("tiny")
    sft_run.build(folder)
    return folder


def steps_done(run: Path, steps: int, process: subprocess.Popen[bytes]) -> None:
    reached = sft_run.wait_until(lambda: len(sft_run.lines(run)) >= steps, process)
    assert reached, run.with_suffix(".log").read_text()[-3000:]


def end(process: subprocess.Popen[bytes], number: signal.Signals) -> tuple[int, list[psutil.Process]]:
    """Send a signal to the launcher. Returns its exit code, and the processes that are left."""
    processes = sft_run.family(process.pid)
    process.send_signal(number)
    code = process.wait(200)
    return code, sft_run.alive(processes)


def test_a_stopped_run_saves_its_step_and_goes_on(tiny: Path) -> None:
    run, log = tiny / "stopped", tiny / "stopped.log"
    first = sft_run.start(tiny, "stopped", 500)
    steps_done(run, 2, first)
    second = sft_run.start(tiny, "stopped", 500)
    assert second.wait(300) == 2 and f"process {first.pid} on host" in log.read_text()
    code, left = end(first, signal.SIGTERM)
    last = len(sft_run.lines(run))
    text = log.read_text()
    assert (code, left) == (143, []) and "Traceback" not in text, text[-3000:]
    assert text.strip().endswith(f"/global_step_{last}; the same command continues from it.")
    assert saved_steps(run)[-1] == last and facts(run).state == "stopped"
    manifest.check(run / f"global_step_{last}")

    # As if it had been stopped during the validation of a saved step: the numbers are made up.
    *earlier, line = sft_run.lines(run)
    lacking = {key: value for key, value in line.items() if not key.startswith("val/")}
    (run / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in [*earlier, lacking]))
    again = sft_run.start(tiny, "stopped", 500, "trainer.test_freq=1")
    steps_done(run, last + 1, again)
    code, left = end(again, signal.SIGINT)
    steps, text = sft_run.lines(run), log.read_text()
    assert (code, left) == (130, []) and "Traceback" not in text
    assert text.strip().endswith(f"/global_step_{len(steps)}; the same command continues from it.")
    assert [line["step"] for line in steps] == list(range(1, len(steps) + 1)) and "val/loss" in steps[last - 1]
    assert saved_steps(run)[-1] == len(steps)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system on which one checkpoint of the tiny model fits, and no second one."""
    with small_disk(tmp_path / "disk", megabytes=20) as disk:
        yield disk


def test_a_full_disk_leaves_the_earlier_checkpoints(tiny: Path, disk: Path) -> None:
    name = "full"
    (tiny / name).symlink_to(disk)
    process = sft_run.start(tiny, name, 500, "trainer.save_freq=1", "trainer.max_ckpt_to_keep=null")
    assert process.wait(300) == 1
    text = (tiny / f"{name}.log").read_text()
    assert any(f"OutOfSpace: no space left in {folder}." in text for folder in (disk.resolve(), tiny / name))
    assert "Traceback" not in text and not (disk / ".partial").exists() and facts(disk).state == "failed"
    saved = saved_steps(disk)
    assert saved
    for step in saved:
        manifest.check(disk / f"global_step_{step}")
    assert len(sft_run.lines(disk)) - saved[-1] == 1  # the step that could not be saved has its metrics too


def test_a_full_disk_while_tokenising(tiny: Path, disk: Path) -> None:
    rows = pq.read_table(tiny / "train_shard_0.parquet").to_pylist() * 64
    pq.write_table(pa.Table.from_pylist(rows), tiny / "large.parquet", row_group_size=1000)
    (disk / "ballast").write_bytes(b"0" * (shutil.disk_usage(disk).free - 65536))
    process = sft_run.start(
        tiny, "tokenised", 500, f"data.train_files={tiny}/large.parquet", f"data.cache_dir={disk}/cache"
    )
    assert process.wait(300) == 1
    text = (tiny / "tokenised.log").read_text()
    assert f"OutOfSpace: no space left in {disk}/cache, needs about 0.1 GB" in text and "Traceback" not in text
