"""`python -m recipe.ditto.submit BACKEND [--dry-run] TASK [key=value ...]`: check a training and submit it.

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
from collections.abc import Callable, Iterable, Mapping, Sequence
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
# The variables of run_rl.sh that hold no key, and those of them that hold paths.
VARIABLES = (
    *("ACTOR_MODEL_PATH", "DATA_DIR", "TRAIN_FILES", "VAL_FILES", "OUTPUT_DIR", "EXPERIMENT_NAME", "PLATFORM"),
    *("OPENAI_BASE_URL", "JUDGE_MODEL_NAME", "JUDGE_MODEL_REASONING", "HF_HOME", "HF_HUB_OFFLINE", "SOUL_LOG"),
    *("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "WANDB_PROJECT", "WANDB_ENTITY", "WANDB_MODE"),
    *("WANDB_RUN_ID", "WANDB_RESUME", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "HF_ENDPOINT", "SWANLAB_MODE"),
    *("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"),
)
PATHS = ("ACTOR_MODEL_PATH", "DATA_DIR", "TRAIN_FILES", "VAL_FILES", "OUTPUT_DIR")
# What may hold a key, beside those of the judges: for the hub, the trackers, the store of `trainer.upload_to`.
OTHER_KEYS = (
    *("HF_TOKEN", "WANDB_API_KEY", "SWANLAB_API_KEY", "MLFLOW_TRACKING_URI"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
)
# What all pods of Kubernetes get: each downloads the model, perhaps one for members only, and connects to the others.
EVERYWHERE = ("HF_ENDPOINT", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "HF_TOKEN")
DOCUMENT = "TASK.yaml"  # stands in the command for the file with the document
LONGEST_NAME = 32  # KubeRay appends to it, and Kubernetes allows 63 characters


@dataclass(frozen=True)
class Training:
    """A training that was checked.

    Attributes:
        overrides: Hydra overrides, as they were given.
        variables: what run_rl.sh reads; no keys.
        keys: names of the environment variables that hold keys and are set here.
        nodes: how many machines, those that only sample included.
        gpus: devices of each.
        cpus: what Ray has to count on each node.
    """

    task: str
    overrides: tuple[str, ...]
    name: str
    variables: Mapping[str, str]
    keys: tuple[str, ...]
    nodes: int
    gpus: int
    cpus: int

    @classmethod
    def from_config(
        cls, task: str, overrides: Sequence[str], config: DictConfig, environment: Mapping[str, str]
    ) -> Training:
        """The training of a composed config.

        Args:
            environment: as it was before the config was composed, which sets HF_HOME.
        """
        rollout, trainer = config.actor_rollout_ref.rollout, config.trainer
        judges = Settings.from_config(config).gateway.endpoints
        keys = sorted({endpoint.api_key_env for endpoint in judges if endpoint.api_key_env} | set(OTHER_KEYS))
        nodes = trainer.nnodes + rollout.nnodes
        return cls(
            task=task,
            overrides=tuple(overrides),
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
    def size(self) -> str:
        """Nodes and devices, for people."""
        device = "GPU" if self.on_gpus else "process"
        each = f"{self.gpus} {device}{'' if self.gpus == 1 else 's' if self.on_gpus else 'es'}"
        return f"1 node with {each}" if self.nodes == 1 else f"{self.nodes} nodes with {each} each"

    @property
    def ray_words(self) -> str:
        """Options of `ray start` on each node."""
        return f"--num-cpus={self.cpus}" + ("" if self.on_gpus else f" --num-gpus={self.gpus}")

    @property
    def words(self) -> list[str]:
        """Words that follow run_rl.sh."""
        return [self.task, *self.overrides]

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


@dataclass(frozen=True)
class Submission:
    """The ways to submit a training run.

    Attributes:
        command: the words; DOCUMENT among them stands for a temporary file with the document.
        keys: how the keys travel, for people.
        document: YAML.

    Raises:
        BadSettings: it contains the value of a key.
    """

    command: Sequence[str]
    keys: str
    document: str = ""

    def __post_init__(self) -> None:
        text = f"{shlex.join(self.command)}\n{self.document}"
        if redact(text) != text:
            raise BadSettings(
                "What would be submitted contains the value of a key (not shown here): a variable of run_rl.sh or an "
                "override repeats it. Put each key in a variable of its own, such as OPENAI_API_KEY."
            )

    def shown(self) -> str:
        """Text that a dry run prints."""
        return "\n".join([*([self.document] if self.document else []), shlex.join(self.command), self.keys])

    def send(self) -> int:
        """Run the command. Returns its exit code.

        Raises:
            BadSettings: the command is not installed.
        """
        path = [str(Path(sys.executable).parent), *os.get_exec_path()]  # `ray` is in this environment
        program = shutil.which(self.command[0], path=os.pathsep.join(path))
        if program is None:
            raise BadSettings(f"{self.command[0]} is not on the PATH. Install it, or run this where it is installed.")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / DOCUMENT
            file.write_text(self.document, encoding="utf-8")
            words = [str(file) if word == DOCUMENT else word for word in self.command[1:]]
            return subprocess.call([program, *words])


class _Template(string.Template):
    """A YAML file with `@{NAME}` in place of values; a shell's dollars in it mean themselves."""

    delimiter = "@"


def _filled(template: str, **values: Any) -> str:
    """A template with its values: YAML takes JSON for every value; a text with `_WORDS` in its name stays as it is."""
    texts = {name: value if name.endswith("_WORDS") else json.dumps(value) for name, value in values.items()}
    return _Template((RECIPE / template).read_text(encoding="utf-8")).substitute(texts)


def _setting(name: str, environment: Mapping[str, str], what: str) -> str:
    if not (value := environment.get(name)):
        raise BadSettings(f"{name} is not set: name {what}.")
    return value


def plain_name(name: str) -> str:
    """A name that SkyPilot and Kubernetes accept: lower-case letters, digits and hyphens, a letter first."""
    name = re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")
    return (name if name[:1].isalpha() else f"run-{name}")[:LONGEST_NAME].strip("-")


def to_ray(training: Training, environment: Mapping[str, str]) -> Submission:
    """A job on a Ray cluster that is running, whose nodes see this folder under the same path."""
    variables = json.dumps({"env_vars": dict(training.variables)})
    run = ["env", f"--chdir={Path.cwd()}", "bash", str(RECIPE / "run_rl.sh"), *training.words]
    keys = "Keys: the job reads them from the environment of `ray start --head`; Ray would log those of the job itself."
    return Submission(["ray", "job", "submit", "--no-wait", "--runtime-env-json", variables, "--", *run], keys)


def to_slurm(training: Training, environment: Mapping[str, str]) -> Submission:
    """An allocation of nodes. sbatch passes the environment on, and reads its options from SBATCH_PARTITION and so on.

    Raises:
        BadSettings: JUDGE_GPUS is not a number.
    """
    nodes = [f"--job-name={training.name}", f"--nodes={training.nodes}"]
    nodes += [f"--gpus-per-node={training.gpus}"] if training.on_gpus else []
    if environment.get("JUDGE_MODEL_PATH"):
        gpus = environment.get("JUDGE_GPUS") or "8"
        if not (gpus.isdecimal() and int(gpus)):
            raise BadSettings(f"JUDGE_GPUS={gpus}: use a whole number, 1 or more.")
        # The options in the file are those of the first component alone.
        nodes += [":", "--nodes=1", f"--gpus-per-node={gpus}", "--ntasks-per-node=1", "--exclusive", "--mem=0"]
    keys = " and ".join(training.keys) or "none"
    keys = f"Keys: sbatch passes {keys} on with the environment, not on its command line."
    script = [str(RECIPE / "slurm/ditto.sbatch"), str(ROOT), training.ray_words, *training.words]
    return Submission(["sbatch", *nodes, *script], keys)


def to_skypilot(training: Training, environment: Mapping[str, str]) -> Submission:
    """A managed job: SkyPilot rents machines, and starts it again on others if these are taken away.

    Raises:
        BadSettings: VOLUME is not set.
    """
    what = "the SkyPilot volume (`sky volumes ls`) that holds data/ and gets outputs/, on all nodes"
    document = _filled(
        "skypilot/ditto.yaml",
        NAME=plain_name(training.name),
        NODES=training.nodes,
        ROOT=str(ROOT),
        ACCELERATORS=f"{environment.get('ACCELERATOR') or 'H100'}:{training.gpus}",
        VOLUME=_setting("VOLUME", environment, what),
        VARIABLES={**training.portable_variables(), "RAY_WORDS": training.ray_words},
        TRAINING_WORDS=shlex.join(training.words),
    )
    secrets = [word for name in training.keys for word in ("--secret", name)]
    names = " and ".join(training.keys) or "none"
    keys = f"Keys: sky reads {names} from the environment and keeps them as secrets of the job."
    return Submission(["sky", "jobs", "launch", "--yes", "--detach-run", *secrets, DOCUMENT], keys, document)


def to_kuberay(training: Training, environment: Mapping[str, str]) -> Submission:
    """A RayJob of KubeRay: the head pod trains too, so there is a worker pod fewer than nodes.

    The job's driver runs in the head pod, reads the keys and gives those of the judges to the workers in memory.

    Raises:
        BadSettings: IMAGE or VOLUME is not set.
    """
    variables, secret = training.portable_variables(), environment.get("SECRET") or "ditto-keys"

    def pod(variables: Iterable[tuple[str, str]], keys: Iterable[str]) -> list[dict[str, Any]]:
        plain: list[dict[str, Any]] = [{"name": name, "value": text} for name, text in variables]
        # Without a judge's key the pod does not start.
        optional = {name: {"optional": True} if name in OTHER_KEYS else {} for name in keys}
        return plain + [
            {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": name, **more}}}
            for name, more in optional.items()
        ]

    launcher = "/opt/ditto/recipe/ditto/run_rl.sh"  # docker/Dockerfile
    everywhere = [name for name in training.keys if name in EVERYWHERE]
    document = _filled(
        "kuberay/rayjob.yaml",
        NAME=f"{plain_name(training.name)}-",
        COMMAND=shlex.join(["env", "--chdir=/work", "bash", launcher, *training.words]),
        CPUS=str(training.cpus),
        GPUS=training.gpus,
        WORKERS=training.nodes - 1,
        IMAGE=_setting("IMAGE", environment, "the image of docker/Dockerfile"),
        VOLUME=_setting("VOLUME", environment, "the PersistentVolumeClaim with data/"),
        HEAD_VARIABLES=pod(variables.items(), training.keys),
        WORKER_VARIABLES=pod(((name, text) for name, text in variables.items() if name in EVERYWHERE), everywhere),
    )
    keys = f"Keys: the head pod reads {' and '.join(training.keys) or 'none'} from the Kubernetes secret {secret}"
    keys += f", the worker pods {everywhere[0]}." if everywhere else "."
    return Submission(["kubectl", "create", "-f", DOCUMENT], keys, document)


BACKENDS: Mapping[str, Callable[[Training, Mapping[str, str]], Submission]] = {
    "ray": to_ray,
    "slurm": to_slurm,
    "skypilot": to_skypilot,
    "kuberay": to_kuberay,
}
# Variable -> the backends that read it.
READ_BY = {
    **{name: ("slurm",) for name in ("JUDGE_MODEL_PATH", "JUDGE_GPUS")},
    "VOLUME": ("skypilot", "kuberay"),
    "ACCELERATOR": ("skypilot",),
    **{name: ("kuberay",) for name in ("IMAGE", "SECRET")},
}


def checked(
    task: str, overrides: Sequence[str], environment: Mapping[str, str], asks_judges: bool = True
) -> tuple[Training, str]:
    """Check a training as a dry run of recipe/ditto/run_rl.sh does. Returns it, and the plan for people.

    Args:
        environment: the process's own, as it was at the start.
        asks_judges: also send each judge a request.

    Raises:
        SoulError: a subclass that names the mistake.
    """
    recipe = ["--config-dir", str(RECIPE / "config"), "--config-name", "ditto"]
    config = load_config([*recipe, "--task", task, *overrides, "++dry_run=true"])
    config.run.preflight = config.run.preflight and asks_judges
    plan = check(config)
    return Training.from_config(task, overrides, config, environment), plan


def submit(backend: str, task: str, overrides: Sequence[str], dry_run: bool) -> int:
    """Check the training, then print or send what the backend makes of it. Returns the exit code.

    Raises:
        SoulError: the command or its input is wrong; nothing was submitted.
    """
    for name, readers in READ_BY.items():
        if os.environ.get(name) and backend not in readers:
            raise BadSettings(f"{name} belongs to {' and '.join(readers)}; {backend} does not read it. Unset it.")
    judge = os.environ.get("JUDGE_MODEL_PATH")
    if os.environ.get("JUDGE_GPUS") and not judge:
        raise BadSettings(
            "JUDGE_GPUS is the size of the judge of JUDGE_MODEL_PATH, which is not set. Set it, or unset JUDGE_GPUS."
        )
    if judge:
        os.environ["JUDGE_MODEL_NAME"] = judge
    own = ("judge.api_key_env=none",) if judge else ()
    environment = dict(os.environ)
    # The judge of the job does not run yet: the job asks it when it starts.
    training, plan = checked(task, [*own, *overrides], environment, asks_judges=not judge)
    submission = BACKENDS[backend](training, environment)
    print(plan)
    doing = "Would submit" if dry_run else "Submitting"
    print(f"{doing} to {backend}, for {training.size}:\n\n{submission.shown()}", flush=True)
    return 0 if dry_run or submission.send() == 0 else FAILED


@reports_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = Parser(prog="python -m recipe.ditto.submit", description=__doc__)
    parser.add_argument("backend", choices=list(BACKENDS), help="where to")
    parser.add_argument("task", metavar="TASK", help="a task, several with commas, or paper")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="Hydra overrides of the training")
    parser.add_argument("--dry-run", action="store_true", help="print what would be submitted (or DRY_RUN=1)")
    given = parser.parse_intermixed_args(arguments)
    dry_run = given.dry_run or says_yes("DRY_RUN", os.environ)
    return submit(given.backend, given.task, given.overrides, dry_run)


if __name__ == "__main__":
    sys.exit(main())
