"""Take something away from a small training run, and see how it ends: the table of docs/measurements/faults.md.

    python -m benchmarks.faults judge FOLDER    the judge's server is gone for 150 s, then back at its address
    python -m benchmarks.faults disk FOLDER     the disk is full after two of five steps; then there is room again
    python -m benchmarks.faults shm FOLDER      /dev/shm has 32 MB

`disk` and `shm` mount a file system, which needs root. Exit code 1 if the run does not end as the page says.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.kills import CRITIQUE, build_world, small_run
from benchmarks.side_by_side import console
from soul.cli.arguments import output_folder
from soul.cli.error_border import Parser, reports_errors
from soul.testing import FakeOpenAI, Json
from tests.e2e.run import Run

STEPS, GONE_S, LIMIT_S = 5, 150, 1200
SCRIPT = Json(CRITIQUE)


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def new_run(folder: Path, url: str) -> Run:
    run = small_run(folder, url, argparse.Namespace(steps=STEPS, model=None))
    run.overrides += ["trainer.val_before_train=false", "trainer.test_freq=-1"]
    run.environment = {"RAY_ADDRESS": "local", "RAY_worker_niceness": "0"}
    return run


def steps_of(run: Run) -> list[int]:
    return sorted(run.metrics()) if (run.dir / "metrics.jsonl").exists() else []


def without_judge(folder: Path) -> bool:
    with FakeOpenAI(SCRIPT) as judge:
        run, port = new_run(folder / "run", judge.url), int(judge.url.split(":")[2].split("/")[0])
        run.start()
        run.until(lambda: 1 in steps_of(run), LIMIT_S, "the first step")
    time.sleep(GONE_S)
    with FakeOpenAI(SCRIPT, port=port):
        code = run.wait(LIMIT_S)
    failed = sum(numbers["judge/failures"] for numbers in run.metrics().values())
    console.print(f"exit code {code}, steps {steps_of(run)}, {failed:.0f} failed verdicts")
    return code == 0 and steps_of(run) == list(range(1, STEPS + 1)) and not failed


def without_disk(folder: Path) -> bool:
    small = folder / "run"
    with mounted(small, "200M"), FakeOpenAI(SCRIPT) as judge:
        run = new_run(small, judge.url)
        run.start()
        run.until(lambda: (run.dir / "global_step_2").exists(), LIMIT_S, "the second checkpoint")
        (small / "fill").write_bytes(bytes(os.statvfs(small).f_bavail * 4096 - 300_000))
        code, said = run.wait(LIMIT_S), "OutOfSpace: no space left" in run.log.read_text(errors="replace")
        console.print(f"exit code {code}, steps {steps_of(run)}, {'OutOfSpace' if said else run.tail()}")
        (small / "fill").unlink()
        run.start()
        again = run.wait(LIMIT_S)
        console.print(f"with room again: exit code {again}, steps {steps_of(run)}")
        return code != 0 and said and again == 0 and steps_of(run) == list(range(1, STEPS + 1))


def without_shared_memory(folder: Path) -> bool:
    with FakeOpenAI(SCRIPT) as judge:
        run = new_run(folder / "run", judge.url)
        mount = 'mount -t tmpfs -o size=32M tmpfs /dev/shm; exec "$@"'
        run.before = ["unshare", "-m", "bash", "-c", mount, "bash"]
        run.start()
        code = run.wait(LIMIT_S)
    console.print(f"exit code {code}, steps {steps_of(run)}")
    return code == 0 and steps_of(run) == list(range(1, STEPS + 1))


FAULTS = {"judge": without_judge, "disk": without_disk, "shm": without_shared_memory}


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if the run did not end as it should."""
    parser = Parser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("fault", choices=FAULTS)
    parser.add_argument("folder", type=output_folder, help="empty or new")
    args = parser.parse_args(arguments)
    folder = args.folder.absolute()
    build_world(folder / "world", None)
    return 0 if FAULTS[args.fault](folder) else 1


if __name__ == "__main__":
    sys.exit(main())
