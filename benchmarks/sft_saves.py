"""Measure how long training pauses for a checkpoint: written while it waits, and beside it (`checkpoint.async_save`).

    python -m benchmarks.sft_saves                   # 100M parameters on two processes, minutes
    python -m benchmarks.sft_saves --size 1M --processes 1

Two runs of the same steps, one after the other, each save after every `--every` steps. `pause`: seconds in which rank
0 does not train because of one save, the wait for an earlier one included (not that for the last one at the end of the
run); median and largest. `first`: the pause of the run's first save, which allocates the memory of the copy. `until
saved`: from the beginning of the save until the checkpoint is published. `steps`: seconds of a step, median of those
during which a checkpoint was written, and of all others. The models of both runs must be equal, byte for byte
(tests/sft/run/test_background_save.py compares all files of a checkpoint).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.sft import ROOT, SIZES, make, settings_words
from soul.cli.arguments import positive_int
from soul.cli.error_border import Parser, reports_errors

console = Console()


def rank(folder: Path, words: Sequence[str]) -> None:
    """A process of a run; rank 0 records its steps and saves in `<folder>/times.json`."""
    import torch.distributed as dist

    from sft.launch import WORKER, main
    from sft.run.checkpoints import RESUME_VARIABLE, Checkpoints
    from sft.run.stop import LAUNCHER_VARIABLE
    from sft.trainer import SupervisedTrainer

    os.environ |= {RESUME_VARIABLE: "", LAUNCHER_VARIABLE: str(os.getppid())}  # start at step 1, end with this program
    saves: dict[int, dict[str, float]] = {}
    steps: list[tuple[float, float]] = []
    save, train = Checkpoints.save, SupervisedTrainer._train_step

    def timed_save(self: Checkpoints, step: int, published: Callable[[int], None]) -> None:
        start = time.perf_counter()

        def told(number: int) -> None:
            published(number)
            saves[number]["published"] = time.perf_counter()

        saves[step] = {"start": start}
        save(self, step, told)
        dist.barrier()  # the others train on only when all do
        saves[step]["pause"] = time.perf_counter() - start

    def timed_step(self: SupervisedTrainer, batch: dict[str, Any]) -> dict[str, float]:
        start = time.perf_counter()
        metrics = train(self, batch)
        steps.append((start, time.perf_counter()))
        return metrics

    Checkpoints.save = timed_save  # type: ignore[method-assign]
    SupervisedTrainer._train_step = timed_step  # type: ignore[method-assign]
    assert main([WORKER, *words]) == 0
    if os.environ["RANK"] == "0":
        (folder / "times.json").write_text(json.dumps({"saves": list(saves.values()), "steps": steps}))


def measure(folder: Path, name: str, words: Sequence[str], processes: int) -> dict[str, Any]:
    """Run the training with these overrides. Returns its times."""
    run = folder / name
    run.mkdir()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "VERL_PLATFORM": "cpu", "PYTHONPATH": str(ROOT)}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [*launch, "-m", "benchmarks.sft_saves", "--rank-of", str(run), *words, f"run.dir={run}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr[-3000:]}")
    times: dict[str, Any] = json.loads((run / "times.json").read_text())
    return times


def row(name: str, times: dict[str, Any]) -> list[str]:
    """The table's row of a run."""
    pauses = [save["pause"] for save in times["saves"]]
    spans = [(save["start"], save["published"]) for save in times["saves"]]
    during: list[float] = []
    alone: list[float] = []
    for begin, end in times["steps"][1:]:
        written = any(begin < published and end > start for start, published in spans)
        (during if written else alone).append(end - begin)
    later = pauses[1:] or pauses
    return [
        name,
        f"{pauses[0]:.2f}",
        f"{statistics.median(later):.2f} ({max(later):.2f})",
        f"{statistics.median(published - start for start, published in spans):.2f}",
        f"{statistics.median(alone):.2f}" if alone else "",
        f"{statistics.median(during):.2f}" if during else "",
    ]


def different(one: Path, other: Path) -> list[str]:
    """The models of two runs' checkpoints that are not the same."""
    files = sorted(path.relative_to(one) for path in one.glob("global_step_*/model.safetensors"))
    assert files, one
    return [str(file) for file in files if (one / file).read_bytes() != (other / file).read_bytes()]


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = Parser(prog="python -m benchmarks.sft_saves", description=__doc__)
    parser.add_argument("--size", choices=[*SIZES], default="100M")
    parser.add_argument("--processes", type=positive_int, default=2)
    parser.add_argument("--every", type=positive_int, default=2, help="steps between two checkpoints")
    parser.add_argument("--rank-of", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", help="further overrides")
    args = parser.parse_intermixed_args(arguments)
    if args.rank_of:
        rank(args.rank_of, args.words)
        return
    table = Table(
        "", "first, s", "pause, s (largest)", "until saved, s", "step, s", "step while writing, s", title_justify="left"
    )
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        make(folder, args.size)
        words = [*settings_words(folder, args.size), f"trainer.n_gpus_per_node={args.processes}", "trainer.logger=[]"]
        words += [f"trainer.save_freq={args.every}", *args.words]
        for name, value in (("waits", "false"), ("beside", "true")):
            times = measure(folder, name, [*words, f"checkpoint.async_save={value}"], args.processes)
            table.add_row(*row(name, times))
        assert not (files := different(folder / "waits", folder / "beside")), files
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
