"""The adapter of each policy is served, sent and replaced under a number of its own."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import verl.workers.rollout.vllm_rollout.bucketed_weight_transfer as transfer
import verl.workers.rollout.vllm_rollout.utils as of_verl
from omegaconf import OmegaConf
from verl.workers.engine_workers import ActorRolloutRefWorker
from vllm import SamplingParams

from ditto.verl_hooks.actor_worker import ActorWorker
from ditto.verl_hooks.policy_extension import PolicyExtension
from ditto.verl_hooks.policy_server import with_adapter
from tests.ditto.two_policies import ADAPTERS, BOTH, POLICIES, adapted, engine_on, factors


def test_a_request_is_sampled_with_the_adapter_of_its_policy() -> None:
    def generate(**request: Any) -> Any:
        return request["lora_request"], request["sampling_params"].extra_args

    def sampled(**chosen: Any) -> Any:
        request = {"prompt": None, "request_id": "1", "lora_request": "verl's"}
        return with_adapter(generate, sampling_params=SamplingParams(max_tokens=1, **chosen), **request)

    lora, more = sampled(**BOTH.policies[1].sampling)
    assert (lora.lora_int_id, lora.lora_name, more) == (124, "124", {})
    assert sampled(extra_args={"ditto_adapter": 0}) == (None, {}) and sampled() == ("verl's", None)


def test_each_adapter_is_synced_under_its_own_number(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []

    async def verls(self: Any, **_: Any) -> None:
        sent.append("default")

    async def update_weights(weights: Any, **how: Any) -> None:
        sent.append((dict(weights), how["peft_config"]["ditto_adapter"], how["base_sync_done"]))

    engine = engine_on(adapted(*ADAPTERS.values()))
    worker = object.__new__(ActorWorker)
    worker.config = OmegaConf.create({"model": {"lora": {"policies": list(POLICIES)}}})
    worker.actor, worker.rollout = SimpleNamespace(engine=engine), SimpleNamespace(update_weights=update_weights)
    monkeypatch.setattr(ActorRolloutRefWorker, "update_weights", verls)
    asyncio.run(worker.update_weights(global_steps=3))
    verls_own, (weights, number, adapter_alone) = sent
    assert (verls_own, number, adapter_alone) == ("default", 124, True)
    expected = factors(engine.module, "policy_assistant")
    assert weights.keys() == expected.keys() and all(torch.equal(weights[name], expected[name]) for name in weights)


def test_a_worker_of_the_engine_replaces_the_adapter_of_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: dict[int, Any] = {}
    arriving = torch.zeros(1)

    class Worker(PolicyExtension):
        def remove_lora(self, number: int) -> None:
            loaded.pop(number, None)

        def add_lora(self, request: Any) -> None:
            number, name, tensors = request.lora_int_id, request.lora_name, request.lora_tensors
            loaded[number] = (name, tensors["a"].item(), request.peft_config)

    def receive_weights(on_bucket_received: Any) -> None:
        on_bucket_received([("a", arriving.clone())], is_last=True)

    receiver = SimpleNamespace(receive_weights=receive_weights)
    monkeypatch.setattr(transfer, "BucketedWeightReceiver", lambda **_: receiver)
    worker: Any = object.__new__(Worker)
    worker.device, worker._is_qat_model, worker._is_modelopt_qat = torch.device("cpu"), False, False
    worker._get_zmq_handle = lambda: ""
    for value, config in enumerate([{"r": 4}, {"r": 4, "ditto_adapter": 124}, {"r": 4, "ditto_adapter": 124}]):
        arriving.fill_(value)
        worker.update_weights_from_ipc(config, base_sync_done=True)
    assert loaded == {123: ("123", 0.0, {"r": 4}), 124: ("124", 2.0, {"r": 4})}
    assert of_verl.VLLM_LORA_INT_ID == 123
