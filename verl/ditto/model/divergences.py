"""The divergence of the policy from its teacher at a token, from the log-probs of both over the vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor


def token_divergence(student: Tensor, teacher: Tensor, alpha: float, top_k: int | None, tail: bool) -> Tensor:
    """Compare two distributions over the last dimension, or over the student's most probable outcomes.

    Args:
        student: (..., vocabulary), log-probs, with a gradient.
        teacher: the same shape, without.
        alpha, top_k, tail: `algorithm.sdpo` or `algorithm.distill`.

    Returns:
        (...), in nats, >= 0 up to rounding.
    """
    if top_k is not None:
        student, teacher = top_k_outcomes(student, teacher, top_k, tail)
    return divergence(student, teacher, alpha)


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
