"""Measure the CPU time that a training run takes until its first step is finished, process by process.

    python -m benchmarks.startup [--source DIR ...] [--repeats 1] [key=value ...]

The run is the demo's (`recipe/demo/demo.yaml`: Ray, FSDP2 and vLLM on a CPU, a stand-in judge), cut to one small step.
Its start-up is bound by CPU time, most of it for imports of torch, verl and vLLM; wall time also depends on who else
uses the machine. `--source` names other checkouts of this repository, which are measured in turn with this one, so that
a change can be compared side by side. Hydra overrides apply to all runs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import psutil

from benchmarks.side_by_side import console, new_table, print_load
from recipe.demo import run, warm_start
from soul.cli.arguments import positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.errors import RunFailed

POLL_S = 0.5
LIMIT_S = 600.0
WALL = "wall seconds"
ONE_STEP = ("trainer.total_training_steps=1", "trainer.test_freq=-1", "trainer.save_freq=-1")
SMALL = ("data.train_batch_size=4", "actor_rollout_ref.actor.ppo_mini_batch_size=2", "actor_rollout_ref.rollout.n=2")


def process_name(process: psutil.Process) -> str:
    """What the process is. Ray and vLLM write it into the command line; `ray::IDLE` is a worker without an actor."""
    program, *words = process.cmdline() or [process.name()]
    if program.startswith(("ray::", "VLLM::")):
        return re.split(r"[.(]", program)[0]
    if any("fork_server" in word for word in words):  # the server itself, and requests to it
        return "fork_server.py"
    scripts = [word for word in words if word.endswith(".py")]
    return Path(scripts[0] if scripts else program).name


def cpu_seconds(root: psutil.Process, seen: dict[tuple[int, float], tuple[str, float]]) -> None:
    """Update name and CPU seconds of the process and all its descendants; those that have ended keep their last."""
    for process in [root, *root.children(recursive=True)]:
        try:
            times = process.cpu_times()
            seen[process.pid, process.create_time()] = process_name(process), times.user + times.system
        except psutil.NoSuchProcess:
            continue


def first_step(source: Path, folder: Path, endpoint: dict[str, str], overrides: Sequence[str]) -> dict[str, float]:
    """Train one step.

    Args:
        source: the checkout whose code runs.
        folder: holds warm/, train.parquet and heldback.parquet; the run's folder is made in it.

    Returns:
        Name of the process -> CPU seconds, and "wall seconds", both until the step's metrics are written.

    Raises:
        RunFailed: the run ended or took too long, with the end of its log.
    """
    out = Path(tempfile.mkdtemp(prefix="run-", dir=folder))
    command = [
        *(sys.executable, str(source / "train_ppo.py"), "--config-dir", str(source / "recipe" / "demo")),
        *("--config-name", "demo", "platform=cpu", f"run.dir={out}", f"actor_rollout_ref.model.path={folder / 'warm'}"),
        *(f"data.train_files=[{folder / 'train.parquet'}]", f"data.val_files=[{folder / 'heldback.parquet'}]"),
        *(*SMALL, *ONE_STEP, *overrides),
    ]
    paths = os.pathsep.join(str(source / part) for part in ("agents", "verl", "."))
    environment = {**os.environ, **endpoint, **run.ON_A_CPU, "PYTHONPATH": paths, "RAY_ADDRESS": "local"}
    log, start = out / "log.txt", time.perf_counter()
    seen: dict[tuple[int, float], tuple[str, float]] = {}
    with log.open("w") as file:
        training = subprocess.Popen(command, cwd=source, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        while not (out / "metrics.jsonl").exists():
            if training.poll() is not None or time.perf_counter() - start > LIMIT_S:
                raise RunFailed(f"the run of {source} took no step:\n{log.read_text(errors='replace')[-3000:]}")
            cpu_seconds(psutil.Process(training.pid), seen)
            time.sleep(POLL_S)
        seconds = {WALL: time.perf_counter() - start}
        cpu_seconds(psutil.Process(training.pid), seen)
        training.wait(LIMIT_S)
    finally:
        if training.poll() is None:
            for process in [*psutil.Process(training.pid).children(recursive=True), training]:
                process.kill()
    by_name: defaultdict[str, float] = defaultdict(float)
    for name, cpu in seen.values():
        by_name[name] += cpu
    return seconds | by_name


def report(results: dict[str, list[dict[str, float]]]) -> None:
    """Print a table: processes by rows, checkouts by columns, medians over the repeats."""
    names = dict.fromkeys(name for runs in results.values() for run in runs for name in run if name != WALL)
    medians = {name: [median(run.get(name, 0.0) for run in runs) for runs in results.values()] for name in names}
    table = new_table("To the end of the first step", "process", *(f"{source}: CPU s" for source in results))
    for name, values in sorted(medians.items(), key=lambda item: -max(item[1])):
        table.add_row(name, *(f"{value:.1f}" for value in values))
    table.add_row("all", *(f"{sum(column):.1f}" for column in zip(*medians.values(), strict=True)))
    table.add_row(WALL, *(f"{median(run[WALL] for run in runs):.0f}" for runs in results.values()))
    console.print(table)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Measure this checkout, and the others in turn with it."""
    parser = Parser(prog="python -m benchmarks.startup", description=__doc__)
    parser.add_argument("--source", type=Path, nargs="+", default=[], metavar="DIR", help="other checkouts")
    parser.add_argument("--repeats", type=positive_int, default=1, help="runs of each checkout (default: 1)")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="Hydra overrides of the training")
    args = parser.parse_intermixed_args(arguments)
    sources = [*(folder.resolve() for folder in args.source), run.ROOT]
    results: dict[str, list[dict[str, float]]] = defaultdict(list)
    print_load()
    with tempfile.TemporaryDirectory(prefix="startup-") as name:
        folder = Path(name)
        warm_start.prepare(folder, warm_start.WarmStart(steps=60, stories=800))
        with run.judge() as endpoint:
            for _ in range(args.repeats):
                for source in sources:
                    results[source.name].append(first_step(source, folder, endpoint, args.overrides))
    report(results)


if __name__ == "__main__":
    main()
