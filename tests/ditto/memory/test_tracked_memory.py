"""The estimate covers what torch's FSDP2 memory tracker counts: fake tensors, a fake process group, no GPU.

The model is transformers' own with our head, sharded, checkpointed and computed in bfloat16 as verl does it. Attention
is torch's variable-length kernel, of which fake tensors need the shapes only.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.attention.varlen import varlen_attn
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AttentionInterface, AttentionMaskInterface, Qwen3ForCausalLM

from ditto.memory.estimate import CHUNK_LOGITS, Training, read_model
from ditto.model.chunked_head import LOGITS_PER_CHUNK, with_chunked_head
from tests.ditto.memory.qwen3 import text

VARLEN = "varlen_for_tracking"
RANK, DEVICES = 32, 8


@dataclass(frozen=True)
class Tracked:
    """One measurement's settings."""

    config: Any
    tokens: int
    lora: bool
    checkpointing: bool = True
    forward_only: bool = False


CASES = {
    "full": Tracked(text("0.6B", num_hidden_layers=2), 16384, False),
    "LoRA": Tracked(text("8B", num_hidden_layers=2), 16384, True),
    "no checkpointing": Tracked(text("8B", num_hidden_layers=2), 16384, False, checkpointing=False),
    "log-probs": Tracked(text("8B", num_hidden_layers=2), 16384, True, forward_only=True),
}


EVERYDAY = ("full", "LoRA")  # a case takes 10 s on a quiet core


@pytest.mark.parametrize(
    "case", [case if case in EVERYDAY else pytest.param(case, marks=pytest.mark.stress) for case in CASES]
)
def test_the_estimate_is_close_to_torchs_tracker(case: str) -> None:
    """Two layers of real width: the layer's own activations, the head and the static parts all count."""
    run = CASES[case]
    training = Training(read_model(run.config, case, RANK * run.lora), devices=DEVICES, checkpointing=run.checkpointing)
    update = training.forward(run.tokens)._replace(optimizer=0) if run.forward_only else training.update(run.tokens)
    assert CHUNK_LOGITS == LOGITS_PER_CHUNK
    assert 0.98 <= sum(update) / peak_bytes(run) <= 1.2  # as docs/sizing.md says


def peak_bytes(run: Tracked) -> int:
    """The peak of the second update: the optimizer has its states, and DTensor has its sharding rules in its cache.

    The first is not tracked: under LoRA the tracker keeps the embedding's output of every pass that it saw alive.
    """
    AttentionInterface.register(VARLEN, _attention)
    AttentionMaskInterface.register(VARLEN, lambda *args, **kwargs: None)
    with _fake_processes(DEVICES) as mesh, FakeTensorMode(allow_non_fake_inputs=True):
        model, lm_head = _build(run)
        _shard(model, lm_head, mesh, run.config.tie_word_embeddings)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)
        ids = torch.zeros((1, run.tokens), dtype=torch.long)
        if not run.forward_only:
            _update(run, model, optimizer, ids, nullcontext())
        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs((ids,))
        if not run.config.tie_word_embeddings:
            _follow_head(tracker, lm_head)
        tracker.reset_mod_stats()
        _update(run, model, optimizer, ids, tracker)
        (snapshot,) = tracker.get_tracker_snapshot("peak").values()
    return int(snapshot["Total"])


def _update(run: Tracked, model: Any, optimizer: torch.optim.Optimizer, ids: torch.Tensor, watched: Any) -> None:
    """An update, or a pass without gradients."""
    with watched, torch.set_grad_enabled(not run.forward_only):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(ids, use_cache=False, temperature=1.0).log_probs.mean()
        if not run.forward_only:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


@contextmanager
def _fake_processes(devices: int) -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=devices)
    try:
        yield init_device_mesh("cpu", (devices,))
    finally:
        dist.destroy_process_group()


def _build(run: Tracked) -> tuple[nn.Module, nn.Module]:
    """The model with fake weights, and its head."""
    run.config._attn_implementation = VARLEN
    with torch.device("meta"):
        model: nn.Module = with_chunked_head(Qwen3ForCausalLM)(run.config)
        lm_head = model.lm_head
        if run.checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if run.lora:
            model.enable_input_require_grads()
            adapter = LoraConfig(task_type="CAUSAL_LM", r=RANK, lora_alpha=64, target_modules="all-linear")
            model = get_peft_model(model, adapter, autocast_adapter_dtype=False)
    _give_storage(model)
    model.train(not run.forward_only)
    return model, lm_head


def _give_storage(model: nn.Module) -> None:
    """Replace meta tensors by fake ones on the CPU, trained weights in float32 and frozen ones in bfloat16.

    A tied weight stays tied. (`Module.to_empty` refuses fake tensors.)
    """
    made: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, weight in list(module._parameters.items()):
            if weight is not None:
                fake = torch.empty(weight.shape, dtype=torch.float32 if weight.requires_grad else torch.bfloat16)
                module._parameters[name] = made.setdefault(weight, nn.Parameter(fake, weight.requires_grad))
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)


def _shard(model: nn.Module, lm_head: nn.Module, mesh: DeviceMesh, tied: bool) -> None:
    """verl's units: decoder layers, and embedding and head where they are not tied."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=True)
    how: dict[str, Any] = {"mesh": mesh, "mp_policy": policy}
    layers = [m for m in model.modules() if type(m).__name__ in model._no_split_modules]
    apart = [] if tied else [model.get_input_embeddings(), lm_head]
    for unit in [*layers, *apart]:
        fully_shard(unit, reshard_after_forward=True, **how)
    fully_shard(model, reshard_after_forward=True, **how)


def _follow_head(tracker: FSDPMemTracker, lm_head: Any) -> None:
    """Let the tracker see the head's unit: the chunked head runs FSDP's hooks around a method, not around forward."""
    tracker._mod_tracker._known_modules[lm_head] = "lm_head"
    state = lm_head._get_fsdp_state()
    state._pre_forward = tracker._fsdp_state_pre_forward(lm_head, state._pre_forward)
    state._post_forward = tracker._fsdp_state_post_forward(lm_head, state._post_forward)


def _attention(
    module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: None, **kwargs: Any
) -> tuple[torch.Tensor, None]:
    tokens = query.shape[2]
    borders = torch.tensor([0, tokens], dtype=torch.int32)
    packed = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    out = varlen_attn(*packed, borders, borders, tokens, tokens, window_size=(-1, 0), enable_gqa=True)
    return out[None], None
