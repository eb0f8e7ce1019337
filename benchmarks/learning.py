"""Train the demo's model with every objective, over several seeds, and compare what it learns.

    python -m benchmarks.learning run --folder DIR [--task hitom] [--regime usual] [--arms grpo,ditto] [--seeds 5]
    python -m benchmarks.learning run --folder DIR --task first_message --model FOLDER --people FOLDER
    python -m benchmarks.learning table --folder DIR [--arms grpo,ditto] [--figures DIR]

A run is the demo's (`recipe/demo`): Ray, FSDP2 and vLLM on a CPU. Runs of a table have the same number of drafts and
optimizer updates. A run that has its result is not repeated, so `run` can be stopped and started again at any time. A
seed has a warm start of its own, from which all its arms begin; it also changes the order of the rows and all samples.

An arm is an objective, or a setting whose effect on stability is measured (ARMS). A world is a task under conditions
(`learning_worlds.py`).
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.learning_worlds import WORLDS, real
from benchmarks.side_by_side import ROOT, console
from ditto.objectives import OBJECTIVES
from recipe.demo import coach
from recipe.demo.run import ON_A_CPU
from soul.cli.arguments import existing_folder, output_folder, positive_int
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadSettings
from soul.files.whole_file import write_whole
from soul.testing import FakeOpenAI

RESULTS = "results.jsonl"  # in a folder of runs, one line for each
SECONDARY = "ditto/secondary/"
TIME_LIMIT_S = 3 * 3600  # of a run, on a busy machine
SAMPLES = 4  # per held-back row, in each validation
TRAINER = (sys.executable, str(ROOT / "train_ppo.py"))
_WRITING = threading.Lock()  # runs finish in threads
SETTINGS = {
    "floor 0.5": "algorithm.std_floor=0.5",
    "half rate": "actor_rollout_ref.actor.optim.lr=2.5e-4",
    "double rate": "actor_rollout_ref.actor.optim.lr=1e-3",
    "cosine": "actor_rollout_ref.actor.optim.lr_scheduler_type=cosine",
}
# Without the objectives that have checkpoints as teachers: there are none here.
LEARNING = [name for name, objective in OBJECTIVES.items() if objective.teacher != "experts"]
ARMS: dict[str, list[str]] = {name: [f"algorithm.objective={name}"] for name in LEARNING}
ARMS |= {f"{name}, {word}": [*ARMS[name], setting] for name in ("ditto", "grpo") for word, setting in SETTINGS.items()}
ARMS["ditto, colocate async"] = [*ARMS["ditto"], "trainer.v1.trainer_mode=ditto_colocate_async"]


@dataclass
class Result:
    """The numbers of a run, by step where they are lists.

    Attributes:
        steps: how many it trains; runs of other lengths are in tables of their own.
        drafts, refined: mean reward of the step's drafts on rows never seen before, and of its refined answers.
        tokens: tokens sampled up to the end of each step, drafts and refined answers together.
        sampled: mean reward on the held-back rows after training.
        how: "cluster"; "one_process" for runs of a trainer that is no longer in the repository.
        gap: mean of refined - draft over sessions that have both.
        heldback: step, and mean reward on the held-back rows after it.
        cpu: CPU seconds of all processes up to the end of each step, without start-up and validations.
        secondary: the world's other metrics of each step by name.
        second: the second judge's mean reward of each step's drafts, if there is one.
        alarms: the first step of each alarm that was raised.
    """

    regime: str
    arm: str
    seed: int
    steps: int
    drafts: list[float] = field(default_factory=list)
    refined: list[float | None] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)
    sampled: float = 0.0
    task: str = "hitom"
    how: str = "cluster"
    gap: list[float | None] = field(default_factory=list)
    heldback: list[tuple[int, float]] = field(default_factory=list)
    secondary: dict[str, list[float | None]] = field(default_factory=dict)
    cpu: list[float] = field(default_factory=list)
    second: list[float | None] = field(default_factory=list)
    alarms: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The run's name, in messages and among the results."""
        parts = [self.regime, self.task, self.arm, str(self.seed), f"{self.steps}_steps", self.how]
        return "-".join(part.replace(", ", "-").replace(" ", "_") for part in parts)

    def add_step(self, numbers: Mapping[str, float]) -> None:
        """Take over a line of metrics.jsonl; steps in order, lines without a training step are left out."""
        value = numbers.get(f"val/{self.task}/reward")
        if "ditto/reward_draft" not in numbers:
            self.heldback += [] if value is None or self.drafts else [(0, value)]
            return
        refined = numbers["ditto/share_refined"] * numbers.get("ditto/response_tokens_refined", 0.0)
        sampled = numbers["ditto/sessions"] * (numbers.get("ditto/response_tokens_draft", 0.0) + refined)
        self.drafts.append(numbers["ditto/reward_draft"])
        self.refined.append(numbers.get("ditto/reward_refined"))
        self.tokens.append(sampled + (self.tokens[-1] if self.tokens else 0.0))
        self.gap.append(numbers.get("ditto/gap"))
        if value is not None:
            self.heldback.append((len(self.drafts), value))
        if (second := numbers.get("ditto/canary/reward_draft")) is not None or self.second:
            self.second.append(second)
        for key in (key for key, raised in numbers.items() if raised and key.startswith("alarm/")):
            self.alarms.setdefault(key.removeprefix("alarm/"), len(self.drafts))
        for minor in WORLDS[self.task, self.regime].secondary:
            self.secondary.setdefault(minor, []).append(numbers.get(f"{SECONDARY}{self.task}/{minor}"))


def words(result: Result, world: Path, run_dir: Path) -> list[str]:
    """The command line of a run, after the program."""
    return [
        *("--config-dir", str(ROOT / "recipe" / "demo"), "--config-name", "demo"),
        *("platform=cpu", f"data.train_files=[{world / 'train.parquet'}]"),
        *(f"data.val_files=[{world / 'heldback.parquet'}]", f"actor_rollout_ref.model.path={world / 'warm'}"),
        *(f"run.dir={run_dir}", f"trainer.experiment_name={result.name}", f"data.seed={result.seed}"),
        f"actor_rollout_ref.actor.data_loader_seed={result.seed}",
        *(f"trainer.total_training_steps={result.steps}", f"actor_rollout_ref.rollout.val_kwargs.n={SAMPLES}"),
        *WORLDS[result.task, result.regime].overrides,
        *ARMS[result.arm],
    ]


def train(result: Result, world: Path, folder: Path, children: list[subprocess.Popen[bytes]]) -> Result:
    """One run: train, keep the numbers, remove the rest.

    Args:
        children: gets the process that trains, so that the caller can end it.

    Raises:
        RuntimeError: it failed; its log stays.
    """
    home = folder / "unfinished" / result.name
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    judging = WORLDS[result.task, result.regime].judge
    with FakeOpenAI(judging, coach.MODEL) as judge, (home / "log.txt").open("w") as log:
        command = [*TRAINER, *words(result, world, home / "run")]
        environment = {**os.environ, **ON_A_CPU, "OPENAI_BASE_URL": judge.url, "OPENAI_API_KEY": "offline"}
        environment |= WORLDS[result.task, result.regime].environment(world)
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
        children.append(process)
        try:
            code = follow(process, home / "run" / "metrics.jsonl", result)
        finally:
            process.kill()
    if code != 0:
        raise RuntimeError(f"{result.name} ended with code {code}: see {home / 'log.txt'}")
    for line in (home / "run" / "metrics.jsonl").read_text().splitlines():
        result.add_step(json.loads(line))
    result.cpu = result.cpu if len(result.cpu) == len(result.drafts) else []  # it ended before the last look
    _, result.sampled = result.heldback[-1]
    keep(folder, result)
    shutil.rmtree(home)
    return result


def follow(process: subprocess.Popen[bytes], metrics: Path, result: Result) -> int:
    """Note the CPU time of each step when its line appears. Returns the exit code.

    What a validation took is not counted, nor what came before it if it was the one before the first step.
    """
    left_out, last, validations, limit = 0.0, 0.0, 0, time.monotonic() + TIME_LIMIT_S
    while (code := process.poll()) is None and time.monotonic() < limit:
        text, spent = metrics.read_text() if metrics.is_file() else "", cpu_seconds(process.pid)
        if (steps := text.count('"ditto/reward_draft"')) > len(result.cpu):
            result.cpu, last = [*result.cpu, *[spent - left_out] * (steps - len(result.cpu))], spent
        if (found := text.count(f'"val/{result.task}/reward"')) > validations:
            left_out, validations = left_out + spent - last, found
        time.sleep(0.5)
    return -1 if code is None else code


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and of all that descend from it."""
    total = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in (root := psutil.Process(pid), *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
    return total


def keep(folder: Path, result: Result) -> None:
    """Add a finished run to the folder's results, which stay in the order of their names."""
    with _WRITING:
        kept = {each.name: each for each in results(folder)} | {result.name: result}
        lines = (json.dumps(_rounded(asdict(kept[name]))) + "\n" for name in sorted(kept))
        write_whole(folder / RESULTS, "".join(lines))


def _rounded(value: Any) -> Any:
    """The value with four significant digits: a result is kept in the repository, and its noise is far larger."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list | tuple) else value


def results(folder: Path) -> Iterator[Result]:
    """All finished runs."""
    if (folder / RESULTS).is_file():
        for line in (folder / RESULTS).read_text().splitlines():
            yield Result(**json.loads(line))


def run(folder: Path, todo: Sequence[Result], at_a_time: int) -> int:
    """Do the runs that are not finished. Returns how many failed."""
    finished = {result.name for result in results(folder)}
    todo = [result for result in todo if result.name not in finished]
    worlds = {
        (task, regime, seed): WORLDS[task, regime].folder(folder / "worlds", seed)
        for task, regime, seed in dict.fromkeys((r.task, r.regime, r.seed) for r in todo)
    }
    failed, children = 0, list[subprocess.Popen[bytes]]()
    with ThreadPoolExecutor(at_a_time) as pool:
        runs = {pool.submit(train, r, worlds[r.task, r.regime, r.seed], folder, children): r for r in todo}
        try:
            for number, done in enumerate(as_completed(runs), start=1):
                name = runs[done].name
                try:
                    result = done.result()
                    line = f"{name}  last drafts {result.drafts[-1]:.3f}  held back {result.sampled:.3f}"
                except Exception as error:  # noqa: BLE001 - the other runs go on; the same command does this one again
                    failed += 1
                    line = f"{name} FAILED: {error}"
                console.print(f"{number}/{len(todo)}  {line}", highlight=False, soft_wrap=True)
        except BaseException:  # a signal: without this the pool would first do all that is left
            pool.shutdown(wait=False, cancel_futures=True)
            for child in children:
                child.terminate()
            raise
    return failed


def _arms(text: str) -> list[str]:
    """The arms that the command line names.

    Raises:
        BadSettings: one does not exist.
    """
    arms = [arm.strip() for arm in text.split(";" if ";" in text else ",") if arm.strip()]
    for arm in arms:
        if arm not in ARMS:
            raise BadSettings(f"--arms: there is no arm {arm!r}. Use {'; '.join(ARMS)}.")
    return arms


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 1 if a run failed."""
    parser = Parser(prog="python -m benchmarks.learning", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run", help="do the runs that are missing")
    runner.add_argument("--folder", type=output_folder, required=True)
    runner.add_argument("--task", choices=dict.fromkeys(task for task, _ in WORLDS), default="hitom")
    runner.add_argument("--regime", choices=dict.fromkeys(regime for _, regime in WORLDS), default="usual")
    runner.add_argument(
        "--arms", default=",".join(LEARNING), help="separated by commas, or by semicolons: 'ditto, floor 0.5;'"
    )
    runner.add_argument("--seeds", type=positive_int, default=5)
    runner.add_argument("--steps", type=positive_int, default=15)
    runner.add_argument("--model", help="of --task first_message: a chat model to start from, hub id or folder")
    runner.add_argument("--people", type=existing_folder, help="of --task first_message: MirrorBench's files")
    runner.add_argument("--at-a-time", type=positive_int, default=2)
    table = commands.add_parser("table", help="print tables of the runs that are there, as Markdown")
    table.add_argument("--folder", type=existing_folder, required=True)
    table.add_argument("--arms", help="only these, separated as in run")
    table.add_argument("--figures", type=output_folder, help="gets the curves, an SVG file for each world")
    args = parser.parse_args(arguments)
    if args.command == "table":
        from benchmarks.learning_table import write_figures, write_table  # matplotlib and SciPy

        chosen = _arms(args.arms) if args.arms else ARMS
        finished = [result for result in results(args.folder) if result.arm in chosen]
        print(write_table(finished))
        if args.figures:
            write_figures(finished, args.figures)
        return 0
    if (args.task, args.regime) not in WORLDS:
        raise BadSettings(f"--regime: {args.task} has no regime {args.regime!r}.")
    if args.model and args.people:
        WORLDS["first_message", "usual"] = real(args.model, args.people)
    seeds, arms = range(1, args.seeds + 1), _arms(args.arms)
    todo = [Result(args.regime, arm, seed, args.steps, task=args.task) for seed in seeds for arm in arms]
    return int(run(args.folder, todo, args.at_a_time) > 0)


if __name__ == "__main__":
    sys.exit(main())
