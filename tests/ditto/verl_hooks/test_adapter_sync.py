"""An adapter and its config arrive through a checkpoint engine; a stream without one passes as it is."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import torch
from peft import LoraConfig
from torch import Tensor
from verl.checkpoint_engine.base import merge_weight_chunks, split_weight_chunks
from verl.workers.rollout.base import get_rollout_class
from verl.workers.rollout.vllm_rollout import ServerAdapter
from vllm.lora.peft_helper import PEFTHelper

from ditto.verl_hooks import adapter_sync
from ditto.verl_hooks.adapter_server import AdapterServer

TENSORS = {"base_model.layer.lora_A.weight": torch.randn(2, 4), "base_model.layer.lora_B.weight": torch.randn(4, 2)}


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What verl's connection is asked to load."""
    found: dict[str, Any] = {}

    async def update_weights(_self: Any, weights: Any, global_steps: int | None = None, **kwargs: Any) -> None:
        found.update(kwargs, steps=global_steps)
        found["weights"] = {name: tensor async for name, tensor in weights}

    monkeypatch.setattr(ServerAdapter, "update_weights", update_weights)
    return found


async def engine(stream: Any) -> AsyncIterator[tuple[str, Tensor]]:
    """A checkpoint engine: names and tensors, one after the other."""
    for name, tensor in stream:
        yield name, tensor.clone()


def test_an_adapter_arrives_with_the_config_that_vllm_reads(loaded: dict[str, Any]) -> None:
    config = LoraConfig(r=2, lora_alpha=6, target_modules=["layer", "other"], exclude_modules=".*tower.*").to_dict()
    stream = adapter_sync.with_config(config, TENSORS.items(), "cpu")
    server = object.__new__(AdapterServer)
    asyncio.run(server.update_weights(engine(stream), global_steps=7, wire_format="named_tensors"))
    assert loaded["steps"] == 7 and loaded["base_sync_done"] is True and loaded["wire_format"] == "named_tensors"
    assert list(loaded["weights"]) == list(TENSORS)
    assert all(torch.equal(loaded["weights"][name], tensor) for name, tensor in TENSORS.items())
    read = PEFTHelper.from_dict(loaded["peft_config"])
    assert (read.r, read.lora_alpha, read.vllm_lora_scaling_factor) == (2, 6, 3.0)
    assert set(read.target_modules) == {"layer", "other"}


@pytest.mark.parametrize("path", ["Qwen/Qwen3-8B", "Qwen/Qwen3-VL-8B-Instruct", "a" * 9])
def test_it_arrives_in_a_packed_buffer_as_verls_nccl_engine_sends_it(path: str) -> None:
    """The engine puts chunk behind chunk, and views each at its offset as numbers of its type."""
    config = LoraConfig(r=2, target_modules=["layer"], base_model_name_or_path=path).to_dict()
    size = 1 << 16

    async def received() -> AsyncIterator[tuple[Any, Tensor]]:
        buffer, offset = torch.zeros(size, dtype=torch.uint8), 0
        metas = []
        async for meta, chunk in split_weight_chunks(adapter_sync.with_config(config, TENSORS.items(), "cpu"), size):
            buffer[offset : offset + meta.chunk_size] = chunk
            metas.append((meta, offset))
            offset += meta.chunk_size
        for meta, start in metas:
            yield meta, buffer[start : start + meta.chunk_size]

    async def read() -> tuple[dict[str, Any] | None, dict[str, Tensor]]:
        arrived, rest = await adapter_sync.split(merge_weight_chunks(received(), size))
        return arrived, {name: tensor.clone() async for name, tensor in rest}

    arrived, tensors = asyncio.run(read())
    assert arrived is not None and arrived["base_model_name_or_path"] == path
    assert all(torch.equal(tensors[name], tensor) for name, tensor in TENSORS.items())


def test_whole_weights_arrive_without_a_config(loaded: dict[str, Any]) -> None:
    asyncio.run(object.__new__(AdapterServer).update_weights(engine(TENSORS.items()), global_steps=7))
    assert list(loaded["weights"]) == list(TENSORS) and "peft_config" not in loaded


def test_verl_builds_our_end() -> None:
    assert get_rollout_class("vllm", "async") is AdapterServer
