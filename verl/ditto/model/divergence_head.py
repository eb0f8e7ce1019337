"""The divergence between student and teacher at every token, a chunk of tokens at a time.

As in `chunked_head.py`, the logits of only one chunk exist at a time, here those of both; the backward pass computes
them again. The gradient flows through the student alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from ditto.model.chunked_head import (
    LOGITS_PER_CHUNK,
    call_with_gathered_weight,
    chunks,
    log_softmax,
    trained_parameters,
)


@dataclass(frozen=True)
class TeacherScores:
    """One teacher's side of the comparison in a micro-batch.

    Attributes:
        positions: int64 (m,), places in the packed micro-batch whose next token is distilled.
        hidden: (m, hidden size), the teacher's hidden states for the same next tokens.
        weight: (vocabulary, hidden size), the teacher's head; None: the student's.
        alpha, top_k, tail: `algorithm.sdpo` or `algorithm.distill`.
    """

    positions: Tensor
    hidden: Tensor
    weight: Tensor | None
    alpha: float
    top_k: int | None
    tail: bool


def token_divergences(head: nn.Module, hidden: Tensor, scores: TeacherScores, temperature: float = 1.0) -> Tensor:
    """The divergence at each position of the scores.

    Args:
        head: the model's `lm_head`. Call this inside the forward of the FSDP2 root.
        hidden: (1, tokens, hidden size), the student's hidden states of the packed micro-batch.
        temperature: both models' logits are divided by it; above 0.

    Returns:
        (m,), in nats, in float32 (float64 for float64 hidden states), with a gradient for `hidden` and for the head's
        trained parameters.

    Raises:
        RuntimeError: the head's weight is not gathered, or the head has active dropout.
    """
    values: Tensor = call_with_gathered_weight(
        head, "token_divergences", _run, hidden[0, scores.positions], scores, temperature
    )
    return values


def _run(head: Any, hidden: Tensor, scores: TeacherScores, temperature: float) -> Tensor:
    chunk = max(1, LOGITS_PER_CHUNK // 2 // len(head.weight))
    values: Tensor = _ChunkedDivergence.apply(head, scores, temperature, chunk, hidden, *trained_parameters(head))
    return values


class _ChunkedDivergence(torch.autograd.Function):
    """The parameters are arguments only so that autograd tracks them."""

    @staticmethod
    def forward(
        ctx: Any,
        head: nn.Module,
        scores: TeacherScores,
        temperature: float,
        chunk: int,
        hidden: Tensor,
        *trained: Tensor,
    ) -> Tensor:
        ctx.save_for_backward(hidden)
        ctx.head, ctx.scores, ctx.temperature, ctx.chunk = head, scores, temperature, chunk
        ctx.autocast = torch.is_autocast_enabled(hidden.device.type), torch.get_autocast_dtype(hidden.device.type)
        wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        values = hidden.new_empty(len(hidden), dtype=wide)
        for part in chunks(len(hidden), chunk):
            values[part] = _compare(head, scores, head.forward(hidden[part]), part, temperature)
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (hidden,), trained = ctx.saved_tensors, trained_parameters(ctx.head)
        grad_hidden = torch.zeros_like(hidden)
        sums = [torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32)) for p in trained]
        enabled, dtype = ctx.autocast
        for part in chunks(len(hidden), ctx.chunk):
            with torch.enable_grad(), torch.autocast(hidden.device.type, dtype=dtype, enabled=enabled):
                rows = hidden[part].detach().requires_grad_()
                values = _compare(ctx.head, ctx.scores, ctx.head.forward(rows), part, ctx.temperature)
            gradients = torch.autograd.grad(values, [rows, *trained], gradient[part], allow_unused=True)
            grad_hidden[part] = gradients[0]
            for total, value in zip(sums, gradients[1:], strict=True):
                if value is not None:
                    total.add_(value)
        grads = [total.to(parameter.dtype) for total, parameter in zip(sums, trained, strict=True)]
        return None, None, None, None, grad_hidden, *grads


def _compare(head: Any, scores: TeacherScores, logits: Tensor, part: slice, temperature: float) -> Tensor:
    """The divergences of a chunk, from the student's logits."""
    with torch.no_grad():
        hidden = scores.hidden[part]
        if scores.weight is None:
            taught = head.forward(hidden)
        else:
            taught = functional.linear(hidden, scores.weight)
        teacher = log_softmax(taught, temperature)
    student = log_softmax(logits, temperature)
    if scores.top_k is not None:
        student, teacher = top_k_outcomes(student, teacher, scores.top_k, scores.tail)
    return divergence(student, teacher, scores.alpha)


def divergence(student: Tensor, teacher: Tensor, alpha: float) -> Tensor:
    """The divergence of two distributions over the last dimension, from their log-probs.

    Args:
        student: (..., outcomes), log-probs, with a gradient.
        teacher: the same shape, without.
        alpha: 0: KL(teacher || student); 1: KL(student || teacher); between: (1 - alpha) KL(student || m) + alpha
            KL(teacher || m) with m = (1 - alpha) student + alpha teacher.

    Returns:
        (...), in nats, >= 0 up to rounding.
    """
    if alpha == 0.0:
        return _kl(teacher, student)
    if alpha == 1.0:
        return _kl(student, teacher)
    weights = torch.tensor([1.0 - alpha, alpha], dtype=student.dtype, device=student.device).log()
    mixture = torch.logaddexp(student + weights[0], teacher + weights[1])
    return (1.0 - alpha) * _kl(student, mixture) + alpha * _kl(teacher, mixture)


def _kl(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) from log-probs; an outcome of probability 0 under p adds 0."""
    ratio = torch.where(p == -torch.inf, torch.zeros_like(p), p - q)
    return (p.exp() * ratio).sum(-1)


def top_k_outcomes(student: Tensor, teacher: Tensor, k: int, tail: bool) -> tuple[Tensor, Tensor]:
    """Both distributions over the student's k most probable outcomes.

    Args:
        student, teacher: (..., vocabulary), log-probs.
        k: how many outcomes; the vocabulary's size or more: all of them.
        tail: add one outcome with the rest of each distribution; otherwise both are normalised over the k.
    """
    if k >= student.shape[-1]:
        return student, teacher
    top = student.detach().topk(k, dim=-1).indices
    chosen = [values.gather(-1, top) for values in (student, teacher)]
    if not tail:
        return chosen[0].log_softmax(-1), chosen[1].log_softmax(-1)
    with_rest = [torch.cat([values, _log_rest(values)], -1) for values in chosen]
    return with_rest[0], with_rest[1]


def _log_rest(log_probs: Tensor) -> Tensor:
    """log(1 - sum p) over the last dimension, kept as a dimension of 1; bounded where rounding leaves no rest."""
    total = log_probs.logsumexp(-1, keepdim=True)
    floor = torch.finfo(log_probs.dtype).eps
    return torch.log(-torch.expm1(total.clamp(max=-floor)))
