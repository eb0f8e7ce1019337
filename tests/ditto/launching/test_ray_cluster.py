"""A run that does not fit into its Ray cluster ends with a paragraph; verl would wait for ever."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from ditto.launching import fork_server, ray_cluster
from ditto.launching.variables import cpu_variables
from soul.host_resources import physical_cores

ROOT = str(Path(__file__).resolve().parents[3])


def config(sampling_nodes: int = 0, **trainer: Any) -> DictConfig:
    """What `ray_cluster` reads of the config, for one node of eight GPUs."""
    return OmegaConf.create(
        {
            "trainer": {
                "device": "cuda",
                "nnodes": 1,
                "n_gpus_per_node": 8,
                "logger": ["console"],
                "v1": {"trainer_mode": "ditto_sync"},
            }
            | trainer,
            "actor_rollout_ref": {"rollout": {"nnodes": sampling_nodes, "n_gpus_per_node": 8}},
            "transfer_queue": {"enable": False, "backend": {"SimpleStorage": {"num_data_storage_units": 8}}},
            "ray_kwargs": {"ray_init": {"num_cpus": None, "runtime_env": {"py_executable": None}}},
        }
    )


Case = tuple[bool, dict[str, int], list[dict[str, float]]]
CASES: dict[str, Case] = {  # is it large enough, settings of the run, resources of the nodes
    "a node of eight": (True, {}, [{"GPU": 8, "CPU": 64}]),
    "two nodes of eight, and one without GPUs": (True, {"nnodes": 2}, [{"GPU": 8, "CPU": 27}] * 2 + [{"CPU": 4}]),
    "two groups on one node": (True, {"nnodes": 2, "n_gpus_per_node": 4}, [{"GPU": 8, "CPU": 34}]),
    "a node that trains and one that samples": (True, {"sampling_nodes": 1}, [{"GPU": 8, "CPU": 25}] * 2),
    "no GPU": (False, {}, [{"CPU": 64}]),
    "GPUs on two nodes": (False, {}, [{"GPU": 4, "CPU": 64}] * 2),
    "one node of two": (False, {"nnodes": 2}, [{"GPU": 8, "CPU": 64}]),
    "no CPU beside the devices": (False, {}, [{"GPU": 8, "CPU": 33}]),
    "no GPU left to sample": (False, {"sampling_nodes": 1}, [{"GPU": 8, "CPU": 64}]),
    "few CPUs to sample": (False, {"sampling_nodes": 1}, [{"GPU": 8, "CPU": 24}, {"GPU": 8, "CPU": 25}]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_cluster_that_is_too_small_is_named(case: str) -> None:
    fits, trainer, nodes = CASES[case]
    said = r"too small: trainer.nnodes=\d and trainer.n_gpus_per_node=8"
    with nullcontext() if fits else pytest.raises(ray_cluster.BadCluster, match=said):
        ray_cluster.check_nodes(config(**trainer), nodes)


def test_workers_get_the_launchers_switches_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    environment = {
        "VERL_PLATFORM": "cpu",
        "HF_HOME": "outputs/hf_home",
        "HF_ENDPOINT": "https://hub.invalid",
        "NCCL_SOCKET_IFNAME": "eth1",
        "GLOO_SOCKET_IFNAME": "eth1",
        "PYTHONPATH": f"verl{os.pathsep}/mine",
        "TOKENIZERS_PARALLELISM": "false",  # one of those that verl sets
        "OMP_NUM_THREADS": "1",
        "OPENAI_API_KEY": "sk-secret",
        "OPENAI_BASE_URL": "http://judge.invalid/v1",
        "HF_TOKEN": "hf-secret",
        "WANDB_API_KEY": "secret",
        "RAY_JOB_CONFIG_JSON_ENV_VAR": '{"runtime_env": {"env_vars": {"OMP_NUM_THREADS": "1"}}}',
    }
    assert ray_cluster.forwarded(environment) == {
        "VERL_PLATFORM": "cpu",
        "HF_HOME": f"{ROOT}/outputs/hf_home",
        "HF_ENDPOINT": "https://hub.invalid",
        "NCCL_SOCKET_IFNAME": "eth1",
        "GLOO_SOCKET_IFNAME": "eth1",
        "PYTHONPATH": f"{ROOT}/verl{os.pathsep}/mine",
        "TOKENIZERS_PARALLELISM": "false",
    }


class Connected(BaseException):
    """Ends `connect` where Ray would start."""


@pytest.mark.parametrize(
    ("device", "address", "configured", "forks"),
    [
        ("cpu", "local", None, True),
        ("cpu", "local", sys.executable, False),
        ("cuda", "local", None, False),
        ("cpu", "127.0.0.1:6379", None, False),  # runs already
    ],
)
def test_workers_are_forked_on_a_cpu_where_the_run_starts_ray(
    device: str, address: str, configured: str | None, forks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = config()
    made.trainer.n_gpus_per_node = 1
    made.trainer.device, made.ray_kwargs.ray_init.runtime_env.py_executable = device, configured
    for name in ("OMP_NUM_THREADS", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    given: dict[str, Any] = {}

    def init(**settings: Any) -> None:
        given.update(settings["runtime_env"])
        raise Connected

    monkeypatch.setattr(ray_cluster.ray, "init", init)
    monkeypatch.setattr(ray_cluster, "check_reachable", lambda _address: None)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(Connected):
        ray_cluster.connect(made)
    assert given["py_executable"] == (fork_server.command() if forks else configured)
    threads = str(physical_cores()) if device == "cpu" else None  # all of them: the run has one device
    assert given["env_vars"].get("OMP_NUM_THREADS") == threads
    assert given["env_vars"].get("GOMP_SPINCOUNT") == ("20000" if device == "cpu" else None)


@pytest.mark.parametrize(
    ("trainer", "sampling_nodes", "threads"),
    [
        ({}, 0, 8),  # trainer and engine take turns
        ({"v1": {"trainer_mode": "ditto_colocate_async"}}, 0, 4),  # they overlap
        ({}, 1, 4),  # each on devices of its own
        ({"n_gpus_per_node": 4}, 0, 2),
        ({"n_gpus_per_node": 16}, 0, 1),
    ],
)
def test_processes_that_compute_at_the_same_time_share_the_cores(
    trainer: dict[str, Any], sampling_nodes: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OMP_NUM_THREADS", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("ditto.launching.variables.physical_cores", lambda: 8)
    made = config(sampling_nodes, **{"n_gpus_per_node": 1, **trainer})
    made.actor_rollout_ref.rollout.n_gpus_per_node = 1
    assert cpu_variables(made) == {"OMP_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": "20000"}
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert cpu_variables(made)["OMP_NUM_THREADS"] == "3"


def test_a_node_that_could_train_and_does_not_see_the_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus, cpus = {"GPU": 8, "CPU": 64}, {"CPU": 64}
    driver, shared, own_disk, without_gpus = (f"{number:056x}" for number in range(1, 5))  # as Ray writes ids
    blind = {own_disk, without_gpus}
    nodes = [
        {"NodeID": name, "NodeManagerHostname": f"host-{name[-1]}", "Alive": True, "Resources": resources}
        for name, resources in ((driver, gpus), (shared, gpus), (own_disk, gpus), (without_gpus, cpus))
    ]
    asked: list[str] = []

    class Task:
        def __init__(self, function: Any) -> None:
            self.function = function

        def options(self, scheduling_strategy: Any, num_cpus: int) -> Task:
            asked.append(scheduling_strategy.node_id)
            return self

        def remote(self, path: str) -> bool:
            return asked[-1] not in blind and bool(self.function(path))

    monkeypatch.setattr(ray_cluster.ray, "nodes", lambda: nodes)
    monkeypatch.setattr(ray_cluster.ray, "remote", Task)
    monkeypatch.setattr(ray_cluster.ray, "get", lambda answers: answers)
    context = type("Context", (), {"get_node_id": lambda self: driver})()
    monkeypatch.setattr(ray_cluster.ray, "get_runtime_context", lambda: context)
    run = OmegaConf.merge(config(nnodes=2), {"trainer": {"default_local_dir": str(tmp_path / "run")}})
    with pytest.raises(ray_cluster.BadCluster, match=r"/run: host-3 of the Ray cluster cannot see"):
        ray_cluster._check_folder(run)
    assert asked == [shared, own_disk] and not list((tmp_path / "run").iterdir())
    blind.clear()
    ray_cluster._check_folder(run)
