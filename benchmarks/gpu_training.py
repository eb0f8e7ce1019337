"""Measure training on one GPU: an update and a log-prob pass over packed tokens, of a Qwen3 with random weights.

It does what verl does in a worker, with only torch, transformers and peft: FSDP2 on one device (float32 for trained
weights, bfloat16 for the frozen base and for computation), LoRA on all linear layers, gradient checkpointing, attention
over packs, the chunked head, AdamW.

MFU counts the model's own operations without recomputation: per token and weight of the linear layers and the head 2 in
the forward pass and 2 in the backward pass (4 if the weights themselves are trained), plus those of causal attention.
Peak memory is the allocator's; the memory plan's value (`ditto/memory`) for the same settings stands beside it.
"""

from __future__ import annotations

import os
import socket
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import Qwen3Config, Qwen3ForCausalLM

from benchmarks import device_costs
from ditto.memory.estimate import Training, forward_moments, largest, update_moments
from ditto.memory.model_shape import shape_of
from ditto.model import attention
from ditto.model.chunked_head import with_chunked_head

# Dense bfloat16 operations per second, from the vendors' data sheets (no sparsity), by a part of the device's name.
PEAK = {"H200": 989e12, "H100": 989e12, "H20": 148e12, "A100": 312e12, "B200": 2250e12, "L40S": 362e12, "A6000": 155e12}
WARM_UPS, REPEATS = 2, 5


@dataclass(frozen=True)
class Model:
    """A Qwen3 by its published sizes (config.json of Qwen/Qwen3-0.6B and Qwen/Qwen3-8B)."""

    name: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    tie_word_embeddings: bool
    head_dim: int = 128
    vocab_size: int = 151_936


@dataclass(frozen=True)
class Case:
    """A pack of `tokens` tokens in sequences of `sequence` tokens."""

    model: Model
    tokens: int
    sequence: int = 4096


SMALL = Model("Qwen3-0.6B", 1024, 3072, 28, 16, 8, True)
LARGE = Model("Qwen3-8B", 4096, 12288, 36, 32, 8, False)
TINY = Model("tiny", 64, 128, 2, 4, 2, False, head_dim=16, vocab_size=512)
GPU = tuple(Case(model, tokens) for model in (SMALL, LARGE) for tokens in (16_384, 65_536))
CPU = (Case(TINY, 256, 64),)


def measure(device: str) -> list[dict[str, Any]]:
    """Measure every case on "cuda"; on "cpu" a tiny one, which only shows that the script works."""
    on_gpu = device == "cuda"
    with _process_group("nccl" if on_gpu else "gloo"):
        return [_measured(case, device) for case in (GPU if on_gpu else CPU)]


@contextmanager
def _process_group(backend: str) -> Iterator[None]:
    """A process group of one process, which FSDP2 requires."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
    torch.distributed.init_process_group(backend, rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def build(model: Model, device: str, lora_rank: int) -> nn.Module:
    """The model as verl's FSDP engine builds it, with random weights."""
    sizes = {key: value for key, value in asdict(model).items() if key != "name"}
    config = Qwen3Config(**sizes, max_position_embeddings=131_072, attn_implementation=attention.NAME, use_cache=False)
    with torch.device(device):
        module: Any = with_chunked_head(Qwen3ForCausalLM)(config).float()
    module.gradient_checkpointing_enable({"use_reentrant": False})
    if lora_rank:
        module = get_peft_model(module, LoraConfig(r=lora_rank, lora_alpha=2 * lora_rank, target_modules="all-linear"))
        for parameter in module.parameters():
            if not parameter.requires_grad:  # as ditto/model/engine.py stores frozen weights
                parameter.data = parameter.data.bfloat16()
    mesh = init_device_mesh(device, (1,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    units = [m for m in module.modules() if type(m).__name__ == "Qwen3DecoderLayer"]
    if not model.tie_word_embeddings:
        units += [m for m in module.modules() if isinstance(m, nn.Embedding)] + [module.get_output_embeddings()]
    for unit in units:
        fully_shard(unit, mesh=mesh, mp_policy=policy)
    fully_shard(module, mesh=mesh, mp_policy=policy)
    module.train()
    return module


def operations(model: Model, tokens: int, sequence: int, *, backward: bool, lora: bool) -> float:
    """Floating-point operations of one pass over a pack, without recomputation."""
    query, kv = model.num_attention_heads * model.head_dim, model.num_key_value_heads * model.head_dim
    layer = model.hidden_size * (2 * query + 2 * kv + 3 * model.intermediate_size)
    weights = model.num_hidden_layers * layer + model.hidden_size * model.vocab_size
    linear = 2.0 * tokens * weights * ((2 if lora else 3) if backward else 1)
    # q k^T and p v over the causal half: 2 * 2 * sequence^2 / 2 per head dimension; twice as much in the backward pass.
    causal = 2.0 * tokens * sequence * query * model.num_hidden_layers * (3 if backward else 1)
    return linear + causal


def _pack(case: Case, device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator(device).manual_seed(0)
    ids = torch.randint(case.model.vocab_size, (1, case.tokens), device=device, generator=generator)
    positions = torch.arange(case.sequence, device=device).repeat(case.tokens // case.sequence)[None]
    return ids, positions


def _measured(case: Case, device: str, lora_rank: int = 32) -> dict[str, Any]:
    torch.manual_seed(0)
    model = build(case.model, device, lora_rank)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-6)
    ids, positions = _pack(case, device)

    def forward() -> Any:
        return model(input_ids=ids, position_ids=positions, temperature=1.0, shift_labels=ids.roll(-1, -1))

    def update() -> None:
        (-forward().log_probs.mean()).backward()
        optimizer.step()
        optimizer.zero_grad()

    @torch.no_grad()
    def log_probs() -> None:
        forward()

    shape = shape_of(model.config, case.model.name)
    settings = Training(devices=1, lora_rank=lora_rank)
    planned = {
        "update": largest(update_moments(shape, case.tokens, settings)).total,
        "log_prob": largest(forward_moments(shape, case.tokens, settings)).total,
    }
    result: dict[str, Any] = {**asdict(case), "lora_rank": lora_rank}
    for name, work in (("update", update), ("log_prob", log_probs)):
        seconds, peak = _timed(work, device)
        needed = operations(case.model, case.tokens, case.sequence, backward=name == "update", lora=bool(lora_rank))
        result[name] = {
            "seconds": seconds,
            "tokens_per_second": case.tokens / seconds,
            "mfu": needed / seconds / best if (best := peak_operations(device)) else None,
            "peak_gib": peak / 2**30 if peak is not None else None,
            "planned_gib": planned[name] / 2**30,
        }
    return result


def peak_operations(device: str) -> float | None:
    """Peak operations per second of the device; None if it is not in the table."""
    if device != "cuda":
        return None
    name = torch.cuda.get_device_name()
    return next((value for part, value in PEAK.items() if part in name), None)


def _timed(work: Callable[[], None], device: str) -> tuple[float, int | None]:
    """Median seconds, and the peak of allocated bytes (None on a CPU)."""
    on_gpu = device == "cuda"
    device_costs.seconds_of(work, WARM_UPS, on_gpu)
    if on_gpu:
        device_costs.reset_peak(on_gpu)
    times = device_costs.seconds_of(work, REPEATS, on_gpu)
    return statistics.median(times), device_costs.peak(on_gpu) if on_gpu else None
