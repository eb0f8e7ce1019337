"""Kill a small training run again and again, resume it with the same command, and compare it with an unkilled run.

    python -m benchmarks.kills rl FOLDER [--kills 20] [--aimed 5] [--steps 8] [--seed 1] [--model FOLDER]
    python -m benchmarks.kills sft FOLDER [--kills 10] [--aimed 4] [--steps 60] [--seed 1] [KEY=VALUE ...]

`rl` is the launcher, Ray, FSDP, vLLM and a scripted judge behind HTTP; `sft` a supervised training on two processes.
Both train a tiny model on the CPU; `rl --model` trains a pretrained one on dialogues, with LoRA. SIGKILL goes to the
launcher, to the trainer (`sft`: one of its processes) or to all processes, at a random moment or at an aimed one: `rl`
holds the trainer at a file-system call of POINTS (`kill_point/sitecustomize.py`), `sft` waits until a checkpoint is
being written. After each kill all processes must end by themselves. At the end rows, steps, metrics and checkpoints
must be those of the unkilled run. Further words are overrides of the killed run. Exit code 1 if a check fails. A kill
of `rl` takes about a minute on two cores.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.side_by_side import console
from ditto.run import manifest
from ditto.run.checkpoint import PARTIAL, newest_complete, saved_steps
from soul.cli.arguments import existing_folder, non_negative_int, output_folder, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.examples import command as examples
from soul.examples.endpoint import answer
from soul.files.line_file import either_form, read_lines
from soul.files.trace_files import trace_files
from soul.testing import FakeOpenAI, Json
from tests.e2e import sft_run
from tests.e2e.run import DIALOGUES, ROOT, Run, processes_of, warm_world

KEPT = 2  # checkpoints
CRITIQUE = {"critique": "You answered where the thing is now. Ask what the character saw last.", "ready": True}
START_S, END_S = 1800, 120  # time limits for a start on a busy machine, and for processes that must end by themselves
VICTIMS = ("all processes", "the launcher", "the trainer")
NUMBERS = ("train/loss", "train/grad_norm", "train/lr", "train/trained_tokens", "val/loss")
SAMPLED = {"ditto/length_reward", "ditto/context_logprob_gap"}  # only where samples differ
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

# ---- reinforcement learning ------------------------------------------------------------------------------------------


def build_world(world: Path, pretrained: Path | None) -> None:
    """Write the rows, and a model of a million parameters unless a pretrained one is given."""
    if pretrained is None:
        warm_world(world, steps=60)
    else:
        examples.write(["mirrorbench"], 6, world / "train.parquet")
        examples.write(["mirrorbench"], 2, world / "heldback.parquet", first=6)


def small_run(folder: Path, judge_url: str, args: argparse.Namespace) -> Run:
    """A run of one device that saves every step, validates every third, and reads its rows more than once."""
    world, steps = folder.parent / "world", args.steps
    run = Run(folder, world / "train.parquet", world / "heldback.parquet", args.model or world / "warm", judge_url)
    if args.model:
        run.task, run.recipe = "mirrorbench", (*DIALOGUES, "data.max_turn_length=32")
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


def wait_for_point(run: Run) -> bool:
    """Wait until the trainer is held at its point. Returns False if the run ended first."""
    return _wait(run, lambda: (run.folder / "held").exists(), START_S)


def _wait(run: Run, ready: Any, within_s: float) -> bool:
    assert run.process is not None
    deadline = time.monotonic() + within_s
    while run.process.poll() is None and not ready():
        assert time.monotonic() < deadline, run.tail()
        time.sleep(0.05)
    return run.process.poll() is None


def kill(run: Run, victim: str) -> list[str]:
    """Send SIGKILL. Returns the processes that did not end by themselves after their launcher or trainer died."""
    assert run.process is not None
    if victim == "all processes":
        run.kill()
    else:
        trainer = _trainer(run) if victim == "the trainer" else None
        (trainer or psutil.Process(run.process.pid)).send_signal(signal.SIGKILL)
    deadline = time.monotonic() + END_S
    while (left := processes_of(run.folder)) and time.monotonic() < deadline:
        time.sleep(0.5)
    for process in left:
        process.kill()
    run.process.wait(60)
    return [f"{process.pid} did not end" for process in left]


def _trainer(run: Run) -> psutil.Process | None:
    """Ray's process of the trainer; None if there is none yet."""
    for process in run.descendants():
        try:
            if " ".join(process.cmdline()).startswith("ray::TaskRunnerV1.run"):
                return process
        except psutil.NoSuchProcess:
            continue
    return None


def run_rl(args: argparse.Namespace) -> list[str]:
    """Run the unkilled run, then killed ones until the number of kills is reached. Returns the problems."""
    folder, rng, problems = args.folder.absolute(), random.Random(args.seed), list[str]()
    points = [rng.choice(sorted(POINTS)) for _ in range(args.aimed)]
    plan: list[str | None] = [*points, *[None] * (args.kills - args.aimed)]
    rng.shuffle(plan)
    with FakeOpenAI(answer if args.model else Json(CRITIQUE)) as judge:
        build_world(folder / "world", args.model)
        reference = small_run(folder / "unkilled", judge.url, args)
        started(reference)
        assert reference.wait(START_S) == 0, reference.tail()
        number = 0
        while plan:
            number += 1
            run = small_run(folder / f"killed_{number}", judge.url, args)
            run.overrides += args.words
            try:
                problems += [f"run {number}: {problem}" for problem in _killed_run(run, plan, rng)]
            except BaseException:
                run.kill()  # no process outlives this command
                raise
            problems += [f"run {number}: {problem}" for problem in differences(run.dir, reference.dir, args.steps)]
    return problems


def _killed_run(run: Run, plan: list[str | None], rng: random.Random) -> list[str]:
    """Kill and resume until the run has finished; each kill is removed from the plan."""
    problems: list[str] = []
    while plan:
        point, victim, after = plan.pop(), rng.choice(VICTIMS), rng.uniform(0, 90)
        started(run, point)
        begun = time.monotonic()
        alive = wait_for_point(run) if point else _wait(run, lambda: time.monotonic() - begun > after, START_S)  # noqa: B023
        if not alive:
            plan.insert(0, point)  # the run finished before the kill
            break
        problems += kill(run, victim)
        console.print(f"  killed {victim} {point or f'after {after:.0f} s'}")
    else:
        started(run)
    assert run.process is not None
    return problems if run.wait(START_S) == 0 else [*problems, f"ended with {run.process.returncode}: {run.tail()}"]


def differences(run: Path, reference: Path, steps: int) -> list[str]:
    """List what a finished run has that an unkilled one has not; empty if nothing."""
    wrong = []
    names = [sorted(f.name for f in trace_files(folder / "traces") if not f.live) for folder in (run, reference)]
    if names[0] != names[1]:
        wrong.append(f"files of traces: {sorted(set(names[0]) ^ set(names[1]))} are in one run only")
    for name in names[1]:
        ours, theirs = _lines(run / "traces" / name), _lines(reference / "traces" / name)
        if Counter(each["row"] for each in ours) != Counter(each["row"] for each in theirs):
            wrong.append(f"{name}: other rows than in the unkilled run")
        if len({each["session"] for each in ours}) != len(ours):
            wrong.append(f"{name}: a session appears twice")
    both = (_lines(folder / "metrics.jsonl") for folder in (run, reference))
    numbers = [{each["step"]: set(each) - SAMPLED for each in lines} for lines in both]
    if numbers[0] != numbers[1]:
        wrong.append(f"metrics.jsonl: other steps or metrics; its steps are {list(numbers[0])}")
    if saved_steps(run) != list(range(steps - KEPT + 1, steps + 1)) or newest_complete(run).step != steps:
        wrong.append(f"checkpoints of steps {saved_steps(run)}")
    for step in saved_steps(run):
        manifest.check(run / f"global_step_{step}")
    leftovers = [path.name for path in run.iterdir() if path.name == PARTIAL or path.name.endswith(".damaged")]
    return [*wrong, *(f"{name} is left" for name in leftovers)]


def _lines(path: Path) -> list[dict[str, Any]]:
    path = either_form(path)
    return [json.loads(line.text) for line in read_lines(path)] if path.exists() else []


# ---- supervised training ---------------------------------------------------------------------------------------------


def run_sft(args: argparse.Namespace) -> list[str]:
    """Run the unkilled run, then one that is killed. Returns the problems."""
    folder, rng, problems = args.folder.absolute(), random.Random(args.seed), list[str]()
    sft_run.build(folder)
    assert sft_run.start(folder, "straight", args.steps).wait() == 0, f"see {folder}/straight.log"
    run, partial = folder / "killed", folder / "killed" / ".partial"
    for number in range(args.kills):
        process = sft_run.start(folder, "killed", args.steps, *args.words)
        done = len(sft_run.lines(run)) + rng.randint(1, 8)
        aimed = number < args.aimed
        sft_run.wait_until(
            lambda: any(partial.glob("global_step_*/actor")) if aimed else len(sft_run.lines(run)) >= done,  # noqa: B023
            process,
        )
        time.sleep(rng.uniform(0, 0.4))
        if process.poll() is not None:
            break
        processes = sft_run.family(process.pid)
        way = rng.choice(["launcher", "one", "all"])
        victims = {"launcher": processes[:1], "one": [rng.choice(processes[1:] or processes)], "all": processes}[way]
        for victim in victims:
            victim.send_signal(signal.SIGKILL)
        process.wait(60)
        deadline = time.monotonic() + END_S
        while (left := sft_run.alive(processes)) and time.monotonic() < deadline:
            time.sleep(0.05)
        problems += [f"kill {number + 1} of {way}: {process} is left" for process in left]
        console.print(f"  killed {way}: {len(sft_run.lines(run))} steps, saved {newest_complete(run).step}")
    if sft_run.start(folder, "killed", args.steps, *args.words).wait() != 0:
        return [*problems, f"the resumed run failed: see {folder}/killed.log"]
    both = [
        [[line["step"], *map(line.get, NUMBERS)] for line in sft_run.lines(one)] for one in (folder / "straight", run)
    ]
    if len(both[0]) != len(both[1]):
        problems.append(f"{len(both[1])} steps instead of {len(both[0])}")
    for one, other in zip(*both, strict=False):
        if any(a != b and not (a and b and abs(a - b) <= 1e-5 * abs(a)) for a, b in zip(one, other, strict=True)):
            problems.append(f"step {one[0]}: {one} and {other}")
    return problems


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if a check failed."""
    parser = Parser(prog="python -m benchmarks.kills", description=__doc__)
    parser.add_argument("what", choices=("rl", "sft"))
    parser.add_argument("folder", type=output_folder, help="empty or new")
    parser.add_argument("words", nargs="*", metavar="KEY=VALUE", help="overrides of the run that is killed")
    parser.add_argument("--kills", type=positive_int, help="20 of rl, 10 of sft")
    parser.add_argument("--aimed", type=non_negative_int, default=5, help="how many of them aim at a checkpoint")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", type=existing_folder, help="of rl: a pretrained chat model, trained on dialogues")
    parser.add_argument("--steps", type=positive_int, help="8 of rl, 60 of sft")
    args = parser.parse_args(arguments)
    run, kills, steps = {"rl": (run_rl, 20, 8), "sft": (run_sft, 10, 60)}[args.what]
    args.kills, args.steps = args.kills or kills, args.steps or steps
    problems = run(args)
    for problem in problems:
        console.print(f"[red]{problem}[/red]", highlight=False)
    console.print(f"{args.kills} kills; {'see above' if problems else 'equal to the unkilled run'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
