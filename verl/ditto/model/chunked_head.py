"""Log-probs and entropy of the next tokens, a chunk of tokens at a time, without (tokens x vocabulary) logits.

With a vocabulary of 152k, a micro-batch of 49k tokens has 15 GB of bfloat16 logits, and their float32 softmax is twice
as large. Here the logits of only one chunk exist at a time: the forward pass keeps only the hidden states, and the
backward pass computes each chunk's logits again. Logits are in the model's dtype, everything after them in float32.

The head is called as a module (a Linear, with or without LoRA, tied to the embedding or not), inside FSDP2's hooks. An
untied head is its own FSDP2 unit (verl's apply_fsdp2): its weight is gathered only between its pre- and post-forward
hooks, and `register_fsdp_forward_method` runs these once around all chunks. A tied head's weight belongs to the root
unit and is gathered while the root's forward runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

# Tokens per chunk x vocabulary: 768 tokens at 152k. At the peak there are 8 to 10 bytes per logit (1.2 GB), or 14 if
# entropy is trained too.
LOGITS_PER_CHUNK = 2**27


def token_log_probs(
    head: nn.Module, hidden: Tensor, labels: Tensor, temperature: float = 1.0, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """The log-prob of each label and the entropy of its distribution.

    Args:
        head: the model's `lm_head`. Call this inside the forward of the FSDP2 root.
        hidden: (..., hidden size), the head's input.
        labels: (...), int64, the next token at each position.
        temperature: logits are divided by it; above 0.
        chunk: tokens per chunk; None: as many as LOGITS_PER_CHUNK allows.

    Returns:
        Log-probs and entropies (in nats), both of the shape of `labels`, in float32 (float64 for float64 hidden
        states). Both have gradients with respect to `hidden` and the head's trained parameters.

    Raises:
        ValueError: `labels` and `hidden` have different leading shapes.
        RuntimeError: the head's weight is not gathered, or the head has active dropout.
    """
    if labels.shape != hidden.shape[:-1]:
        raise ValueError(f"labels {tuple(labels.shape)} do not fit hidden states {tuple(hidden.shape)}")
    outputs: tuple[Tensor, Tensor] = call_with_gathered_weight(
        head, "token_log_probs", _run, hidden, labels, temperature, chunk
    )
    return outputs


def call_with_gathered_weight(head: nn.Module, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call `function(head, *arguments)` once between FSDP2's hooks, so that the head's weight is gathered around it.

    Args:
        name: the attribute of the head that FSDP2 wraps with its hooks; one for each function.

    Raises:
        RuntimeError: the head's weight is not gathered, or the head has active dropout.
    """

    def checked(head: nn.Module, *arguments: Any) -> Any:
        _require_chunkable(head)
        return function(head, *arguments)

    run = MethodType(checked, head)
    if isinstance(head, FSDPModule):
        if name not in vars(head):
            setattr(head, name, run)
            register_fsdp_forward_method(head, name)
        run = getattr(head, name)
    return run(*arguments)


def _require_chunkable(head: Any) -> None:
    """Check that chunks of this head add up to the whole head."""
    weight = head.weight
    if isinstance(weight, DTensor) or not isinstance(weight, nn.Parameter):
        # This weight would get no gradient (FSDP1's views), or only for this rank's rows.
        raise RuntimeError(
            "The head's weight is not gathered here: the chunked head needs FSDP2 (strategy=fsdp2) or no sharding."
        )
    if any(isinstance(part, nn.Dropout) and part.p > 0 and part.training for part in head.modules()):
        raise RuntimeError("The head has dropout, but its chunks are computed twice: set its LoRA dropout to 0.")


def _run(head: Any, hidden: Tensor, labels: Tensor, temperature: float, chunk: int | None) -> tuple[Tensor, Tensor]:
    """The chunked forward pass of a head, between FSDP's hooks."""
    if chunk is None:
        chunk = max(1, LOGITS_PER_CHUNK // len(head.weight))
        chunk = chunk if chunk < 256 else chunk // 256 * 256  # a multiple of the tile size of matrix products
    outputs: tuple[Tensor, Tensor] = _ChunkedHead.apply(
        head, temperature, chunk, hidden, labels, *trained_parameters(head)
    )
    return outputs


def trained_parameters(head: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in head.parameters() if parameter.requires_grad]


def log_softmax(logits: Tensor, temperature: float) -> Tensor:
    """Log-softmax of logits / temperature, in float32 (float64 for float64 logits)."""
    wide = torch.float64 if logits.dtype == torch.float64 else torch.float32
    if temperature == 1.0:
        return torch.log_softmax(logits, dim=-1, dtype=wide)
    return torch.log_softmax(logits.to(wide, copy=True).div_(temperature), dim=-1)


class _ChunkedHead(torch.autograd.Function):
    """Head and log-softmax in chunks. The parameters are arguments only so that autograd tracks them."""

    @staticmethod
    def forward(
        ctx: Any, head: nn.Module, temperature: float, chunk: int, hidden: Tensor, labels: Tensor, *trained: Tensor
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)  # an unused entropy costs nothing in the backward pass
        shape, hidden, labels = labels.shape, hidden.flatten(0, -2), labels.flatten()
        ctx.save_for_backward(hidden, labels)
        ctx.head, ctx.temperature, ctx.chunk, ctx.shape = head, temperature, chunk, shape
        ctx.autocast = torch.is_autocast_enabled(hidden.device.type), torch.get_autocast_dtype(hidden.device.type)
        wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        # Not views of flat tensors: FSDP2 registers hooks on the outputs of a forward, and warns about views.
        outputs = hidden.new_empty(shape, dtype=wide), hidden.new_empty(shape, dtype=wide)
        log_probs, entropy = outputs[0].view(-1), outputs[1].view(-1)
        for part in chunks(len(hidden), chunk):
            scores = log_softmax(head.forward(hidden[part]), temperature)
            log_probs[part] = scores.gather(-1, labels[part, None]).squeeze(-1)
            entropy[part] = scores.exp().mul_(scores).sum(-1).neg_()
            del scores  # free it before the next chunk
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_log_probs: Tensor | None, grad_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, labels = ctx.saved_tensors
        grad_log_probs, grad_entropy = (None if g is None else g.flatten() for g in (grad_log_probs, grad_entropy))
        head, trained = ctx.head, trained_parameters(ctx.head)
        need_hidden = ctx.needs_input_grad[3]
        grad_hidden = torch.empty_like(hidden) if need_hidden else None
        # Sum the chunks in float32 and round once, like one matrix product over all tokens would.
        sums = [torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32)) for p in trained]
        enabled, dtype = ctx.autocast
        for part in chunks(len(hidden), ctx.chunk):
            with torch.enable_grad(), torch.autocast(hidden.device.type, dtype=dtype, enabled=enabled):
                rows = hidden[part].detach().requires_grad_(need_hidden)
                logits = head.forward(rows)
            grad_logits = _gradient(logits.detach(), labels[part], ctx.temperature, grad_log_probs, grad_entropy, part)
            grad_logits = grad_logits.to(logits.dtype)
            gradients = list(torch.autograd.grad(logits, [rows, *trained] if need_hidden else trained, grad_logits))
            del logits, grad_logits
            if grad_hidden is not None:
                grad_hidden[part] = gradients.pop(0)
            for total, gradient in zip(sums, gradients, strict=True):
                total.add_(gradient)
        grad_trained = [total.to(parameter.dtype) for total, parameter in zip(sums, trained, strict=True)]
        if grad_hidden is not None:
            grad_hidden = grad_hidden.view(*ctx.shape, -1)
        return None, None, None, grad_hidden, None, *grad_trained


def chunks(tokens: int, chunk: int) -> Iterator[slice]:
    return (slice(start, min(start + chunk, tokens)) for start in range(0, tokens, chunk))


def _gradient(
    logits: Tensor,
    labels: Tensor,
    temperature: float,
    grad_log_probs: Tensor | None,
    grad_entropy: Tensor | None,
    part: slice,
) -> Tensor:
    """The gradient of the loss with respect to the logits of a chunk.

    With z = logits / T, p = softmax(z), entropy H of p, and label y:
    d log p_y / d z_j = [j = y] - p_j, and d H / d z_j = -p_j (log p_j + H).
    """
    scores = log_softmax(logits, temperature)
    if grad_entropy is None:
        assert grad_log_probs is not None
        grad_logits = scores.exp_().mul_(-grad_log_probs[part, None])
    else:
        probs = scores.exp()
        entropy = (probs * scores).sum(-1, keepdim=True).neg_()
        grad_logits = scores.add_(entropy).mul_(-grad_entropy[part, None])
        if grad_log_probs is not None:
            grad_logits.sub_(grad_log_probs[part, None])
        grad_logits.mul_(probs)
    if grad_log_probs is not None:
        grad_logits[torch.arange(len(labels), device=labels.device), labels] += grad_log_probs[part]
    return grad_logits.div_(temperature)
