"""Send a LoRA adapter, and not merged weights, to rollout servers that have devices of their own.

verl's checkpoint engines carry a stream of named tensors. For LoRA, verl 0.9.1 sends the base weights, so that the
adapter never reaches the servers (issue 7495), or weights that are merged and rounded to bfloat16, in which small
updates are lost. Here the adapter's config travels as the first tensor of the stream, its JSON as bytes, and the
receiving end (`adapter_server.py`) loads both as verl does where actor and rollout share their devices.

`rollout.checkpoint_engine.custom_backend_module` names this module, so verl imports it in the actor's processes and
beside every rollout server before it builds either end.
"""

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from verl.workers.rollout.base import _ROLLOUT_REGISTRY
from verl.workers.rollout.utils import ensure_async_iterator

import ditto.verl_hooks.gloo_engine  # noqa: F401  (registers the checkpoint engine of the CPU platform)

CONFIG = "adapter_config.json"
# verl's NCCL engine packs the next tensors right behind the config and views them as floats, so the config's length in
# bytes must be a multiple of this.
ALIGNMENT = 16
Weights = Iterable[tuple[str, Tensor]]


def with_config(config: Mapping[str, Any], adapter: Weights, device: Any) -> Iterator[tuple[str, Tensor]]:
    """The adapter's tensors on a device, after a tensor with its config."""
    text = json.dumps(dict(config), default=_plain)  # only ASCII; JSON may end with blanks
    text += " " * (-len(text) % ALIGNMENT)
    yield CONFIG, torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).to(device)
    for name, tensor in adapter:
        yield name, tensor.to(device)


def _plain(value: Any) -> list[Any]:
    """PEFT's config has sets."""
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{value!r} of an adapter's config is not JSON")


async def split(weights: Any) -> tuple[dict[str, Any] | None, AsyncIterator[tuple[str, Tensor]]]:
    """The adapter's config (None: the stream has none), and the other tensors."""
    stream = ensure_async_iterator(weights)
    first = await anext(stream)
    if first[0] == CONFIG:
        return json.loads(bytes(first[1].cpu().numpy())), stream

    async def everything() -> AsyncIterator[tuple[str, Tensor]]:
        yield first
        async for item in stream:
            yield item

    return None, everything()


_ROLLOUT_REGISTRY["vllm", "async"] = "ditto.verl_hooks.adapter_server.AdapterServer"
