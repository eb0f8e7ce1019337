"""A model's head, a chunk of tokens at a time, without (tokens x vocabulary) logits: log-probs, entropy, divergences.

With a vocabulary of 152k, a micro-batch of 49k tokens has 15 GB of bfloat16 logits, and their float32 softmax is twice
as large. Here the logits of only one chunk exist at a time: the forward pass keeps only the hidden states, and the
backward pass computes each chunk's logits again. Logits are in the model's dtype, everything after them in float32.

The head is called as a module (a Linear, with or without LoRA, tied to the embedding or not), inside FSDP2's hooks. An
untied head is its own FSDP2 unit (verl's apply_fsdp2): its weight is gathered only between its pre- and post-forward
hooks, and `register_fsdp_forward_method` runs these once around all chunks. A tied head's weight belongs to the root
unit and is gathered while the root's forward runs.

verl's engine has an interface for heads that make no logits (`model.use_fused_kernels`): it calls the model with
`temperature` and `shift_labels`, and reads `log_probs` and `entropy`; our engine adds `teacher_scores`, `divergence`.
verl's own implementations fail under FSDP2 with an untied head, because they read a sharded weight. Ours are subclasses
of the models' own classes (`with_chunked_head`), which our engine gives to the models that it builds; verl leaves them
alone, because it does not know `fused_kernel_options.impl_backend=chunked`. `exactness.py` checks that a model's logits
are `lm_head` of the output of `model`.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.nn import functional
from transformers.modeling_outputs import CausalLMOutputWithPast

from ditto.model.divergences import token_divergence

# Tokens per chunk x vocabulary: 768 tokens at 152k. At the peak there are 8 to 10 bytes per logit (1.2 GB), or 14 if
# entropy is trained too.
LOGITS_PER_CHUNK = 2**27


# ---- chunks --------------------------------------------------------------------------------------------------------


class _PerToken(Protocol):
    """Results that are computed from the logits of a chunk."""

    @property
    def outputs(self) -> int:
        """The number of values for each token."""

    def values(self, head: Any, logits: Tensor, part: slice) -> tuple[Tensor, ...]:
        """The values of a chunk's tokens, of shape (tokens,) each."""

    def gradient(self, head: Any, logits: Tensor, part: slice, gradients: Sequence[Tensor | None]) -> Tensor:
        """The gradient of the loss with respect to a chunk's logits, from those of its values."""


def _in_chunks(head: nn.Module, name: str, per_token: _PerToken, hidden: Tensor, chunk: int | None) -> list[Tensor]:
    """The values of every token of `hidden` (..., hidden size), between FSDP2's hooks around the head.

    Args:
        name: the attribute of the head that FSDP2 wraps with its hooks; one for each kind of value.
        chunk: tokens per chunk; None: as many as LOGITS_PER_CHUNK allows.
    """

    def run(head: Any, per_token: _PerToken, hidden: Tensor, chunk: int | None) -> tuple[Tensor, ...]:
        _require_chunkable(head)
        if chunk is None:
            chunk = max(1, LOGITS_PER_CHUNK // len(head.weight))
            chunk = chunk if chunk < 256 else chunk // 256 * 256  # a multiple of the tile size of matrix products
        outputs: tuple[Tensor, ...] = _Chunked.apply(head, per_token, chunk, hidden, *_trained(head))
        return outputs

    method = MethodType(run, head)
    if isinstance(head, FSDPModule):
        if name not in vars(head):
            setattr(head, name, method)
            register_fsdp_forward_method(head, name)
        method = getattr(head, name)
    return list(method(per_token, hidden, chunk))


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


def _trained(head: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in head.parameters() if parameter.requires_grad]


def _chunks(tokens: int, chunk: int) -> Iterator[slice]:
    return (slice(start, min(start + chunk, tokens)) for start in range(0, tokens, chunk))


class _Chunked(torch.autograd.Function):
    """Head and values in chunks. The parameters are arguments only so that autograd tracks them."""

    @staticmethod
    def forward(
        ctx: Any, head: nn.Module, per_token: _PerToken, chunk: int, hidden: Tensor, *_trained: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)  # an unused entropy costs nothing in the backward pass
        shape, hidden = hidden.shape[:-1], hidden.flatten(0, -2)
        ctx.save_for_backward(hidden)
        ctx.head, ctx.per_token, ctx.chunk, ctx.shape = head, per_token, chunk, shape
        ctx.autocast = torch.is_autocast_enabled(hidden.device.type), torch.get_autocast_dtype(hidden.device.type)
        # Not views of flat tensors: FSDP2 registers hooks on the outputs of a forward, and warns about views.
        outputs = tuple(hidden.new_empty(shape, dtype=_wide(hidden)) for _ in range(per_token.outputs))
        for part in _chunks(len(hidden), chunk):
            values = per_token.values(head, head.forward(hidden[part]), part)
            for output, value in zip(outputs, values, strict=True):
                output.view(-1)[part] = value
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        (hidden,), head, trained = ctx.saved_tensors, ctx.head, _trained(ctx.head)
        need_hidden = ctx.needs_input_grad[3]
        grad_hidden = torch.empty_like(hidden) if need_hidden else None
        # Sum the chunks in float32 and round once, like one matrix product over all tokens would.
        sums = [torch.zeros_like(p, dtype=torch.promote_types(p.dtype, torch.float32)) for p in trained]
        enabled, dtype = ctx.autocast
        for part in _chunks(len(hidden), ctx.chunk):
            of_part = [None if gradient is None else gradient.flatten()[part] for gradient in gradients]
            with torch.autocast(hidden.device.type, dtype=dtype, enabled=enabled):
                with torch.enable_grad():
                    rows = hidden[part].detach().requires_grad_(need_hidden)
                    logits = head.forward(rows)
                grad_logits = ctx.per_token.gradient(head, logits.detach(), part, of_part).to(logits.dtype)
            found = list(torch.autograd.grad(logits, [rows, *trained] if need_hidden else trained, grad_logits))
            del logits, grad_logits  # free them before the next chunk
            if grad_hidden is not None:
                grad_hidden[part] = found.pop(0)
            for total, gradient in zip(sums, found, strict=True):
                total.add_(gradient)
        if grad_hidden is not None:
            grad_hidden = grad_hidden.view(*ctx.shape, hidden.shape[-1])
        return None, None, None, grad_hidden, *(t.to(p.dtype) for t, p in zip(sums, trained, strict=True))


def _wide(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    """Log-softmax of logits / temperature, in float32 (float64 for float64 logits)."""
    if temperature == 1.0:
        return torch.log_softmax(logits, dim=-1, dtype=_wide(logits))
    return torch.log_softmax(logits.to(_wide(logits), copy=True).div_(temperature), dim=-1)


# ---- log-probs and entropy -----------------------------------------------------------------------------------------


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
    per_token = _LogProbs(labels.flatten(), temperature)
    log_probs, entropy = _in_chunks(head, "token_log_probs", per_token, hidden, chunk)
    return log_probs, entropy


@dataclass(frozen=True)
class _LogProbs:
    """Log-probs of the labels (tokens,), and entropies."""

    labels: Tensor
    temperature: float
    outputs: int = 2

    def values(self, head: Any, logits: Tensor, part: slice) -> tuple[Tensor, Tensor]:
        scores = _log_softmax(logits, self.temperature)
        log_probs = scores.gather(-1, self.labels[part, None]).squeeze(-1)
        return log_probs, scores.exp().mul_(scores).sum(-1).neg_()

    def gradient(self, head: Any, logits: Tensor, part: slice, gradients: Sequence[Tensor | None]) -> Tensor:
        """The gradient by hand, which takes less memory than autograd's.

        With z = logits / T, p = softmax(z), entropy H of p, and label y:
        d log p_y / d z_j = [j = y] - p_j, and d H / d z_j = -p_j (log p_j + H).
        """
        grad_log_probs, grad_entropy = gradients
        scores = _log_softmax(logits, self.temperature)
        if grad_entropy is None:
            assert grad_log_probs is not None
            grad_logits = scores.exp_().mul_(-grad_log_probs[:, None])
        else:
            probs = scores.exp()
            entropy = (probs * scores).sum(-1, keepdim=True).neg_()
            grad_logits = scores.add_(entropy).mul_(-grad_entropy[:, None])
            if grad_log_probs is not None:
                grad_logits.sub_(grad_log_probs[:, None])
            grad_logits.mul_(probs)
        if grad_log_probs is not None:
            grad_logits[torch.arange(len(logits), device=logits.device), self.labels[part]] += grad_log_probs
        return grad_logits.div_(self.temperature)


# ---- divergence from a teacher -------------------------------------------------------------------------------------


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
    """The divergence between student and teacher at each position of the scores.

    Args:
        head: the model's `lm_head`. Call this inside the forward of the FSDP2 root.
        hidden: (1, tokens, hidden size), the student's hidden states of the packed micro-batch.
        temperature: both models' logits are divided by it; above 0.

    Returns:
        (m,), in nats, in float32 (float64 for float64 hidden states). Its gradient flows through the student alone: to
        `hidden` and to the head's trained parameters.

    Raises:
        RuntimeError: the head's weight is not gathered, or the head has active dropout.
    """
    chunk = max(1, LOGITS_PER_CHUNK // 2 // head.weight.shape[0])  # there are logits of both
    per_token = _Divergences(scores, temperature)
    (values,) = _in_chunks(head, "token_divergences", per_token, hidden[0, scores.positions], chunk)
    return values


@dataclass(frozen=True)
class _Divergences:
    """The divergence of each token from the teacher."""

    scores: TeacherScores
    temperature: float
    outputs: int = 1

    def values(self, head: Any, logits: Tensor, part: slice) -> tuple[Tensor]:
        scores = self.scores
        with torch.no_grad():
            hidden = scores.hidden[part]
            taught = head.forward(hidden) if scores.weight is None else functional.linear(hidden, scores.weight)
            teacher = _log_softmax(taught, self.temperature)
        student = _log_softmax(logits, self.temperature)
        return (token_divergence(student, teacher, scores.alpha, scores.top_k, scores.tail),)

    def gradient(self, head: Any, logits: Tensor, part: slice, gradients: Sequence[Tensor | None]) -> Tensor:
        with torch.enable_grad():
            (values,) = self.values(head, logits.requires_grad_(), part)
        (gradient,) = torch.autograd.grad(values, logits, gradients[0])
        return gradient


# ---- the model's class ---------------------------------------------------------------------------------------------


@dataclass
class TokenLogProbs(CausalLMOutputWithPast):
    """The output that verl's engine reads from a model without logits."""

    log_probs: Tensor | None = None  # (batch, tokens), of the next token
    entropy: Tensor | None = None  # (batch, tokens)
    divergence: Tensor | None = None  # (positions of all teacher_scores,)


def with_chunked_head(base: type[Any]) -> type[Any]:
    """A subclass that returns log-probs if called with `temperature`. The name stays: saved configs contain it."""

    @functools.wraps(base.forward)  # generate() and peft inspect the signature
    def forward(
        self: Any,
        input_ids: Tensor | None = None,
        *args: Any,
        temperature: float | None = None,
        shift_labels: Tensor | None = None,
        logits_to_keep: Tensor | int = 0,
        hidden_only: bool = False,
        teacher_scores: Sequence[TeacherScores] = (),
        **kwargs: Any,
    ) -> Any:
        if temperature is None:
            return base.forward(self, input_ids, *args, logits_to_keep=logits_to_keep, **kwargs)
        for name in ("labels", "return_dict"):  # verl passes the former, peft the latter
            kwargs.pop(name, None)
        if shift_labels is None:  # padded rows; the label of a row's last token is never used
            assert input_ids is not None
            shift_labels = torch.roll(input_ids, -1, -1)
        hidden = self.model(input_ids, *args, **kwargs)[0]
        if hidden_only:
            return TokenLogProbs(hidden_states=(hidden,))
        if isinstance(logits_to_keep, Tensor):  # places, as in transformers; shift_labels are those of these places
            hidden = hidden[:, logits_to_keep]
        log_probs, entropy = token_log_probs(self.lm_head, hidden, shift_labels, temperature)
        parts = [token_divergences(self.lm_head, hidden, scores, temperature) for scores in teacher_scores]
        return TokenLogProbs(log_probs=log_probs, entropy=entropy, divergence=torch.cat(parts) if parts else None)

    return type(base.__name__, (base,), {"forward": forward, "__module__": base.__module__})
