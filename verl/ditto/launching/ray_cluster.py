"""Connect the driver to Ray: to a cluster that runs already, or to one of the run's own.

verl's `run_ppo` would do it, but on a running cluster it passes `num_cpus`, which Ray refuses there, expects workers to
inherit the driver's environment, and waits for ever for devices that are not there. It leaves alone a Ray that is
connected.
"""

from __future__ import annotations

import json
import os
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import ray
from omegaconf import DictConfig, OmegaConf
from ray._private.services import canonicalize_bootstrap_address
from ray.exceptions import RayError
from verl.single_controller.ray.base import ResourcePoolManager
from verl.trainer.constants_ppo import PPO_RAY_RUNTIME_ENV, get_ppo_ray_runtime_env

from ditto.judging import limits as judge_limits
from ditto.run.stop_signals import kept_from_children
from soul.cli import logs
from soul.errors import SoulError
from soul.files import disk_space
from soul.judge import GatewaySettings

# Settings of ray.init that describe a cluster to start.
_OF_A_NEW_CLUSTER = (
    *("num_cpus", "num_gpus", "resources", "labels", "object_store_memory"),
    *("include_dashboard", "dashboard_host", "dashboard_port", "_system_config", "_node_name"),
)
# Variables that workers get with the driver's values. Ray writes them into its logs: name none that holds a secret.
_FORWARDED = (
    *("PYTHONPATH", "VERL_PLATFORM", "VERL_ENGINE_DEVICE", "VERL_USE_EXTERNAL_PLUGINS", "VERL_LOGGING_LEVEL"),
    *("OMP_NUM_THREADS", "TORCH_COMPILE_DISABLE", "VLLM_CPU_OMP_THREADS_BIND", "PYTORCH_CUDA_ALLOC_CONF"),
    *("HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "LOGGING_LEVEL", "TQ_LOGGING_LEVEL"),
    logs.VARIABLE,
    *("WANDB_DIR", "WANDB_MODE", "WANDB_PROJECT", "WANDB_ENTITY", "WANDB_RUN_ID", "WANDB_RESUME", "TENSORBOARD_DIR"),
    *PPO_RAY_RUNTIME_ENV["env_vars"],  # verl leaves out what the driver has set, for workers to inherit
)
_PATHS = ("HF_HOME", "HF_HUB_CACHE", "WANDB_DIR", "TENSORBOARD_DIR")
TEMP_BYTES = 100e6  # of logs and sockets that Ray's temporary folder has to take; objects are in shared memory
ENDS_S = 10.0  # what a killed process may take to end
_ANSWER_S, _FREE_S = 10.0, 30.0  # what a cluster has to answer, and a run that just ended to give its devices back


class BadCluster(SoulError):
    """The Ray cluster does not answer, or is too small for the run."""


def connect(config: DictConfig) -> None:
    """Start Ray or join the cluster that runs, and check that the run fits into it.

    Raises:
        BadCluster: with the remedy.
        OutOfSpace: Ray's temporary folder is full.
    """
    settings: dict[str, Any] = OmegaConf.to_container(config.ray_kwargs.ray_init, resolve=True)
    runtime_env = _runtime_env(config, settings.pop("runtime_env", None) or {})
    try:
        address = canonicalize_bootstrap_address(settings.get("address"), settings.get("_temp_dir"))
        if address is not None:
            _reach(address)
            settings = {key: value for key, value in settings.items() if key not in _OF_A_NEW_CLUSTER}
        else:  # on a full disk Ray would wait half a minute for a file, and name neither
            temporary = settings.get("_temp_dir") or os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
            disk_space.require(Path(temporary), TEMP_BYTES)
        with kept_from_children():
            ray.init(**settings, runtime_env=runtime_env)
    except (OSError, ValueError, RuntimeError, RayError) as error:  # what ray.init and a socket raise
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise BadCluster(
            f"Ray cannot be used: {_one_line(error)} {'' if cause is error else _one_line(cause)} The address of a "
            "cluster that runs comes from RAY_ADDRESS, from ray_kwargs.ray_init.address, or from the last `ray start` "
            "on this machine; RAY_ADDRESS=local gives the run a cluster of its own."
        ) from error
    try:
        _check_size(config)
    except BadCluster:
        ray.shutdown()
        raise


def disconnect() -> None:
    """Leave Ray. Of a cluster that the run started, every process has ended afterwards."""
    ours = psutil.Process().children(recursive=True)
    ray.shutdown()
    for process in ours:  # what Ray left: a rollout engine notices late that the process above it has ended
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(ours, timeout=ENDS_S)


def start_limits(settings: GatewaySettings, spent_usd: float) -> Any:
    """The first actor of the run (`judge_limits.start`).

    Raises:
        BadCluster: the workers cannot import our packages.
    """
    try:
        return judge_limits.start(settings, spent_usd)
    except RayError as error:
        ray.shutdown()
        raise BadCluster(
            f"Ray's workers cannot run this program: {str(error).strip().splitlines()[-1]} Every node must be started "
            "from the environment that the run is started from (its own bin/ray start ...)."
        ) from error


def _reach(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
    except OSError as error:
        raise ConnectionError(f"there is no Ray cluster at {address} ({error}).") from None


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:600]


def _runtime_env(config: DictConfig, asked: Mapping[str, Any]) -> dict[str, Any]:
    """verl's runtime environment, the driver's variables, and what the config asks for."""
    rollout = config.actor_rollout_ref.rollout
    if rollout.full_determinism:  # as verl's run_ppo does it, before it connects
        os.environ |= {"VERL_FULL_DETERMINISM": "1", "VLLM_BATCH_INVARIANT": "1", "PYTHONHASHSEED": str(rollout.seed)}
    if "rl_insight" in (config.trainer.logger or ()):
        os.environ["VERL_RL_INSIGHT_ENABLE"] = "1"
    ours = {"env_vars": forwarded(os.environ)}
    if config.transfer_queue.enable:
        ours["env_vars"]["TRANSFER_QUEUE_ENABLE"] = "1"
    merged = OmegaConf.merge(get_ppo_ray_runtime_env(config), ours, asked)
    return OmegaConf.to_container(merged)


def forwarded(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that workers get, with absolute paths."""
    # Ray refuses a variable that `ray job submit` gives already.
    job = json.loads(environment.get("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")).get("runtime_env", {}).get("env_vars", {})
    found = {name: environment[name] for name in _FORWARDED if name in environment and name not in job}
    found |= {name: os.path.abspath(found[name]) for name in _PATHS if found.get(name)}
    if "PYTHONPATH" in found:
        parts = [part for part in found["PYTHONPATH"].split(os.pathsep) if part]
        found["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, parts))
    return found


def _check_size(config: DictConfig) -> None:
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    check_nodes(config, nodes)
    devices, cpus = needed(config)
    deadline = time.monotonic() + _FREE_S
    while True:
        free = ray.available_resources()
        if free.get("GPU", 0) >= devices and free.get("CPU", 0) >= cpus:
            return
        if time.monotonic() > deadline:
            raise BadCluster(
                f"The run needs {devices} GPUs and {cpus} CPUs of Ray's, and of the cluster's only "
                f"{free.get('GPU', 0):g} and {free.get('CPU', 0):g} are free: other jobs hold the rest (`ray status`). "
                "Wait for them, or end them."
            )
        time.sleep(1.0)


def needed(config: DictConfig) -> tuple[int, int]:
    """Devices and CPUs that the run holds, as Ray counts them."""
    devices = config.trainer.nnodes * config.trainer.n_gpus_per_node
    queue = 1 + config.transfer_queue.backend.SimpleStorage.num_data_storage_units
    # An actor that holds no CPU still takes one while it starts.
    return devices, devices * ResourcePoolManager.max_colocate_count + queue + 1


def check_nodes(config: DictConfig, nodes: Sequence[Mapping[str, float]]) -> None:
    """Check that the cluster is large enough, whatever else runs on it.

    Args:
        nodes: the resources of every node, by Ray's names.

    Raises:
        BadCluster: verl would wait for ever.
    """
    per_node, wanted = config.trainer.n_gpus_per_node, config.trainer.nnodes
    bundle = per_node * ResourcePoolManager.max_colocate_count
    # verl packs the devices of a node into one placement group.
    places = sum(int(min(node.get("GPU", 0) // per_node, node.get("CPU", 0) // bundle)) for node in nodes)
    _, cpus = needed(config)
    if places >= wanted and sum(node.get("CPU", 0) for node in nodes) >= cpus:
        return
    sizes = ", ".join(f"{node.get('GPU', 0):g} GPUs and {node.get('CPU', 0):g} CPUs" for node in nodes)
    raise BadCluster(
        f"The Ray cluster is too small: trainer.nnodes={wanted} and trainer.n_gpus_per_node={per_node} take {wanted} "
        f"node(s) with {per_node} GPUs and {bundle} CPUs each, and {cpus} CPUs in all; it has {len(nodes)} node(s) "
        f"with {sizes}. Lower trainer.nnodes or trainer.n_gpus_per_node, or give Ray more CPUs, which it only counts: "
        f"ray_kwargs.ray_init.num_cpus={cpus} where the run starts Ray, `ray start --num-cpus=...` where you do."
    )
