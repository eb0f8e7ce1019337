"""`python -m recipe.ditto.ablations TASK [key=value ...]`: train with several objectives and seeds, and draw them.

recipe/ditto/ablations.sh starts it. The runs of a folder share their settings, rows, model and judges; only objective
and seed differ. `stamps/RUN.json` says what a run was made of and whether it has finished. So the same command goes on
where it stopped, and a run that was made of something else is never drawn beside the others.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from ditto.launching.compose import load_config
from ditto.launching.override_parser import quoted
from ditto.launching.variables import says_yes
from ditto.objectives import objective
from ditto.preflight import check, check_settings
from ditto.run.run_folder import RunFolder
from ditto.run.stop_signals import Stopped, StopSignals
from ditto.settings import Settings
from soul.cli.error_border import FAILED, Parser, reports_errors
from soul.cli.redaction import redact_guessing
from soul.errors import BadSettings
from soul.evaluate.run.checkpoint import Checkpoint
from soul.evaluate.run.settings import gateway_identity
from soul.figures.__main__ import main as draw_figures
from soul.files.folder_lock import FolderLock
from soul.files.stamps import Inputs, Stamp

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipe" / "ditto" / "config" / "ditto.yaml"
FIGURE_4 = "ditto grpo ditto_refined_only rltf_sd erl sdpo_token_grpo sdpo_logits_grpo sdpo_token sdpo_logits"
SEED_KEYS = (
    *("data.seed", "actor_rollout_ref.actor.data_loader_seed"),  # which prompts a step and a mini-batch get
    *("actor_rollout_ref.rollout.seed", "actor_rollout_ref.actor.fsdp_config.seed"),  # sampling; LoRA's first weights
)
_OURS = ("algorithm.objective", "algorithm.agent_version", "run.dir", "trainer.experiment_name", *SEED_KEYS)
# Overrides that change no result.
_FREE = ("run.", "trainer.logger=", "trainer.save_freq=", "trainer.max_actor_ckpt_to_keep=", "judge.budget_usd=")
_POLL_S = 0.2
_LOG_LINES, _LOG_WIDTH = 8, 240  # shown of the log of a failed run

Launch = Callable[[list[str], Path], int]  # command, log file -> exit code


@dataclass(frozen=True)
class Run:
    """One training: an objective and a seed."""

    objective: str
    seed: int

    @property
    def name(self) -> str:
        """Its folder."""
        return f"{self.objective}-seed{self.seed}"


@dataclass(frozen=True)
class Plan:
    """The trainings of one folder.

    Attributes:
        task: as `run_rl.sh` takes it.
        out: gets a folder for each run, logs/, stamps/ and figures/.
        runs: in the order in which they are trained.
        overrides: Hydra overrides of every run.
        recipe: the config file of every run.
    """

    task: str
    out: Path
    runs: tuple[Run, ...]
    overrides: tuple[str, ...] = ()
    recipe: Path = RECIPE

    @classmethod
    def from_environment(
        cls, task: str, overrides: Sequence[str], environment: Mapping[str, str], recipe: Path = RECIPE
    ) -> Plan:
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
        return cls(task, out, runs, tuple(overrides), recipe)

    def words(self, run: Run) -> list[str]:
        """The arguments of train_ppo.py."""
        config = ("--config-dir", str(self.recipe.parent), "--config-name", self.recipe.stem, "--task", self.task)
        own = (
            quoted("run.dir", str(self.out / run.name), "OUTPUT_DIR"),
            quoted("trainer.experiment_name", f"{self.out.name}-{run.name}", "EXPERIMENT_NAME"),
            f"algorithm.objective={run.objective}",
            *(f"{key}={run.seed}" for key in SEED_KEYS),
        )
        return [*config, *self.overrides, *own]

    def configs(self) -> list[DictConfig]:
        """The config of the first run of every objective.

        Raises:
            BadConfig: it cannot be composed.
        """
        firsts = [Run(name, self.runs[0].seed) for name in dict.fromkeys(run.objective for run in self.runs)]
        return [load_config(self.words(run)) for run in firsts]

    def inputs(self, config: DictConfig) -> Inputs:
        """The inputs of every run: overrides, rows, model and judges.

        Args:
            config: that of any run.

        Raises:
            SoulError: a setting is wrong, or the model is none.
        """
        model = str(config.actor_rollout_ref.model.path)
        judges = _leaves("", gateway_identity(Settings.from_config(config).gateway))
        return {
            "task": self.task,
            "recipe": self.recipe.name,
            "overrides": redact_guessing(shlex.join(w for w in self.overrides if not w.startswith(_FREE))),
            f"model {model}": Checkpoint.find(model, None).fingerprint,
            **{f"file {name}": _digest(Path(name)) for name in (*config.data.train_files, *config.data.val_files)},
            # The same judge may answer at another address when the command runs again.
            **{name: value for name, value in judges if not name.endswith(".base_url")},
        }

    def stamp_file(self, run: Run) -> Path:
        """Says what a run was made of."""
        return self.out / "stamps" / f"{run.name}.json"

    def log_file(self, run: Run) -> Path:
        """The output of a run, of all its starts."""
        return self.out / "logs" / f"{run.name}.log"

    def is_finished(self, run: Run) -> bool:
        """True if the run has trained all its steps."""
        stamp = self._stamp(run)
        return stamp is not None and stamp.finished and (self.out / run.name).is_dir()

    def check_stamps(self, now: Inputs) -> None:
        """Check that the runs which are there were made of the same.

        Raises:
            BadSettings: naming the run and what has changed. BadStamp: a stamp is damaged.
        """
        for run in self.runs:
            stamp = self._stamp(run)
            if stamp is not None and (changed := "; ".join(stamp.differences(now))):
                raise BadSettings(
                    f"{self.out / run.name} was trained with something else: {changed}. The runs of a folder share all "
                    "but objective and seed. Give the settings that it was trained with, or start anew in another "
                    "folder: EXPERIMENT_NAME=..."
                )

    def _stamp(self, run: Run) -> Stamp | None:
        return Stamp.read(self.stamp_file(run), f"Move it and the folder {run.name} away: the run then starts anew.")


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file.is_file() else "absent"


def _leaves(name: str, value: object) -> Iterator[tuple[str, str]]:
    """The leaves of nested settings: roles.judge.model -> "gpt-5-nano"."""
    if isinstance(value, Mapping) and value:
        for key, below in value.items():
            yield from _leaves(f"{name}.{key}" if name else str(key), below)
    else:
        yield name, json.dumps(value)


def _words(variable: str, environment: Mapping[str, str], default: str) -> list[str]:
    words = (environment.get(variable) or default).replace(",", " ").split()
    if twice := [word for word in words if words.count(word) > 1]:
        raise BadSettings(f"{variable} names {twice[0]} twice.")
    return words


def train_all(plan: Plan, now: Inputs, steps: int | None, launch: Launch) -> dict[Run, int]:
    """Train the runs that are not finished.

    Args:
        now: what they are made of (`Plan.inputs`).
        steps: with which a run is complete; None: when it ends without an error.

    Returns:
        The exit codes of the runs that were started.

    Raises:
        Stopped: we got a signal, and the present run has ended.
    """
    codes: dict[Run, int] = {}
    for number, run in enumerate(plan.runs, start=1):
        title = f"[{number}/{len(plan.runs)}] {run.objective}, seed {run.seed}"
        if plan.is_finished(run):
            print(f"{title}: is there", flush=True)
            continue
        print(f"{title}: training; its log is {plan.log_file(run)}", flush=True)
        Stamp(now).write(plan.stamp_file(run))
        start = time.monotonic()
        codes[run] = code = launch([sys.executable, str(ROOT / "train_ppo.py"), *plan.words(run)], plan.log_file(run))
        minutes = (time.monotonic() - start) / 60
        problem = _unfinished(plan, run, steps) if code == 0 else f"ended with code {code}"
        if problem is None:
            Stamp(now, finished=True).write(plan.stamp_file(run))
            print(f"{title}: done in {minutes:.1f} min", flush=True)
        else:
            codes[run] = code or FAILED
            print(f"{title}: {problem} after {minutes:.1f} min. The end of its log:", flush=True)
            print(_end_of(plan.log_file(run)), flush=True)
    return codes


def _unfinished(plan: Plan, run: Run, steps: int | None) -> str | None:
    """Why a run that ended without an error has not finished: its judges' budget is spent. None if it has."""
    reached = max(RunFolder(plan.out / run.name).metrics(), default=0)
    return None if steps is None or reached >= steps else f"ended at step {reached} of {steps}"


def _end_of(log: Path) -> str:
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return "\n".join(f"    {line[:_LOG_WIDTH]}" for line in lines[-_LOG_LINES:])


def launch_training(command: list[str], log: Path) -> int:
    """Run a training with its output appended to a file, and pass signals on to it. Returns its exit code.

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


def draw(plan: Plan) -> None:
    """Draw the finished runs; seeds of an objective share its name."""
    finished = [run for run in plan.runs if plan.is_finished(run)]
    if not finished:
        print("No run has finished: there is nothing to draw.")
        return
    folders = {
        name: ",".join(str(plan.out / run.name) for run in finished if run.objective == name)
        for name in dict.fromkeys(run.objective for run in finished)
    }
    code = draw_figures(["--out", str(plan.out / "figures"), "--runs", *(f"{n}={f}" for n, f in folders.items())])
    if code:
        raise BadSettings(f"soul figures failed. The runs are in {plan.out}; run the same command to draw them again.")


def run_plan(plan: Plan, launch: Launch = launch_training, dry_run: bool = False) -> int:
    """Check, train and draw. Returns the exit code.

    Raises:
        SoulError: the command or its input is wrong; nothing was started.
        FolderInUse: another process works on the folder, or on one of its runs.
    """
    config, *others = plan.configs()
    now = plan.inputs(config)
    plan.check_stamps(now)
    print(check(config), flush=True)  # settings, files, rows, model, judges
    for other in others:  # they differ in their settings only
        check_settings(other)
    finished = sum(plan.is_finished(run) for run in plan.runs)
    print(f"{len(plan.runs)} runs in {plan.out}: {finished} finished, {len(plan.runs) - finished} to train", flush=True)
    if dry_run:
        return 0
    with FolderLock(plan.out):
        for run in plan.runs:  # a training survives the process that started it, if that is killed
            if (plan.out / run.name).is_dir():
                FolderLock(plan.out / run.name).close()
        try:
            codes = train_all(plan, now, config.trainer.total_training_steps, launch)
        except Stopped as stop:
            print(f"Stopped by {stop.name}. Run the same command to continue.")
            return stop.exit_code
    draw(plan)
    failed = [run.name for run, code in codes.items() if code]
    if failed:
        print(f"{len(failed)} of {len(plan.runs)} runs failed: {', '.join(failed)}. The same command tries them again.")
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
