"""Kill a small training run again and again, resume it with the same command, and compare it with an unkilled run.

    python -m benchmarks.kills [--kills 20] [--aimed 5] [--seed 1] [--steps 8] [--folder DIR] [--keep]

Everything is real: the launcher, Ray, FSDP, vLLM, and a scripted judge behind HTTP. The model has a million parameters
and trains on the CPU. A run is killed and resumed until it finishes; then `kills_audit.py` compares it with the
unkilled run, and the next run begins, until the number of kills is reached.

Random kills come at a random moment of the start-up or of the next steps. Aimed kills hold the trainer at a chosen
file-system call (`kill_point/sitecustomize.py`) and kill it there. SIGKILL goes to all processes of the run, to the
launcher only, or to the trainer's process only; in the latter cases the others must end by themselves.

Exit code 1 if a check fails. A kill takes about a minute on two cores.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.kills_audit import differences
from soul.cli.arguments import non_negative_int, output_folder, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.testing import FakeOpenAI, Json
from tests.e2e.run import ROOT, Run, processes_of

KEPT = 2  # checkpoints
CRITIQUE = {"critique": "You answered where the thing is now. Ask what the character saw last.", "ready": True}
START_S, END_S = 1800, 120  # time limits for a start on a busy machine, and for processes that must end by themselves
VICTIMS = ("all processes", "the launcher", "the trainer")
# Places of aimed kills: the audit event of the call before which the process is held, a pattern of its arguments, and
# what must exist in the run folder at that time.
BEGUN = ".partial/global_step_*"
POINTS = {
    "while the partial checkpoint is completed": (r"os.rename .*/\.partial/global_step_\d+/model\.safetensors", BEGUN),
    "between the checkpoint's files and the metrics": (r"os.rename .* .*/run/metrics\.jsonl", BEGUN),
    "between the metrics and the rename": (r"os.rename .*/\.partial/global_step_\d+ .*/run/global_step_\d+", BEGUN),
    "between the rename and the tracker": (r"os.rename .* .*/latest_checkpointed_iteration\.txt", "global_step_*"),
    "after the tracker": (r"open .*/run None", "global_step_*"),  # where publishing flushes the folder
    "while an old checkpoint is removed": (r"shutil.rmtree .*/removed_global_step_\d+( .*)?", "global_step_*"),
    "at the end of the validation": (r"os.rename .* .*/traces/val_00000[1-9]\.jsonl", "global_step_*"),
}
console = Console(width=140)


@dataclass
class Trial:
    """One run that is killed until it has finished.

    Attributes:
        kills: the place and victim of each kill.
        problems: the failed checks, during the run and afterwards.
    """

    run: Run
    kills: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def small_run(folder: Path, world: Path, judge_url: str, steps: int) -> Run:
    """A run of one device that saves every step, validates every third, and reads its rows more than once."""
    run = Run(folder, world / "train.parquet", world / "heldback.parquet", world / "warm", judge_url)
    run.overrides = [
        "trainer.n_gpus_per_node=1",
        "actor_rollout_ref.rollout.agent.num_workers=1",
        f"trainer.total_training_steps={steps}",
        f"trainer.total_epochs={steps}",
        "trainer.save_freq=1",
        "trainer.test_freq=3",
        "trainer.val_before_train=true",
        f"trainer.max_actor_ckpt_to_keep={KEPT}",
        "data.val_max_samples=6",
        "data.train_max_samples=20",
    ]
    return run


def started(run: Run, point: str | None = None) -> None:
    """Start the run; with a point of POINTS, its trainer is held there."""
    flag = run.folder / "held"
    flag.unlink(missing_ok=True)
    own = {"RAY_ADDRESS": "local", "RAY_worker_niceness": "0"}  # the default of 15 starves workers on a busy machine
    if point is not None:
        path = os.pathsep.join(filter(None, [str(ROOT / "benchmarks" / "kill_point"), os.environ.get("PYTHONPATH")]))
        call, present = POINTS[point]
        own |= {"KILL_POINT": call, "KILL_POINT_FLAG": str(flag), "PYTHONPATH": path}
        own["KILL_POINT_IF"] = str(run.dir / present)
    run.environment = own
    run.start()


def done_steps(run: Run) -> int:
    """Number of training steps with traces."""
    return len(list((run.dir / "traces").glob("step_*.jsonl")))


def wait_for(run: Run, moment: float, step_s: float) -> bool:
    """Wait for a moment, in steps (below 0: a share of the start-up). Returns False if the run ended first."""
    assert run.process is not None
    before, start = done_steps(run), time.monotonic()
    if moment < 0:
        _sleep(run, -moment * 60)
    else:
        while run.process.poll() is None and done_steps(run) - before < int(moment):
            assert time.monotonic() - start < START_S, run.tail()
            time.sleep(0.05)
        _sleep(run, (moment % 1) * step_s)
    return run.process.poll() is None


def _sleep(run: Run, seconds: float) -> None:
    assert run.process is not None
    deadline = time.monotonic() + seconds
    while run.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)


def wait_for_point(run: Run) -> bool:
    """Wait until the trainer is held at its point. Returns False if the run ended first."""
    assert run.process is not None
    deadline = time.monotonic() + START_S
    while run.process.poll() is None and not (run.folder / "held").exists():
        assert time.monotonic() < deadline, run.tail()
        time.sleep(0.05)
    return run.process.poll() is None


def kill(run: Run, victim: str) -> list[str]:
    """Send SIGKILL. Returns the processes that did not end by themselves after their launcher or trainer died."""
    assert run.process is not None
    if victim == "all processes":
        run.kill()
    elif victim == "the launcher":
        run.process.send_signal(signal.SIGKILL)
    else:
        _trainer(run).send_signal(signal.SIGKILL)
    left = _left(run)
    for process in left:
        process.kill()
    run.process.wait(60)
    return [f"{process.pid} did not end" for process in left]


def _trainer(run: Run) -> psutil.Process:
    """Ray's process of the trainer; the launcher if there is none yet."""
    assert run.process is not None
    for process in run.descendants():
        try:
            if " ".join(process.cmdline()).startswith("ray::TaskRunnerV1.run"):
                return process
        except psutil.NoSuchProcess:
            continue
    return psutil.Process(run.process.pid)


def _left(run: Run) -> list[psutil.Process]:
    deadline = time.monotonic() + END_S
    while (left := processes_of(run.folder)) and time.monotonic() < deadline:
        time.sleep(0.5)
    return left


def finish(trial: Trial, reference: Path, steps: int) -> None:
    """Check a run that has ended."""
    run = trial.run
    assert run.process is not None
    if run.process.returncode != 0:
        trial.problems.append(f"ended with code {run.process.returncode}: {run.tail()}")
        return
    trial.problems += [f"{process.pid} is left" for process in _left(run)]
    trial.problems += differences(run.dir, reference, steps, KEPT)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(prog="python -m benchmarks.kills", description=__doc__)
    parser.add_argument("--kills", type=positive_int, default=20)
    parser.add_argument("--aimed", type=non_negative_int, default=5, help="kills that aim at the checkpoint window")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=positive_int, default=8)
    parser.add_argument("--folder", type=output_folder, help="folder for the runs (default: a temporary one)")
    parser.add_argument("--keep", action="store_true", help="keep the folder")
    args = parser.parse_args(arguments)
    folder = (args.folder or Path(tempfile.mkdtemp(prefix="kills-"))).absolute()
    with FakeOpenAI(Json(CRITIQUE)) as judge:
        trials = trials_in(folder, judge.url, args)
    show(trials)
    failed = any(trial.problems for trial in trials)
    if not (args.keep or failed):
        shutil.rmtree(folder)
    return 1 if failed else 0


def trials_in(folder: Path, judge_url: str, args: argparse.Namespace) -> list[Trial]:
    """Run the unkilled run, then killed ones until the number of kills is reached."""
    rng, world = random.Random(args.seed), folder / "world"
    if not (world / "warm").exists():
        command = [sys.executable, "-m", "recipe.demo.warm_start", "--out", str(world), "--steps", "60"]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    reference = small_run(folder / "unkilled", world, judge_url, args.steps)
    start = time.monotonic()
    if not (reference.dir / f"global_step_{args.steps}").exists():
        started(reference)
        assert reference.wait(START_S) == 0, reference.tail()
    lines = reference.metrics()
    step_s = sum(lines[step]["timing_s/step"] for step in range(2, args.steps + 1)) / (args.steps - 1)
    console.print(f"unkilled run: {time.monotonic() - start:.0f} s, {step_s:.1f} s per step; folder {folder}")
    points = rng.sample(sorted(POINTS), k=min(args.aimed, len(POINTS)))
    points += rng.choices(sorted(POINTS), k=args.aimed - len(points))
    plan: list[str | None] = [*points, *[None] * (args.kills - args.aimed)]
    rng.shuffle(plan)
    trials: list[Trial] = []
    while plan:
        trial = Trial(small_run(folder / f"killed_{len(trials) + 1}", world, judge_url, args.steps))
        trials.append(trial)
        try:
            one_run(trial, plan, rng, step_s)
        except BaseException:
            trial.run.kill()  # no process outlives this command
            raise
        finish(trial, reference.dir, args.steps)
        console.print(f"run {len(trials)}: {len(trial.kills)} kills, {trial.problems or 'equal to the unkilled run'}")
    return trials


def one_run(trial: Trial, plan: list[str | None], rng: random.Random, step_s: float) -> None:
    """Kill and resume until the run has finished; each kill is removed from the plan."""
    run = trial.run
    while plan:
        point, victim = plan.pop(), rng.choice(VICTIMS)
        moment = -rng.random() if rng.random() < 0.15 else rng.uniform(1, 4)
        started(run, point)
        alive = wait_for_point(run) if point else wait_for(run, moment, step_s)
        if not alive:
            plan.insert(0, point)  # the run finished before the kill
            return
        begun = time.monotonic()
        trial.problems += kill(run, victim)
        where = point or ("in the start-up" if moment < 0 else "at a random moment")
        trial.kills.append(f"{where}: {victim}")
        state = f"steps with traces {done_steps(run)}, all ended after {time.monotonic() - begun:.0f} s"
        console.print(f"  {time.strftime('%H:%M:%S')} killed {victim} {where}; {state}")
    started(run)
    run.wait(START_S)


def show(trials: Sequence[Trial]) -> None:
    """Print the counts by place and victim, and every problem."""
    counts = Counter(each for trial in trials for each in trial.kills)
    table = Table("killed", "kills", title=f"{sum(counts.values())} kills in {len(trials)} runs")
    for name, count in sorted(counts.items()):
        table.add_row(name, str(count))
    console.print(table)
    for number, trial in enumerate(trials, 1):
        for problem in trial.problems:
            console.print(f"[red]run {number}[/red]: {problem}", highlight=False)
    good = sum(not trial.problems for trial in trials)
    console.print(f"{good} of {len(trials)} runs equal the unkilled run")


if __name__ == "__main__":
    sys.exit(main())
