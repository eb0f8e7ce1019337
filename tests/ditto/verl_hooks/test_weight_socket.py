"""Two runs on one machine do not share a socket, and both ends of a run's socket agree on its name."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
from verl.workers.rollout.vllm_rollout import ServerAdapter
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from ditto.verl_hooks import adapter_server, compat
from ditto.verl_hooks.adapter_server import AdapterServer
from ditto.verl_hooks.compat import patch_vllm

JOB = "01000000"  # of the first job of every Ray cluster


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sender's and receiver's name of the socket of a run with this number."""

    def connect(self: Any) -> None:
        self.zmq_handle = f"ipc:///tmp/rl-colocate-zmq-{JOB}-replica-0-rank-0.sock"  # as verl names it

    context = SimpleNamespace(get_job_id=lambda: JOB)
    monkeypatch.setattr(ServerAdapter, "__init__", connect)
    monkeypatch.setattr(adapter_server, "ray", SimpleNamespace(get_runtime_context=lambda: context))
    monkeypatch.setenv("VERL_REPLICA_RANK", "0")

    def names(run: str | None) -> tuple[str, str]:
        monkeypatch.setenv("VERL_RAY_JOB_ID", JOB)
        monkeypatch.delenv(compat.VARIABLE, raising=False)
        if run is not None:
            monkeypatch.setenv(compat.VARIABLE, run)
        for _ in range(3):  # the server's process, the engine's and the worker's, each with the one's environment
            patch_vllm()
        worker = SimpleNamespace(local_rank=0, model_runner=SimpleNamespace(vllm_config=None))
        return AdapterServer().zmq_handle, vLLMColocateWorkerExtension._get_zmq_handle(worker)

    return names


def test_both_ends_agree_and_runs_differ(ends: Any) -> None:
    one, other = ends("a1"), ends("b2")
    assert one[0] == one[1] != other[0] == other[1]


def test_without_a_number_the_names_are_verls(ends: Any) -> None:
    assert ends(None) == (f"ipc:///tmp/rl-colocate-zmq-{JOB}-replica-0-rank-0.sock",) * 2
    assert os.environ["VERL_RAY_JOB_ID"] == JOB
