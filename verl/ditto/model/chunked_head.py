"""Log-probs and entropy of the next tokens, a chunk of tokens at a time: no (tokens x vocabulary) logits, ever.

A micro-batch of 49k tokens has 15 GB of bfloat16 logits at a vocabulary of 152k, and its float32 softmax twice as much.
Here one chunk's logits exist at a time: the forward pass keeps the hidden states alone, the backward pass computes each
chunk's logits once more. Logits are computed in the model's dtype, everything behind them in float32.

The head is called as the module it is (a Linear, one with LoRA, tied to the embedding or not), inside FSDP2's hooks. An
untied head is an FSDP2 unit of its own (verl's apply_fsdp2): its weight is whole between its own pre- and post-forward
hooks alone, and `register_fsdp_forward_method` runs them once around all chunks. A tied head's weight belongs to the
root unit and is whole while the root's forward runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

# Tokens of a chunk x vocabulary: 768 tokens at 152k. Eight to ten bytes a logit are alive at once, 1.2 GB; fourteen
# where entropy is trained too.
LOGITS_PER_CHUNK = 2**27
_METHOD = "token_log_probs"  # the name under which FSDP2 knows the chunked forward of a head


def token_log_probs(
    head: nn.Module, hidden: Tensor, labels: Tensor, temperature: float = 1.0, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """The log-prob of each label and the entropy of its distribution.

    Args:
        head: the model's `lm_head`. Call this inside the forward of the FSDP2 root.
        hidden: (..., hidden size), what the head would be called with.
        labels: (...), the token that follows at each place.
        temperature: logits are divided by it.
        chunk: tokens at a time; None: as many as LOGITS_PER_CHUNK allows.

    Returns:
        Two tensors of the shape of `labels`, in float32 (float64 for float64 hidden states). Both have gradients, to
        `hidden` and to the head's trained parameters.
    """
    if labels.shape != hidden.shape[:-1]:
        raise ValueError(f"labels {tuple(labels.shape)} do not fit hidden states {tuple(hidden.shape)}")
    run = MethodType(_run, head)
    if isinstance(head, FSDPModule):
        if _METHOD not in vars(head):
            setattr(head, _METHOD, run)
            register_fsdp_forward_method(head, _METHOD)
        run = getattr(head, _METHOD)
    outputs: tuple[Tensor, Tensor] = run(hidden, labels, temperature, chunk)
    return outputs


def _run(head: Any, hidden: Tensor, labels: Tensor, temperature: float, chunk: int | None) -> tuple[Tensor, Tensor]:
    """What runs between FSDP's hooks."""
    weight = head.weight
    if isinstance(weight, DTensor) or not isinstance(weight, nn.Parameter):
        # Such a weight would get no gradient (FSDP1's views), or none of its rows but this rank's.
        raise RuntimeError(
            "The head's weight is not whole here: the chunked head needs FSDP2 (strategy=fsdp2) or no sharding."
        )
    if any(isinstance(part, nn.Dropout) and part.p > 0 and part.training for part in head.modules()):
        raise RuntimeError("The head has dropout, and its chunks are computed twice: use a LoRA without dropout on it.")
    if chunk is None:
        chunk = max(1, LOGITS_PER_CHUNK // len(weight))
        chunk = chunk if chunk < 256 else chunk // 256 * 256  # whole tiles of a matrix product
    outputs: tuple[Tensor, Tensor] = _ChunkedHead.apply(head, temperature, chunk, hidden, labels, *_trained(head))
    return outputs


def _trained(head: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in head.parameters() if parameter.requires_grad]


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    """In float32 whatever dtype the logits have, as both log-prob and entropy need it."""
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    if temperature == 1.0:
        return torch.log_softmax(logits, dim=-1, dtype=wide)
    return torch.log_softmax(logits.to(wide, copy=True).div_(temperature), dim=-1)


class _ChunkedHead(torch.autograd.Function):
    """The head and log-softmax by chunks; parameters are arguments only for autograd to see them."""

    @staticmethod
    def forward(
        ctx: Any, head: nn.Module, temperature: float, chunk: int, hidden: Tensor, labels: Tensor, *trained: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)  # entropy without a coefficient costs nothing in the backward pass
        shape, hidden, labels = labels.shape, hidden.flatten(0, -2), labels.flatten()
        ctx.save_for_backward(hidden, labels)
        ctx.head, ctx.temperature, ctx.chunk, ctx.shape = head, temperature, chunk, shape
        ctx.autocast = torch.is_autocast_enabled(hidden.device.type), torch.get_autocast_dtype(hidden.device.type)
        wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        # Not views of flat tensors: FSDP2 hangs its hooks on what a forward returns, and warns of views.
        outputs = hidden.new_empty(shape, dtype=wide), hidden.new_empty(shape, dtype=wide)
        log_probs, entropy = outputs[0].view(-1), outputs[1].view(-1)
        for part in _parts(len(hidden), chunk):
            scores = _log_softmax(head.forward(hidden[part]), temperature)
            log_probs[part] = scores.gather(-1, labels[part, None]).squeeze(-1)
            entropy[part] = scores.exp().mul_(scores).sum(-1).neg_()
            del scores  # before the next chunk's
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_log_probs: Tensor | None, of_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, labels = ctx.saved_tensors
        of_log_probs, of_entropy = (None if g is None else g.flatten() for g in (of_log_probs, of_entropy))
        head, trained = ctx.head, _trained(ctx.head)
        need_hidden = ctx.needs_input_grad[3]
        of_hidden = torch.empty_like(hidden) if need_hidden else None
        # Chunks are many: their sum is taken in float32 and rounded once, as one matrix product over all tokens would.
        sums = [torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32)) for p in trained]
        enabled, dtype = ctx.autocast
        for part in _parts(len(hidden), ctx.chunk):
            with torch.enable_grad(), torch.autocast(hidden.device.type, dtype=dtype, enabled=enabled):
                rows = hidden[part].detach().requires_grad_(need_hidden)
                logits = head.forward(rows)
            of_logits = _gradient(logits.detach(), labels[part], ctx.temperature, of_log_probs, of_entropy, part)
            of_logits = of_logits.to(logits.dtype)
            gradients = list(torch.autograd.grad(logits, [rows, *trained] if need_hidden else trained, of_logits))
            del logits, of_logits
            if of_hidden is not None:
                of_hidden[part] = gradients.pop(0)
            for total, gradient in zip(sums, gradients, strict=True):
                total.add_(gradient)
        of_trained = [total.to(parameter.dtype) for total, parameter in zip(sums, trained, strict=True)]
        if of_hidden is not None:
            of_hidden = of_hidden.view(*ctx.shape, -1)
        return None, None, None, of_hidden, None, *of_trained


def _parts(tokens: int, chunk: int) -> Iterator[slice]:
    return (slice(start, min(start + chunk, tokens)) for start in range(0, tokens, chunk))


def _gradient(
    logits: Tensor,
    labels: Tensor,
    temperature: float,
    of_log_probs: Tensor | None,
    of_entropy: Tensor | None,
    part: slice,
) -> Tensor:
    """d loss / d logits of a chunk.

    With z = logits / T, p = softmax(z), H the entropy of p and y the label:
    d log p_y / d z_j = [j = y] - p_j, and d H / d z_j = -p_j (log p_j + H).
    """
    scores = _log_softmax(logits, temperature)
    if of_entropy is None:
        assert of_log_probs is not None
        of_logits = scores.exp_().mul_(-of_log_probs[part, None])
    else:
        probs = scores.exp()
        entropy = (probs * scores).sum(-1, keepdim=True).neg_()
        of_logits = scores.add_(entropy).mul_(-of_entropy[part, None])
        if of_log_probs is not None:
            of_logits.sub_(of_log_probs[part, None])
        of_logits.mul_(probs)
    if of_log_probs is not None:
        of_logits[torch.arange(len(labels), device=labels.device), labels] += of_log_probs[part]
    return of_logits.div_(temperature)
