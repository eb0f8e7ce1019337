"""Connect the driver to Ray: join a running cluster, or start one for this run.

verl's `run_ppo` does not do this well. On a running cluster it passes `num_cpus`, which Ray refuses there; it expects
workers to inherit the driver's environment; and it waits forever for devices that do not exist. It skips its own
`ray.init` if Ray is already connected, so we connect first.
"""

import json
import logging
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import ray
from omegaconf import DictConfig, OmegaConf
from ray.exceptions import RayError
from verl.single_controller.ray.base import ResourcePoolManager
from verl.trainer.constants_ppo import PPO_RAY_RUNTIME_ENV, get_ppo_ray_runtime_env

from ditto.judging import actor as judge_actor
from ditto.launching import fork_server
from ditto.launching.placement import on_node
from ditto.launching.variables import cpu_variables
from ditto.run import ray_private
from ditto.run.stop_signals import kill, processes_below, shield_children
from ditto.verl_hooks import compat
from soul.cli import logs
from soul.errors import SoulError, one_line
from soul.judge import GatewaySettings

logger = logging.getLogger(__name__)

# Settings of ray.init that are valid only when it starts a cluster.
_NEW_CLUSTER_ONLY = (
    *("num_cpus", "num_gpus", "resources", "labels", "object_store_memory"),
    *("include_dashboard", "dashboard_host", "dashboard_port", "_system_config", "_node_name"),
)
# Variables that workers get with the driver's values. Ray writes them to its logs: add none that holds a secret.
_FORWARDED = (
    *("PYTHONPATH", "VERL_PLATFORM", "VERL_ENGINE_DEVICE", "VERL_USE_EXTERNAL_PLUGINS", "VERL_LOGGING_LEVEL"),
    *("OMP_NUM_THREADS", "GOMP_SPINCOUNT", "VLLM_CPU_OMP_THREADS_BIND"),
    *("TORCH_COMPILE_DISABLE", "PYTORCH_CUDA_ALLOC_CONF"),
    *("HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"),
    *("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "LOGGING_LEVEL", "TQ_LOGGING_LEVEL"),
    logs.VARIABLE,
    *("WANDB_DIR", "WANDB_MODE", "WANDB_PROJECT", "WANDB_ENTITY", "WANDB_RUN_ID", "WANDB_RESUME", "TENSORBOARD_DIR"),
    *PPO_RAY_RUNTIME_ENV["env_vars"],  # verl omits those that the driver has set
)
_PATHS = ("HF_HOME", "HF_HUB_CACHE", "WANDB_DIR", "TENSORBOARD_DIR")
_CONNECT_S = 10.0  # how long a cluster may take to accept a connection
_CPUS_OF_A_SAMPLER = 2  # per device of a rollout server with devices of its own (verl's RolloutReplica)
_FREE_S = 30.0  # how long a run that has just ended may take to release its devices


class BadCluster(SoulError):
    """The Ray cluster does not answer, or is too small for the run."""


def connect(config: DictConfig) -> None:
    """Join the running cluster or start one, and check that the run fits.

    Raises:
        BadCluster: Ray cannot be reached or started, the cluster is too small, or a node does not see the run's folder.
    """
    settings: dict[str, Any] = OmegaConf.to_container(config.ray_kwargs.ray_init, resolve=True)
    runtime_env = _runtime_env(config, settings.pop("runtime_env", None) or {})
    try:
        address = ray_private.cluster_address(settings.get("address"), settings.get("_temp_dir"))
        if address is not None:
            check_reachable(address)
            settings = {key: value for key, value in settings.items() if key not in _NEW_CLUSTER_ONLY}
            logger.info("Joining the Ray cluster at %s", address)
        elif config.trainer.device == "cpu" and runtime_env.get("py_executable") is None:
            runtime_env["py_executable"] = fork_server.command()
        with shield_children():
            ray.init(**settings, runtime_env=runtime_env)
    except Exception as error:  # noqa: BLE001 - Ray raises Exception itself where its processes do not start in time
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise BadCluster(
            f"Cannot connect to Ray: {one_line(error, 600)} {'' if cause is error else one_line(cause, 600)} "
            f"{_remedy(str(cause))}"
        ) from error
    try:
        _check_size(config)
        _check_folder(config)
    except BadCluster:
        ray.shutdown()
        raise


def _remedy(cause: str) -> str:
    """What to do about an error of `ray.init`."""
    if "AF_UNIX path length" in cause:
        return "Ray's sockets are below RAY_TMPDIR or TMPDIR: set RAY_TMPDIR to a short path, such as /tmp."
    if "timed out during startup" in cause:
        return (
            "This machine was too busy for Ray's processes, or has no room for them (memory, `ulimit -u`). Their logs "
            "are in RAY_TMPDIR (/tmp)/ray/session_latest/logs. Run the same command again."
        )
    return (
        "The address of a running cluster comes from RAY_ADDRESS, from ray_kwargs.ray_init.address, or from the last "
        "`ray start` on this machine. Set RAY_ADDRESS=local to start a separate cluster for this run."
    )


def disconnect() -> None:
    """Disconnect from Ray. If this run started the cluster, all of its processes are gone afterwards."""
    children = processes_below()
    ray.shutdown()
    kill(children)


def start_judge(settings: GatewaySettings, spent_usd: float, cache_dir: Path) -> Any:
    """Start the run's first actor, which asks the judges. Raises BadCluster if workers cannot import our packages."""
    try:
        return judge_actor.start(settings, spent_usd, cache_dir)
    except RayError as error:
        ray.shutdown()
        raise BadCluster(
            f"Ray's workers cannot run this program: {str(error).strip().splitlines()[-1]} Start Ray on every node "
            "from the same environment as this run (that environment's bin/ray start ...)."
        ) from error


def check_reachable(address: str) -> None:
    """Connect to the address once. Without this check, `ray.init` retries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except OSError as error:
        raise ConnectionError(f"there is no Ray cluster at {address} ({error}).") from None


def _runtime_env(config: DictConfig, configured: Mapping[str, Any]) -> dict[str, Any]:
    """Merge verl's runtime environment, the driver's variables and the config's; later ones win."""
    driver = {"env_vars": forwarded(os.environ) | {compat.VARIABLE: uuid4().hex[:12]}}
    if config.trainer.device == "cpu":  # Ray would give each worker one thread
        driver["env_vars"] = cpu_variables(config) | driver["env_vars"]
    if config.transfer_queue.enable:
        driver["env_vars"]["TRANSFER_QUEUE_ENABLE"] = "1"
    merged = OmegaConf.merge(get_ppo_ray_runtime_env(config), driver, configured)
    return OmegaConf.to_container(merged)


def forwarded(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that workers get from the driver; paths become absolute."""
    # Ray refuses variables that `ray job submit` has already set.
    job = json.loads(environment.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")).get("runtime_env", {}).get("env_vars", {})
    variables = {name: environment[name] for name in _FORWARDED if name in environment and name not in job}
    variables |= {name: os.path.abspath(variables[name]) for name in _PATHS if variables.get(name)}
    if "PYTHONPATH" in variables:
        parts = [part for part in variables["PYTHONPATH"].split(os.pathsep) if part]
        variables["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, parts))
    return variables


def _check_size(config: DictConfig) -> None:
    """Check that the cluster is large enough, and wait until a run that has just ended has released its devices."""
    check_nodes(config, [node["Resources"] for node in ray.nodes() if node["Alive"]])
    devices, cpus = needed(config)
    deadline = time.monotonic() + _FREE_S
    while True:
        free = ray.available_resources()
        if free.get("GPU", 0) >= devices and free.get("CPU", 0) >= cpus:
            return
        if time.monotonic() > deadline:
            raise BadCluster(
                f"The run needs {devices} GPUs and {cpus} CPUs of the Ray cluster, but only {free.get('GPU', 0):g} "
                f"GPUs and {free.get('CPU', 0):g} CPUs are free: other jobs hold the rest (see `ray status`). Wait for "
                "those jobs, or stop them."
            )
        time.sleep(1.0)


def _check_folder(config: DictConfig) -> None:
    """Check that every node that may train sees the folder of checkpoints: its ranks write their shards there."""
    here, least = ray.get_runtime_context().get_node_id(), config.trainer.n_gpus_per_node
    others = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] != here]
    nodes = [node for node in others if node["Resources"].get("GPU", 0) >= least]
    if not nodes:
        return
    root = Path(config.trainer.default_local_dir).absolute()
    mark = root / f".seen-{uuid4().hex}"
    root.mkdir(parents=True, exist_ok=True)
    mark.touch()
    try:
        sees = ray.remote(os.path.exists)  # a function of Python: the worker that calls it imports nothing
        answers = ray.get([sees.options(**on_node(node["NodeID"])).remote(str(mark)) for node in nodes])
    finally:
        mark.unlink()
    if blind := [node["NodeManagerHostname"] for node, answer in zip(nodes, answers, strict=True) if not answer]:
        raise BadCluster(
            f"trainer.default_local_dir={root}: {', '.join(blind)} of the Ray cluster cannot see this folder, so the "
            "checkpoints would lack what is trained there. Put OUTPUT_DIR on a disk that all nodes share."
        )


def needed(config: DictConfig) -> tuple[int, int]:
    """Number of devices and CPUs that the run reserves, in Ray's accounting."""
    devices = config.trainer.nnodes * config.trainer.n_gpus_per_node
    rollout = config.actor_rollout_ref.rollout
    samples = rollout.nnodes * rollout.n_gpus_per_node  # 0 unless rollouts have devices of their own
    queue = 1 + config.transfer_queue.backend.SimpleStorage.num_data_storage_units
    cpus = devices * ResourcePoolManager.max_colocate_count + samples * _CPUS_OF_A_SAMPLER + queue
    return devices + samples, cpus + 1  # an actor with num_cpus=0 still takes a CPU while it starts


def needed_on_a_node(config: DictConfig) -> int:
    """Number of CPUs, in Ray's accounting, that a node which trains must have: verl reserves its devices as a whole."""
    return int(config.trainer.n_gpus_per_node * ResourcePoolManager.max_colocate_count)


def check_nodes(config: DictConfig, nodes: Sequence[Mapping[str, float]]) -> None:
    """Check that the whole cluster is large enough, regardless of what else runs on it.

    Args:
        nodes: each node's resources, by Ray's names.
    """
    per_node, wanted = config.trainer.n_gpus_per_node, config.trainer.nnodes
    bundle = needed_on_a_node(config)
    # verl puts all devices of a node into one placement group, so each node must fit a whole bundle.
    places = sum(int(min(node.get("GPU", 0) // per_node, node.get("CPU", 0) // bundle)) for node in nodes)
    devices, cpus = needed(config)
    enough = all(sum(node.get(kind, 0) for node in nodes) >= n for kind, n in (("GPU", devices), ("CPU", cpus)))
    if places >= wanted and enough:
        return
    sizes = ", ".join(f"{node.get('GPU', 0):g} GPUs and {node.get('CPU', 0):g} CPUs" for node in nodes)
    raise BadCluster(
        f"The Ray cluster is too small: trainer.nnodes={wanted} and trainer.n_gpus_per_node={per_node} need {wanted} "
        f"node(s) with {per_node} GPUs and {bundle} CPUs each, and {devices} GPUs and {cpus} CPUs in total (the "
        f"rollout's included); it has {len(nodes)} node(s) with {sizes}. Lower trainer.nnodes or "
        "trainer.n_gpus_per_node, or raise Ray's CPU count (Ray counts CPUs but does not check that they exist): "
        f"ray_kwargs.ray_init.num_cpus={cpus} if this run starts Ray, "
        "`ray start --num-cpus=...` if you start it yourself."
    )
