"""`python -m recipe.ditto.ablations TASK [key=value ...]`: train with several objectives and seeds, and draw them.

recipe/ditto/ablations.sh starts it. The runs of a folder share their settings, rows, model and judges; only objective
and seed differ. `ablation.json` holds what they share: the same command goes on where it stopped, and another one is
refused.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ditto.launching.compose import load_config
from ditto.launching.override_parser import quoted
from ditto.launching.variables import says_yes
from ditto.objectives import objective
from ditto.preflight import check, check_settings
from ditto.run.run_folder import RunFolder
from ditto.run.stop_signals import Stopped, StopSignals
from soul.cli.error_border import FAILED, Parser, reports_errors
from soul.cli.redaction import redact_guessing
from soul.errors import BadSettings
from soul.figures.command import main as draw_figures
from soul.files.folder_lock import FolderLock
from soul.files.whole_file import write_whole

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipe" / "ditto" / "config"
FIGURE_4 = "ditto grpo ditto_refined_only rltf_sd erl sdpo_token_grpo sdpo_logits_grpo sdpo_token sdpo_logits"
SEED_KEYS = (
    *("data.seed", "actor_rollout_ref.actor.data_loader_seed"),  # which prompts a step and a mini-batch get
    *("actor_rollout_ref.rollout.seed", "actor_rollout_ref.actor.fsdp_config.seed"),  # sampling; LoRA's first weights
)
_OURS = ("algorithm.objective", "run.dir", "trainer.experiment_name", *SEED_KEYS)
# Overrides that change no result.
_FREE = ("run.", "trainer.logger=", "trainer.save_freq=", "trainer.max_actor_ckpt_to_keep=", "judge.budget_usd=")
_VARIABLES = ("ACTOR_MODEL_PATH", "TRAIN_FILES", "VAL_FILES", "DATA_DIR", "JUDGE_MODEL_NAME", "JUDGE_MODEL_REASONING")
_POLL_S = 0.2
_LOG_LINES = 8  # shown of the log of a failed run

Launch = Callable[[list[str], Path], int]  # command, log file -> exit code


@dataclass(frozen=True)
class Run:
    """One training run: an objective and a seed."""

    objective: str
    seed: int

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.objective}-seed{self.seed}"


@dataclass(frozen=True)
class Plan:
    """The training runs of one folder."""

    task: str  # as `run_rl.sh` takes it
    out: Path  # gets a folder for each run, logs/ and figures/
    runs: tuple[Run, ...]  # in the order in which they are trained
    overrides: tuple[str, ...] = ()

    @classmethod
    def from_environment(cls, task: str, overrides: Sequence[str], environment: Mapping[str, str]) -> Plan:
        """The plan of a command line and of OBJECTIVES, SEEDS, OUTPUT_DIR and EXPERIMENT_NAME.

        Raises:
            UnknownObjective: OBJECTIVES names none of ours.
            BadSettings: SEEDS is wrong, something is named twice, or an override sets what differs between the runs.
        """
        objectives = _words("OBJECTIVES", environment, FIGURE_4)
        seeds = _words("SEEDS", environment, "1 2 3")
        if wrong := [seed for seed in seeds if not (seed.isascii() and seed.isdigit() and int(seed) < 2**32)]:
            raise BadSettings(f"SEEDS: {wrong[0]}: use whole numbers from 0 up to {2**32 - 1:,}.")
        for word in overrides:
            if (key := word.partition("=")[0].lstrip("+~")) in _OURS:
                raise BadSettings(
                    f"{key} differs between the runs of an ablation. Name objectives with OBJECTIVES, seeds with "
                    "SEEDS, and the folder with OUTPUT_DIR and EXPERIMENT_NAME."
                )
        name = environment.get("EXPERIMENT_NAME") or f"ablations-{task.replace(',', '+')}"
        out = Path(environment.get("OUTPUT_DIR") or "outputs") / name
        names = [objective(each).name for each in objectives]
        # Seed by seed: all objectives can be compared as soon as the first seed is through.
        runs = tuple(Run(name, int(seed)) for seed in seeds for name in names)
        return cls(task, out, runs, tuple(overrides))

    def words(self, run: Run) -> list[str]:
        """The arguments of train_ppo.py."""
        config = ("--config-dir", str(RECIPE), "--config-name", "ditto", "--task", self.task)
        own = (
            quoted("run.dir", str(self.out / run.name), "OUTPUT_DIR"),
            quoted("trainer.experiment_name", f"{self.out.name}-{run.name}", "EXPERIMENT_NAME"),
            f"algorithm.objective={run.objective}",
            *(f"{key}={run.seed}" for key in SEED_KEYS),
        )
        return [*config, *self.overrides, *own]

    @property
    def made_of(self) -> dict[str, str]:
        """The settings that all runs share, as far as they change a result."""
        shared = redact_guessing(shlex.join(word for word in self.overrides if not word.startswith(_FREE)))
        variables = {name: os.environ.get(name, "") for name in _VARIABLES}
        return {"task": self.task, "overrides": shared, **variables}

    def reached(self, run: Run) -> int:
        """The last step of a run; 0 before the first one."""
        return max(RunFolder(self.out / run.name).metrics(), default=0)


def _words(variable: str, environment: Mapping[str, str], default: str) -> list[str]:
    words = (environment.get(variable) or default).replace(",", " ").split()
    if twice := [word for word in words if words.count(word) > 1]:
        raise BadSettings(f"{variable} names {twice[0]} twice.")
    return words


def train_all(plan: Plan, steps: int, launch: Launch) -> list[Run]:
    """Train the runs that have not reached this step. Returns those that failed.

    Raises:
        Stopped: we got a signal, and the present run has ended.
    """
    failed = []
    for number, run in enumerate(plan.runs, start=1):
        title = f"[{number}/{len(plan.runs)}] {run.objective}, seed {run.seed}"
        log = plan.out / "logs" / f"{run.name}.log"
        if plan.reached(run) >= steps:
            print(f"{title}: is there", flush=True)
            continue
        print(f"{title}: training; its log is {log}", flush=True)
        code = launch([sys.executable, str(ROOT / "train_ppo.py"), *plan.words(run)], log)
        reached = plan.reached(run)
        if code == 0 and reached >= steps:
            print(f"{title}: done", flush=True)
        else:  # code 0: the judges' budget is spent
            failed.append(run)
            lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
            last = "\n".join(f"    {line}" for line in lines[-_LOG_LINES:])
            print(f"{title}: ended with code {code} at step {reached} of {steps}. The end of its log:\n{last}")
    return failed


def launch_training(command: list[str], log: Path) -> int:
    """Run a training run with its output appended to a file, and pass signals on to it. Returns its exit code.

    Raises:
        Stopped: we got a signal, and the training has ended.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as file, StopSignals() as signals:
        signals.only_record()
        # A session of its own: the terminal's Ctrl-C reaches only us, and the training gets every signal once.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        passed = 0
        while (code := process.poll()) is None:
            for number in signals.received[passed:]:
                print("Passing the signal on: the training finishes its step and saves it", flush=True)
                process.send_signal(number)
                passed += 1
            time.sleep(_POLL_S)
        if signals.received:
            raise Stopped(signals.received[0])
    return code


def draw(plan: Plan, steps: int) -> None:
    """Draw the finished runs; seeds of an objective share its name."""
    folders: dict[str, list[str]] = {}
    for run in plan.runs:
        if plan.reached(run) >= steps:
            folders.setdefault(run.objective, []).append(str(plan.out / run.name))
    runs = [f"{name}={','.join(paths)}" for name, paths in folders.items()]
    if runs and draw_figures(["--out", str(plan.out / "figures"), "--runs", *runs]):
        raise BadSettings(f"soul figures failed. The runs are in {plan.out}; run the same command to draw them again.")


def run_plan(plan: Plan, launch: Launch = launch_training, dry_run: bool = False) -> int:
    """Check, train and draw. Returns the exit code. Raises SoulError or FolderInUse."""
    firsts = {run.objective: run for run in reversed(plan.runs)}
    config, *others = [load_config(plan.words(run)) for run in firsts.values()]
    steps, settings = config.trainer.total_training_steps, plan.out / "ablation.json"
    if steps is None:
        raise BadSettings("trainer.total_training_steps=null: use a number, with which a run is complete.")
    before = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else plan.made_of
    if changed := [f"{name} was {before.get(name)!r}" for name, now in plan.made_of.items() if before.get(name) != now]:
        raise BadSettings(
            f"The runs in {plan.out} were trained with something else: {'; '.join(changed)}. They share all but "
            "objective and seed. Undo the change, or start anew in another folder: EXPERIMENT_NAME=..."
        )
    print(check(config), flush=True)  # settings, files, rows, model, judges
    for other in others:  # they differ in their settings only
        check_settings(other)
    finished = sum(plan.reached(run) >= steps for run in plan.runs)
    print(f"{len(plan.runs)} runs in {plan.out}: {finished} finished, {len(plan.runs) - finished} to train", flush=True)
    if dry_run:
        return 0
    with FolderLock(plan.out):
        write_whole(settings, json.dumps(plan.made_of, indent=1))
        for run in plan.runs:  # a training run survives the process that started it, if that is killed
            if (plan.out / run.name).is_dir():
                FolderLock(plan.out / run.name).close()
        try:
            failed = train_all(plan, steps, launch)
        except Stopped as stop:
            print(f"Stopped by {stop.name}. Run the same command to continue.")
            return stop.exit_code
    draw(plan, steps)
    if failed:
        names = ", ".join(run.name for run in failed)
        print(f"{len(failed)} of {len(plan.runs)} runs failed: {names}. The same command tries them again.")
    return FAILED if failed else 0


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = Parser(prog="python -m recipe.ditto.ablations", description=__doc__)
    parser.add_argument("task", metavar="TASK", help="a task, several with commas, or paper")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="Hydra overrides of every run")
    given = parser.parse_args(arguments)
    plan = Plan.from_environment(given.task, given.overrides, os.environ)
    return run_plan(plan, dry_run=says_yes("DRY_RUN", os.environ))


if __name__ == "__main__":
    sys.exit(main())
