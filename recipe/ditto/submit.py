"""`python -m recipe.ditto.submit BACKEND [--dry-run] TASK [key=value ...]`: check a training run and submit it.

recipe/ditto/submit.sh starts it, and its --help describes the backends and their variables.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from ditto.launching.compose import load_config
from ditto.launching.ray_cluster import needed, needed_on_a_node
from ditto.launching.variables import says_yes
from ditto.preflight import check
from ditto.settings import Settings
from soul.cli.error_border import FAILED, Parser, reports_errors
from soul.cli.redaction import redact
from soul.errors import BadSettings

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipe" / "ditto"
BACKENDS = ("ray", "slurm")
JUDGE_OF_THE_JOB = "http://judge-node-of-the-job/v1"  # in the plan; slurm/ditto.sbatch finds the address
# The variables of run_rl.sh that hold no key.
VARIABLES = (
    *("ACTOR_MODEL_PATH", "DATA_DIR", "TRAIN_FILES", "VAL_FILES", "OUTPUT_DIR"),
    *("EXPERIMENT_NAME", "PLATFORM", "OPENAI_BASE_URL", "JUDGE_MODEL_NAME", "JUDGE_MODEL_REASONING"),
    *("HF_HOME", "HF_HUB_OFFLINE", "HF_ENDPOINT", "SOUL_LOG", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"),
    *("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"),
    *("WANDB_PROJECT", "WANDB_ENTITY", "WANDB_MODE", "WANDB_RUN_ID", "WANDB_RESUME"),
)
# What may hold a key, beside those of the judges: for the hub and the trackers.
OTHER_KEYS = ("HF_TOKEN", "WANDB_API_KEY", "MLFLOW_TRACKING_URI")


@dataclass(frozen=True)
class CheckedRun:
    """A training run that was checked."""

    words: Sequence[str]  # the task and the Hydra overrides, as they were given
    name: str
    variables: Mapping[str, str]  # of run_rl.sh; no keys
    keys: tuple[str, ...]  # names of the environment variables that hold keys and are set here
    nodes: int  # those that only sample included
    gpus: int  # of each node
    cpus: int  # that Ray has to count on each node

    @classmethod
    def from_config(cls, words: Sequence[str], config: DictConfig, environment: Mapping[str, str]) -> CheckedRun:
        """The training of a composed config.

        Args:
            environment: as it was before the config was composed, which sets HF_HOME.
        """
        rollout, trainer = config.actor_rollout_ref.rollout, config.trainer
        judges = Settings.from_config(config).gateway.endpoints
        keys = sorted({endpoint.api_key_env for endpoint in judges if endpoint.api_key_env} | set(OTHER_KEYS))
        nodes = trainer.nnodes + rollout.nnodes
        return cls(
            words=words,
            name=trainer.experiment_name,
            variables={name: environment[name] for name in VARIABLES if environment.get(name)},
            keys=tuple(name for name in keys if environment.get(name)),
            nodes=nodes,
            gpus=max(trainer.n_gpus_per_node, rollout.n_gpus_per_node if rollout.nnodes else 0),
            cpus=max(needed_on_a_node(config), -(-needed(config)[1] // nodes)),
        )

    @property
    def on_gpus(self) -> bool:
        """True if the devices are GPUs. On a CPU they are processes, which Ray must be told to count."""
        return self.variables.get("PLATFORM") != "cpu"

    @property
    def ray_words(self) -> str:
        """Options of `ray start` on each node."""
        return f"--num-cpus={self.cpus}" + ("" if self.on_gpus else f" --num-gpus={self.gpus}")


def submission(backend: str, training: CheckedRun, environment: Mapping[str, str]) -> list[str]:
    """The command that submits. Keys reach the job by the environment of sbatch or `ray start`.

    Raises:
        BadSettings: the command contains the value of a key.
    """
    words = training.words
    if backend == "ray":  # its nodes see this folder under the same path
        variables = json.dumps({"env_vars": dict(training.variables)})
        run = ["env", f"--chdir={Path.cwd()}", "bash", str(RECIPE / "run_rl.sh"), *words]
        command = ["ray", "job", "submit", "--no-wait", "--runtime-env-json", variables, "--", *run]
    else:  # sbatch passes the environment on, and reads its options from SBATCH_PARTITION and so on
        nodes = [f"--job-name={training.name}", f"--nodes={training.nodes}"]
        nodes += [f"--gpus-per-node={training.gpus}"] if training.on_gpus else []
        if environment.get("JUDGE_MODEL_PATH"):  # the options in the file are those of the first component alone
            gpus = environment.get("JUDGE_GPUS") or "8"
            nodes += [":", "--nodes=1", f"--gpus-per-node={gpus}", "--ntasks-per-node=1", "--exclusive", "--mem=0"]
        command = ["sbatch", *nodes, str(RECIPE / "slurm/ditto.sbatch"), str(ROOT), training.ray_words, *words]
    if redact(text := shlex.join(command)) != text:
        raise BadSettings(
            "What would be submitted contains the value of a key (not shown here): a variable of run_rl.sh or an "
            "override repeats it. Put each key in a variable of its own, such as OPENAI_API_KEY."
        )
    return command


def send(command: Sequence[str]) -> int:
    """Run the command. Returns its exit code. Raises BadSettings: the command is not installed."""
    path = [str(Path(sys.executable).parent), *os.get_exec_path()]  # `ray` is in this environment
    program = shutil.which(command[0], path=os.pathsep.join(path))
    if program is None:
        raise BadSettings(f"{command[0]} is not on the PATH. Install it, or run this where it is installed.")
    return subprocess.call([program, *command[1:]])


def submit(backend: str, words: Sequence[str], dry_run: bool) -> int:
    """Check the training as a dry run of run_rl.sh does, then print or send it. Returns the exit code."""
    task, *overrides = words
    judge = os.environ.get("JUDGE_MODEL_PATH")  # it does not run yet: the job asks it when it starts
    if judge:
        os.environ |= {"JUDGE_MODEL_NAME": judge, "OPENAI_BASE_URL": JUDGE_OF_THE_JOB}
        overrides.insert(0, "judge.api_key_env=none")
    environment = dict(os.environ)
    recipe = ["--config-dir", str(RECIPE / "config"), "--config-name", "ditto"]
    config = load_config([*recipe, "--task", task, *overrides, "++dry_run=true"])
    config.run.preflight = config.run.preflight and not judge
    plan = check(config)
    training = CheckedRun.from_config([task, *overrides], config, environment)
    command = submission(backend, training, environment)
    doing = "Would submit" if dry_run else "Submitting"
    size = f"{training.nodes} nodes of {training.gpus} {'GPUs' if training.on_gpus else 'processes'}"
    print(f"{plan}\n{doing} to {backend}, {size}:\n\n{shlex.join(command)}", flush=True)
    print(f"Keys, by the names of their variables: {', '.join(training.keys) or 'none'}", flush=True)
    return 0 if dry_run or send(command) == 0 else FAILED


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = Parser(prog="python -m recipe.ditto.submit", description=__doc__)
    parser.add_argument("backend", choices=BACKENDS, help="where to")
    parser.add_argument("task", metavar="TASK", help="a task, several with commas, or paper")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="Hydra overrides of the training")
    parser.add_argument("--dry-run", action="store_true", help="print what would be submitted (or DRY_RUN=1)")
    given = parser.parse_args(arguments)
    dry_run = given.dry_run or says_yes("DRY_RUN", os.environ)
    return submit(given.backend, [given.task, *given.overrides], dry_run)


if __name__ == "__main__":
    sys.exit(main())
