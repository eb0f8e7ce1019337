"""Measure our attention, our head and a whole update on one GPU. Needs only torch, transformers and peft.

    PYTHONPATH=verl python -m benchmarks.gpu [--parts attention head training] [--out benchmarks/baselines]

    attention   forward and backward over packs: largest error against attention in float32, sequence by sequence, and
                milliseconds; sdpa called once per sequence shows the effect of rounding alone
    head        chunked log-probs against full logits, with the head of Qwen3-8B: errors, peak memory, seconds
    training    update and log-prob pass of Qwen3-0.6B and 8B with LoRA over 16k and 64k packed tokens, as in a worker
                of verl (FSDP2, gradient checkpointing, AdamW): tokens/s, MFU, peak memory beside the plan's

MFU counts the model's own operations without recomputation: per token and weight of the linear layers and the head 2 in
the forward pass and 2 in the backward pass, plus those of causal attention. The numbers go to `<out>/<device>.json`.
Goals on an H100 or H200: MFU of the update at least 25 % at 16k tokens and 40 % at 64k; errors of bfloat16 attention no
larger than those of sdpa; peak memory within 10 % of the plan. Without a GPU everything runs at toy sizes, which shows
that the script works, and nothing is written.
"""

import argparse
import json
import os
import platform
import re
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import Qwen3Config, Qwen3ForCausalLM

from ditto.memory.estimate import Training, read_model
from ditto.model import attention
from ditto.model.chunked_head import token_log_probs, with_chunked_head

# Dense bfloat16 operations per second, from the vendors' data sheets (no sparsity), by a part of the device's name.
PEAK = {"H200": 989e12, "H100": 989e12, "H20": 148e12, "A100": 312e12, "B200": 2250e12, "L40S": 362e12, "A6000": 155e12}
VOCABULARY = 151_936  # of Qwen3
LORA_RANK = 32

# ---- costs -----------------------------------------------------------------------------------------------------------


def seconds_of(work: Callable[[], object], repeats: int, on_gpu: bool) -> list[float]:
    """Wall seconds of each repetition; a GPU has finished its work before a clock stops."""
    seconds = []
    for _ in range(repeats):
        if on_gpu:
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if on_gpu:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds


def reset_peak(on_gpu: bool) -> int:
    """Reset the peak. Returns the bytes in use: of the GPU's allocator, or of this process."""
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    Path("/proc/self/clear_refs").write_text("5")  # Linux: resets the peak of resident memory
    return _process_memory("VmRSS")


def peak(on_gpu: bool) -> int:
    """The largest number of bytes in use since the reset."""
    return torch.cuda.max_memory_allocated() if on_gpu else _process_memory("VmHWM")


def _process_memory(name: str) -> int:
    match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert match
    return 1024 * int(match[1])


# ---- attention -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pack:
    """Sequences that share a row of attention; the heads are those of Qwen3-8B."""

    name: str
    lengths: tuple[int, ...]
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    causal: bool = True


PACKS = (
    Pack("short", (1, 3, 17, 64, 129, 1000)),
    Pack("16k tokens", (1, 2047, 4096, 8192, 2048)),
    Pack("64k tokens", (8192,) * 8),
    Pack("single tokens", (1,) * 5),
    Pack("no groups", (1, 500, 1547), heads=16, kv_heads=16),
    Pack("an image", (1024,), heads=16, kv_heads=16, head_dim=72, causal=False),
)
TOY_PACKS = (
    Pack("short", (1, 3, 17, 40), heads=4, kv_heads=2, head_dim=16),
    Pack("an image", (16,), heads=2, kv_heads=2, head_dim=16, causal=False),
)


def measure_attention(device: str) -> dict[str, Any]:
    """Errors and times of every pack: bfloat16 on "cuda"; float32 and tiny sizes on "cpu"."""
    on_gpu = device == "cuda"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    packs = [_measure_pack(pack, device, dtype) for pack in (PACKS if on_gpu else TOY_PACKS)]
    return {"dtype": str(dtype).removeprefix("torch."), "packs": packs}


def _measure_pack(pack: Pack, device: str, dtype: torch.dtype) -> dict[str, Any]:
    generator = torch.Generator(device).manual_seed(0)

    def random(heads: int) -> Tensor:
        # the layout of a model: (tokens, heads, head dim), seen as (1, heads, tokens, head dim)
        shape = (1, sum(pack.lengths), heads, pack.head_dim)
        return torch.randn(shape, generator=generator, device=device).to(dtype).transpose(1, 2)

    inputs = [random(pack.heads), random(pack.kv_heads), random(pack.kv_heads)]
    upstream = random(pack.heads).transpose(1, 2)
    positions = torch.cat([torch.arange(length, device=device) for length in pack.lengths])[None]
    packing, scaling, module = attention.packing_of(positions), pack.head_dim**-0.5, nn.Module()

    def packed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention.packed_attention(
            module, query, key, value, None, position_ids=positions, scaling=scaling, is_causal=pack.causal
        )[0]

    def by_sequence(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention.by_sequence(query, key, value, packing, causal=pack.causal, scaling=scaling)

    def both_passes(way: Callable[..., Tensor]) -> list[Tensor]:
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        output = way(*leaves)
        return [output.detach(), *torch.autograd.grad(output, leaves, upstream)]

    expected = _reference(inputs, upstream, pack, scaling)
    # Per query-key pair and head dimension 4 operations forward and 10 backward.
    pairs = sum(length * (length + 1) / 2 if pack.causal else length**2 for length in pack.lengths)
    result: dict[str, Any] = {**asdict(pack), "tokens": sum(pack.lengths)}
    for name, way in {"packed": packed, "by_sequence": by_sequence}.items():
        found = zip(("output", "query", "key", "value"), both_passes(way), expected, strict=True)
        errors = {key: float((one.float() - other).abs().max() / other.abs().max()) for key, one, other in found}
        seconds = min(seconds_of(lambda way=way: both_passes(way), 10, upstream.is_cuda))  # type: ignore[misc]
        teraflops = 14 * pack.heads * pack.head_dim * pairs / seconds / 1e12
        result[name] = {"max_relative_error": errors, "both_ms": 1000 * seconds, "teraflops": teraflops}
    return result


def _reference(inputs: Sequence[Tensor], upstream: Tensor, pack: Pack, scaling: float) -> list[Tensor]:
    """Output and gradients in float32 by softmax(q k^T * scaling) v: each sequence and each group of heads alone."""
    results = [torch.empty_like(tensor, dtype=torch.float32) for tensor in (upstream, *inputs)]
    groups, start = pack.heads // pack.kv_heads, 0
    for length in pack.lengths:
        here = slice(start, start := start + length)
        later = torch.ones(length, length, dtype=torch.bool, device=upstream.device).triu(1)
        for head in range(pack.kv_heads):  # one head at a time: the scores of all heads would not fit
            group, one = slice(head * groups, (head + 1) * groups), slice(head, head + 1)
            heads = (group, one, one)
            q, k, v = (t[:, h, here].float().detach().requires_grad_() for t, h in zip(inputs, heads, strict=True))
            scores = q @ k.transpose(2, 3) * scaling
            scores = scores.masked_fill(later, float("-inf")) if pack.causal else scores
            output = (scores.softmax(dim=-1) @ v).transpose(1, 2)
            results[0][:, here, group] = output.detach()
            gradients = torch.autograd.grad(output, (q, k, v), upstream[:, here, group].float())
            for tensor, h, gradient in zip(results[1:], heads, gradients, strict=True):
                tensor[:, h, here] = gradient
    return results


# ---- the head --------------------------------------------------------------------------------------------------------

LogProbs = Callable[[nn.Linear, Tensor, Tensor], Tensor]


def full(head: nn.Linear, hidden: Tensor, labels: Tensor) -> Tensor:
    """Log-probs the usual way: logits, then a float32 log-softmax over all of them."""
    wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
    return torch.log_softmax(head(hidden), -1, dtype=wide).gather(-1, labels[:, None]).squeeze(-1)


def measure_head(device: str) -> dict[str, Any]:
    """Both heads side by side, trained and frozen (as with LoRA): peak memory beyond weights and hidden states in GB,
    seconds of a forward and backward pass, and the relative errors against the next wider dtype."""
    on_gpu = device == "cuda"
    tokens, hidden_size = (8192, 4096) if on_gpu else (2048, 128)
    dtype = torch.bfloat16 if on_gpu else torch.float32
    torch.manual_seed(0)
    head = nn.Linear(hidden_size, VOCABULARY, bias=False, device=device, dtype=dtype)
    head.weight.data.normal_(std=4 * hidden_size**-0.5)  # logits with a standard deviation of 4, like a real model's
    hidden = torch.randn(tokens, hidden_size, device=device, dtype=dtype)
    labels = torch.randint(VOCABULARY, (tokens,), device=device)
    ways: dict[str, LogProbs] = {"full logits": full, "chunked": lambda *given: token_log_probs(*given)[0]}
    errors = {
        "full logits": _errors(full, head, hidden[:512], labels[:512]),
        # several chunks, however few tokens there are
        "chunked": _errors(lambda *given: token_log_probs(*given, chunk=100)[0], head, hidden[:512], labels[:512]),
    }
    heads = []
    for trained in (True, False):
        head.weight.requires_grad_(trained)
        for name, log_probs in ways.items():
            _both_passes(log_probs, head, hidden[:64], labels[:64])  # warm-up: libraries load their kernels
            before = reset_peak(on_gpu)
            work = lambda way=log_probs: _both_passes(way, head, hidden, labels)  # noqa: E731
            seconds = statistics.median(seconds_of(work, 3 if on_gpu else 1, on_gpu))
            costs = {"peak_gb": (peak(on_gpu) - before) / 1e9, "seconds": seconds}
            heads.append({"head": name, "trained": trained, **costs, **errors[name]})
    return {"dtype": str(dtype).removeprefix("torch."), "tokens": tokens, "hidden_size": hidden_size, "heads": heads}


def _both_passes(log_probs: LogProbs, head: nn.Linear, hidden: Tensor, labels: Tensor) -> list[Tensor]:
    """Log-probs, and the gradients of their weighted sum."""
    hidden = hidden.detach().requires_grad_()
    values = log_probs(head, hidden, labels)
    loss = (torch.linspace(-1, 1, len(labels), device=labels.device) * values).mean()
    sources = [hidden, head.weight] if head.weight.requires_grad else [hidden]
    return [values.detach(), *torch.autograd.grad(loss, sources)]


def _errors(log_probs: LogProbs, head: nn.Linear, hidden: Tensor, labels: Tensor) -> dict[str, float]:
    """Relative errors against full logits in the next wider dtype."""
    wide = torch.float32 if hidden.dtype == torch.bfloat16 else torch.float64
    wider = nn.Linear(*reversed(head.weight.shape), bias=False, device=hidden.device, dtype=wide)
    wider.weight.data.copy_(head.weight.data)
    exact, found = _both_passes(full, wider, hidden.to(wide), labels), _both_passes(log_probs, head, hidden, labels)
    names = ("log_prob_error", "hidden_gradient_error", "weight_gradient_error")
    return {n: float((a.to(wide) - b).norm() / b.norm()) for n, a, b in zip(names, found, exact, strict=True)}


# ---- training --------------------------------------------------------------------------------------------------------

# Sizes of config.json of Qwen/Qwen3-0.6B and Qwen/Qwen3-8B.
_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
MODELS: dict[str, dict[str, Any]] = {
    "Qwen3-0.6B": {**dict(zip(_SIZES, (1024, 3072, 28, 16, 8), strict=True)), "tie_word_embeddings": True},
    "Qwen3-8B": {**dict(zip(_SIZES, (4096, 12288, 36, 32, 8), strict=True)), "tie_word_embeddings": False},
}
TINY = {**dict(zip(_SIZES, (64, 128, 2, 4, 2), strict=True)), "tie_word_embeddings": False}


def measure_training(device: str) -> list[dict[str, Any]]:
    """Measure every case on "cuda"; on "cpu" a tiny one, which only shows that the script works."""
    on_gpu = device == "cuda"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
    torch.distributed.init_process_group("nccl" if on_gpu else "gloo", rank=0, world_size=1)  # FSDP2 requires one
    try:
        if not on_gpu:
            tiny = Qwen3Config(**TINY, head_dim=16, vocab_size=512)
            return [_measure_training("tiny", tiny, 256, 64, device)]
        configs = {name: Qwen3Config(**sizes, head_dim=128, vocab_size=VOCABULARY) for name, sizes in MODELS.items()}
        cases = [(name, config, tokens) for name, config in configs.items() for tokens in (16_384, 65_536)]
        return [_measure_training(*case, 4096, device) for case in cases]
    finally:
        torch.distributed.destroy_process_group()


def build(config: Qwen3Config, device: str) -> nn.Module:
    """The model as verl's FSDP engine builds it, with random weights."""
    config.max_position_embeddings, config.use_cache = 131_072, False
    config._attn_implementation = attention.NAME
    with torch.device(device):
        model: Any = with_chunked_head(Qwen3ForCausalLM)(config).float()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model = get_peft_model(model, LoraConfig(r=LORA_RANK, lora_alpha=2 * LORA_RANK, target_modules="all-linear"))
    for parameter in model.parameters():
        if not parameter.requires_grad:  # as ditto/model/engine.py stores frozen weights
            parameter.data = parameter.data.bfloat16()
    mesh = init_device_mesh(device, (1,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    units = [m for m in model.modules() if type(m).__name__ == "Qwen3DecoderLayer"]
    if not config.tie_word_embeddings:
        units += [m for m in model.modules() if isinstance(m, nn.Embedding)] + [model.get_output_embeddings()]
    for unit in (*units, model):
        fully_shard(unit, mesh=mesh, mp_policy=policy)
    model.train()
    return model


def operations(config: Qwen3Config, tokens: int, sequence: int, *, backward: bool) -> float:
    """Floating-point operations of one pass over a pack with LoRA, without recomputation."""
    query, kv = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    layer = config.hidden_size * (2 * query + 2 * kv + 3 * config.intermediate_size)
    weights = config.num_hidden_layers * layer + config.hidden_size * config.vocab_size
    # q k^T and p v over the causal half: 2 * 2 * sequence^2 / 2 per head dimension; twice as much in the backward pass.
    causal = 2.0 * tokens * sequence * query * config.num_hidden_layers * (3 if backward else 1)
    return 2.0 * tokens * weights * (2 if backward else 1) + causal


def _measure_training(name: str, config: Qwen3Config, tokens: int, sequence: int, device: str) -> dict[str, Any]:
    torch.manual_seed(0)
    on_gpu, model = device == "cuda", build(config, device)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-6)
    ids = torch.randint(config.vocab_size, (1, tokens), device=device)
    positions = torch.arange(sequence, device=device).repeat(tokens // sequence)[None]

    def forward() -> Any:
        return model(input_ids=ids, position_ids=positions, temperature=1.0, shift_labels=ids.roll(-1, -1))

    def update() -> None:
        (-forward().log_probs.mean()).backward()
        optimizer.step()
        optimizer.zero_grad()

    training = Training(read_model(config, name, LORA_RANK))
    plans = {
        "update": (update, sum(training.update(tokens))),
        "log_prob": (torch.no_grad()(forward), sum(training.forward(tokens))),
    }
    best = next((rate for part, rate in PEAK.items() if on_gpu and part in torch.cuda.get_device_name()), None)
    result: dict[str, Any] = {"model": name, "tokens": tokens, "sequence": sequence, "lora_rank": LORA_RANK}
    for part, (work, planned) in plans.items():
        seconds_of(work, 2, on_gpu)
        reset_peak(on_gpu)
        seconds = statistics.median(seconds_of(work, 5, on_gpu))
        needed = operations(config, tokens, sequence, backward=part == "update")
        result[part] = {
            "seconds": seconds,
            "tokens_per_second": tokens / seconds,
            "mfu": needed / seconds / best if best else None,
            "peak_gib": peak(on_gpu) / 2**30,
            "planned_gib": planned / 2**30,
        }
    return result


# ---- the command -----------------------------------------------------------------------------------------------------

PARTS = {"attention": measure_attention, "head": measure_head, "training": measure_training}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(  # not soul's, which a bare machine lacks
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "baselines")
    args = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else platform.machine()
    results: dict[str, Any] = {"device": name, "torch": torch.__version__, "transformers": transformers.__version__}
    for part in args.parts:
        print(f"measuring {part} ...", flush=True)
        results[part] = PARTS[part](device)
    text = json.dumps(results, indent=1)
    print(text)
    if device == "cpu":
        print("No GPU: these are toy sizes, and nothing is written.")
        return
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") + ".json")
    file.write_text(text + "\n", encoding="utf-8")
    print(f"written: {file}")


if __name__ == "__main__":
    sys.exit(main())
