"""What is submitted: the training's command, the variables that it reads, its size, and the names of its keys."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from omegaconf import DictConfig

from ditto.launching.compose import load_config
from ditto.launching.ray_cluster import needed, needed_on_a_node
from ditto.preflight import check
from ditto.settings import BadConfig, Settings

ROOT = Path(__file__).resolve().parents[3]
# The variables of run_rl.sh that hold no key.
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
    *("HF_TOKEN", "WANDB_API_KEY", "SWANLAB_API_KEY", "MLFLOW_TRACKING_URI", "OPENAI_CUSTOM_HEADERS"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
)


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
        bundle, cpus = needed_on_a_node(config), needed(config)[1]
        return cls(
            task=task,
            overrides=tuple(overrides),
            name=config.trainer.experiment_name,
            variables={name: environment[name] for name in VARIABLES if environment.get(name)},
            keys=tuple(name for name in keys if environment.get(name)),
            nodes=nodes,
            gpus=max(trainer.n_gpus_per_node, rollout.n_gpus_per_node if rollout.nnodes else 0),
            cpus=max(bundle, -(-cpus // nodes)),
        )

    @property
    def on_gpus(self) -> bool:
        """Whether the devices are GPUs. On a CPU they are processes, which Ray must be told to count."""
        return self.variables.get("PLATFORM") != "cpu"

    @property
    def size(self) -> str:
        """Nodes and devices, for people."""
        device = "GPU" if self.on_gpus else "process"
        each = f"{self.gpus} {device}{'' if self.gpus == 1 else 's' if self.on_gpus else 'es'}"
        return f"1 node with {each}" if self.nodes == 1 else f"{self.nodes} nodes with {each} each"

    @property
    def ray_words(self) -> str:
        """What `ray start` has to be told on each node."""
        return f"--num-cpus={self.cpus}" + ("" if self.on_gpus else f" --num-gpus={self.gpus}")

    @property
    def words(self) -> list[str]:
        """What follows run_rl.sh."""
        return [self.task, *self.overrides]

    def elsewhere(self) -> Training:
        """The same training on machines with other disks: they have no cache of ours, and paths are relative.

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
        return replace(self, variables={name: text for name, text in self.variables.items() if name != "HF_HOME"})


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
    recipe = ["--config-dir", str(ROOT / "recipe/ditto/config"), "--config-name", "ditto"]
    config = load_config([*recipe, "--task", task, *overrides, "++dry_run=true"])
    config.run.preflight = config.run.preflight and asks_judges
    plan = check(config)
    return Training.from_config(task, overrides, config, environment), plan
