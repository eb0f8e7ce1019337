"""Measure exactness and speed of attention over packs (`ditto/model/attention.py`). Needs only torch and transformers.

The reference computes every sequence of a pack in float32 with the attention equation, forward and backward. An error
is the largest deviation of a tensor's entries, relative to its largest entry. For comparison, the error of sdpa in the
same dtype, called once per sequence, shows the effect of rounding alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks import device_costs
from ditto.model import attention

TENSORS = ("output", "query", "key", "value")  # the output, and the gradients of the inputs
REPEATS = 10


@dataclass(frozen=True)
class Case:
    """One row of attention."""

    name: str
    lengths: tuple[int, ...]  # lengths of the sequences in the pack
    heads: int = 32  # Qwen3-8B and Qwen3-VL-8B
    kv_heads: int = 8
    head_dim: int = 128
    causal: bool = True


GPU = (
    Case("short", (1, 3, 17, 64, 129, 1000)),
    Case("16k tokens", (1, 2047, 4096, 8192, 2048)),
    Case("64k tokens", (8192,) * 8),
    Case("single tokens", (1,) * 5),
    Case("no groups", (1, 500, 1547), heads=16, kv_heads=16),
    Case("an image", (1024,), heads=16, kv_heads=16, head_dim=72, causal=False),
)
CPU = (
    Case("short", (1, 3, 17, 40), heads=4, kv_heads=2, head_dim=16),
    Case("an image", (16,), heads=2, kv_heads=2, head_dim=16, causal=False),
)


def measure(device: str) -> dict[str, Any]:
    """Errors and times of every case: bfloat16 on "cuda"; float32 and tiny sizes on "cpu"."""
    on_gpu = torch.device(device).type == "cuda"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    return {
        "dtype": str(dtype).removeprefix("torch."),
        "kernel": "torch.nn.attention.varlen.varlen_attn" if on_gpu else "sdpa, a sequence at a time",
        "cases": [_measure_case(case, device, dtype) for case in (GPU if on_gpu else CPU)],
    }


def _measure_case(case: Case, device: str, dtype: torch.dtype) -> dict[str, Any]:
    generator = torch.Generator(device).manual_seed(0)

    def random(heads: int) -> Tensor:
        # the layout of a model: (tokens, heads, head dim), seen as (1, heads, tokens, head dim)
        shape = (1, sum(case.lengths), heads, case.head_dim)
        return torch.randn(shape, generator=generator, device=device).to(dtype).transpose(1, 2)

    inputs = [random(case.heads), random(case.kv_heads), random(case.kv_heads)]
    upstream = random(case.heads).transpose(1, 2)
    positions = torch.cat([torch.arange(length, device=device) for length in case.lengths])[None]
    packing = attention.packing_of(positions)
    scaling = case.head_dim**-0.5
    module = torch.nn.Module()

    def packed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention.packed_attention(
            module, query, key, value, None, position_ids=positions, scaling=scaling, is_causal=case.causal
        )[0]

    def by_sequence(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention.by_sequence(query, key, value, packing, causal=case.causal, scaling=scaling)

    expected = reference(*inputs, upstream, case.lengths, causal=case.causal, scaling=scaling)
    ways: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {"packed": packed, "by_sequence": by_sequence}
    result: dict[str, Any] = {**asdict(case), "tokens": sum(case.lengths)}
    for name, way in ways.items():
        tensors = _forward_and_backward(way, inputs, upstream)
        errors = {key: error(one, other) for key, one, other in zip(TENSORS, tensors, expected, strict=True)}
        times = _times(way, inputs, upstream)
        result[name] = {"max_relative_error": errors, **times, "teraflops": _operations(case) / times["both_ms"] / 1e9}
    return result


def reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    upstream: Tensor,
    lengths: Sequence[int],
    *,
    causal: bool,
    scaling: float,
    dtype: torch.dtype = torch.float32,
) -> list[Tensor]:
    """Output and gradients by softmax(q k^T * scaling) v: each sequence and each group of heads alone."""
    inputs = (query, key, value)
    results = [
        torch.empty(upstream.shape, dtype=dtype, device=query.device),
        *(torch.empty_like(t, dtype=dtype) for t in inputs),
    ]
    groups, start = query.shape[1] // key.shape[1], 0
    for length in lengths:
        here = slice(start, start := start + length)
        later = torch.ones(length, length, dtype=torch.bool, device=query.device).triu(1)
        for head in range(key.shape[1]):  # one head at a time: the scores of all heads would not fit
            group, one = slice(head * groups, (head + 1) * groups), slice(head, head + 1)
            heads = (group, one, one)
            q, k, v = (t[:, h, here].to(dtype).detach().requires_grad_() for t, h in zip(inputs, heads, strict=True))
            scores = q @ k.transpose(2, 3) * scaling
            scores = scores.masked_fill(later, float("-inf")) if causal else scores
            output = (scores.softmax(dim=-1) @ v).transpose(1, 2)
            results[0][:, here, group] = output.detach()
            gradients = torch.autograd.grad(output, (q, k, v), upstream[:, here, group].to(dtype))
            for tensor, h, gradient in zip(results[1:], heads, gradients, strict=True):
                tensor[:, h, here] = gradient
    return results


def error(actual: Tensor, expected: Tensor) -> float:
    """The largest deviation, relative to the largest entry."""
    return float((actual.to(expected.dtype) - expected).abs().max() / expected.abs().max())


def _forward_and_backward(way: Callable[..., Tensor], inputs: list[Tensor], upstream: Tensor) -> list[Tensor]:
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    output = way(*leaves)
    return [output.detach(), *torch.autograd.grad(output, leaves, upstream)]


def _times(way: Callable[..., Tensor], inputs: list[Tensor], upstream: Tensor) -> dict[str, float]:
    """Milliseconds of a forward pass, and of forward and backward; the best of several runs."""

    def best(what: Callable[[], object]) -> float:
        return 1000 * min(device_costs.seconds_of(what, REPEATS, upstream.is_cuda))

    with torch.no_grad():
        forward = best(lambda: way(*inputs))
    return {"forward_ms": forward, "both_ms": best(lambda: _forward_and_backward(way, inputs, upstream))}


def _operations(case: Case) -> float:
    """Floating-point operations of both passes: per query-key pair and head dimension 4 forward and 10 backward."""
    seen = sum(length * (length + 1) / 2 if case.causal else length**2 for length in case.lengths)
    return 14 * case.heads * case.head_dim * seen
