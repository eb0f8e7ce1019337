"""`python -m recipe.ditto.submit BACKEND [--dry-run] TASK [key=value ...]`: check a training run and submit it.

recipe/ditto/submit.sh starts it, and its --help describes the backends and their variables. What is submitted is a
command, and for SkyPilot and KubeRay a document: the templates are slurm/ditto.sbatch, skypilot/ditto.yaml and
kuberay/rayjob.yaml.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import string
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ditto.launching.compose import load_config
from ditto.launching.ray_cluster import needed, needed_on_a_node
from ditto.launching.variables import says_yes
from ditto.preflight import check
from ditto.settings import BadConfig, Settings
from soul.cli.error_border import FAILED, Parser, reports_errors
from soul.cli.redaction import redact
from soul.errors import BadSettings

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "recipe" / "ditto"
BACKENDS = ("ray", "slurm", "skypilot", "kuberay")
JUDGE_OF_THE_JOB = "http://judge-node-of-the-job/v1"  # in the plan; slurm/ditto.sbatch finds the address
# The variables of run_rl.sh that hold no key, and those of them that hold paths.
PATHS = ("ACTOR_MODEL_PATH", "DATA_DIR", "TRAIN_FILES", "VAL_FILES", "OUTPUT_DIR")
VARIABLES = (
    *(*PATHS, "EXPERIMENT_NAME", "PLATFORM", "OPENAI_BASE_URL", "JUDGE_MODEL_NAME", "JUDGE_MODEL_REASONING"),
    *("HF_HOME", "HF_HUB_OFFLINE", "HF_ENDPOINT", "SOUL_LOG", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"),
    *("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"),
    *("WANDB_PROJECT", "WANDB_ENTITY", "WANDB_MODE", "WANDB_RUN_ID", "WANDB_RESUME"),
)
# What may hold a key, beside those of the judges: for the hub and the trackers.
OTHER_KEYS = ("HF_TOKEN", "WANDB_API_KEY", "MLFLOW_TRACKING_URI")
# What all pods of Kubernetes get: each downloads the model, perhaps one for members only, and connects to the others.
EVERYWHERE = ("HF_ENDPOINT", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "HF_TOKEN")
DOCUMENT = "TASK.yaml"  # stands in the command for the file with the document
LONGEST_NAME = 32  # KubeRay appends to it, and Kubernetes allows 63 characters


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

    def portable_variables(self) -> dict[str, str]:
        """The variables for machines with other disks: they have no cache of ours, and paths are relative.

        Raises:
            BadConfig: a variable holds a path of this machine, or the training is one for CPUs.
        """
        if not self.on_gpus:
            raise BadConfig("PLATFORM=cpu: SkyPilot and KubeRay are set up for GPUs only. Use ray or slurm.")
        for name in PATHS:
            if re.search(r"""(^|[\s'"])[/~]""", self.variables.get(name, "")):
                raise BadConfig(
                    f"{name}={self.variables[name]} is a path of this machine. The volume of the cluster holds data/ "
                    "and models; write the path relative to it. Here it is checked relative to the current folder."
                )
        return {name: text for name, text in self.variables.items() if name != "HF_HOME"}


class _Template(string.Template):
    """A YAML file with `@{NAME}` in place of values; a shell's dollars in it mean themselves."""

    delimiter = "@"


def _filled(template: str, **values: Any) -> str:
    """A template with its values: YAML takes JSON for every value; a text with `_WORDS` in its name stays as it is."""
    texts = {name: value if name.endswith("_WORDS") else json.dumps(value) for name, value in values.items()}
    return _Template((RECIPE / template).read_text(encoding="utf-8")).substitute(texts)


def _setting(name: str, environment: Mapping[str, str], what: str) -> str:
    if not (value := environment.get(name)):
        raise BadSettings(f"{name} is not set: set it to {what}.")
    return value


def plain_name(name: str) -> str:
    """A name that SkyPilot and Kubernetes accept: lower-case letters, digits and hyphens, a letter first."""
    name = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
    return (name if name[:1].isalpha() else f"run-{name}")[:LONGEST_NAME].strip("-")


def submission(backend: str, training: CheckedRun, environment: Mapping[str, str]) -> tuple[list[str], str]:
    """The command that submits, and its document (YAML; "" if there is none), for which DOCUMENT stands in the command.

    Keys reach the job by the environment of sbatch, `ray start` or sky, or by a Kubernetes secret.

    Raises:
        BadSettings: a variable is missing, or the command or the document contains the value of a key.
    """
    words, document = training.words, ""
    if backend == "ray":  # its nodes see this folder under the same path
        variables = json.dumps({"env_vars": dict(training.variables)})
        run = ["env", f"--chdir={Path.cwd()}", "bash", str(RECIPE / "run_rl.sh"), *words]
        command = ["ray", "job", "submit", "--no-wait", "--runtime-env-json", variables, "--", *run]
    elif backend == "slurm":  # sbatch passes the environment on, and reads its options from SBATCH_PARTITION and so on
        nodes = [f"--job-name={training.name}", f"--nodes={training.nodes}"]
        nodes += [f"--gpus-per-node={training.gpus}"] if training.on_gpus else []
        if environment.get("JUDGE_MODEL_PATH"):  # the options in the file are those of the first component alone
            gpus = environment.get("JUDGE_GPUS") or "8"
            nodes += [":", "--nodes=1", f"--gpus-per-node={gpus}", "--ntasks-per-node=1", "--exclusive", "--mem=0"]
        command = ["sbatch", *nodes, str(RECIPE / "slurm/ditto.sbatch"), str(ROOT), training.ray_words, *words]
    elif backend == "skypilot":
        secrets = [word for name in training.keys for word in ("--secret", name)]
        command = ["sky", "jobs", "launch", "--yes", "--detach-run", *secrets, DOCUMENT]
        document = _filled(
            "skypilot/ditto.yaml",
            NAME=plain_name(training.name),
            NODES=training.nodes,
            ROOT=str(ROOT),
            ACCELERATORS=f"{environment.get('ACCELERATOR') or 'H100'}:{training.gpus}",
            VOLUME=_setting("VOLUME", environment, "the SkyPilot volume (`sky volumes ls`) with data/, on all nodes"),
            VARIABLES={**training.portable_variables(), "RAY_WORDS": training.ray_words},
            TRAINING_WORDS=shlex.join(words),
        )
    else:
        command, document = ["kubectl", "create", "-f", DOCUMENT], _ray_job(training, environment)
    if redact(text := f"{shlex.join(command)}\n{document}") != text:
        raise BadSettings(
            "What would be submitted contains the value of a key (not shown here): a variable of run_rl.sh or an "
            "override repeats it. Put each key in a variable of its own, such as OPENAI_API_KEY."
        )
    return command, document


def _ray_job(training: CheckedRun, environment: Mapping[str, str]) -> str:
    """A RayJob of KubeRay: the head pod trains too, so there is a worker pod fewer than nodes.

    The job's driver runs in the head pod, reads the keys and gives those of the judges to the workers in memory.
    """
    secret = environment.get("SECRET") or "ditto-keys"
    pod: list[dict[str, Any]] = [{"name": name, "value": text} for name, text in training.portable_variables().items()]
    for name in training.keys:
        optional = {"optional": True} if name in OTHER_KEYS else {}  # without a judge's key the pod does not start
        pod.append({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name, **optional}}})
    launcher = "/opt/ditto/recipe/ditto/run_rl.sh"  # docker/Dockerfile
    return _filled(
        "kuberay/rayjob.yaml",
        NAME=f"{plain_name(training.name)}-",
        COMMAND=shlex.join(["env", "--chdir=/work", "bash", launcher, *training.words]),
        CPUS=str(training.cpus),
        GPUS=training.gpus,
        WORKERS=training.nodes - 1,
        IMAGE=_setting("IMAGE", environment, "the image of docker/Dockerfile"),
        VOLUME=_setting("VOLUME", environment, "the PersistentVolumeClaim with data/"),
        HEAD_VARIABLES=pod,
        WORKER_VARIABLES=[variable for variable in pod if variable["name"] in EVERYWHERE],
    )


def send(command: Sequence[str], document: str) -> int:
    """Run the command. Returns its exit code. Raises BadSettings: the command is not installed."""
    path = [str(Path(sys.executable).parent), *os.get_exec_path()]  # `ray` is in this environment
    program = shutil.which(command[0], path=os.pathsep.join(path))
    if program is None:
        raise BadSettings(f"{command[0]} is not on the PATH. Install it, or run this where it is installed.")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / DOCUMENT
        file.write_text(document, encoding="utf-8")
        return subprocess.call([program, *(str(file) if word == DOCUMENT else word for word in command[1:])])


def submit(backend: str, words: Sequence[str], dry_run: bool) -> int:
    """Check the training as a dry run of run_rl.sh does, then print or send what the backend makes of it.

    Returns:
        The exit code.
    """
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
    command, document = submission(backend, training, environment)
    doing = "Would submit" if dry_run else "Submitting"
    size = f"{training.nodes} nodes of {training.gpus} {'GPUs' if training.on_gpus else 'processes'}"
    print(f"{plan}\n{doing} to {backend}, {size}:\n\n{document}\n{shlex.join(command)}", flush=True)
    print(f"Keys, by the names of their variables: {', '.join(training.keys) or 'none'}", flush=True)
    return 0 if dry_run or send(command, document) == 0 else FAILED


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = Parser(prog="python -m recipe.ditto.submit", description=__doc__)
    parser.add_argument("backend", choices=BACKENDS, help="where to")
    parser.add_argument("task", metavar="TASK", help="a task, several with commas, or paper")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="Hydra overrides of the training")
    parser.add_argument("--dry-run", action="store_true", help="print what would be submitted (or DRY_RUN=1)")
    given = parser.parse_intermixed_args(arguments)
    dry_run = given.dry_run or says_yes("DRY_RUN", os.environ)
    return submit(given.backend, [given.task, *given.overrides], dry_run)


if __name__ == "__main__":
    sys.exit(main())
