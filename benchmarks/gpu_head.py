"""Compare chunked log-probs with full logits on one device: exactness, peak memory, time. Needs only torch, not verl.

The head is that of Qwen3-8B on a GPU (bfloat16), a narrower one on a CPU (float32); both have Qwen3's vocabulary.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import device_costs
from ditto.model.chunked_head import token_log_probs

VOCABULARY = 151_936
CHECKED = 512  # tokens for measuring errors: the reference uses a wider dtype and so more memory
Head = Callable[[nn.Linear, Tensor, Tensor], Tensor]


def full(head: nn.Linear, hidden: Tensor, labels: Tensor) -> Tensor:
    """Log-probs the usual way: logits, then a float32 log-softmax over all of them."""
    wide = torch.float64 if hidden.dtype == torch.float64 else torch.float32
    return torch.log_softmax(head(hidden), -1, dtype=wide).gather(-1, labels[:, None]).squeeze(-1)


def chunked(head: nn.Linear, hidden: Tensor, labels: Tensor) -> Tensor:
    """Our log-probs."""
    return token_log_probs(head, hidden, labels)[0]


def checked(head: nn.Linear, hidden: Tensor, labels: Tensor) -> Tensor:
    """Our log-probs in several chunks, however few tokens there are."""
    return token_log_probs(head, hidden, labels, chunk=100)[0]


def measure(device: str, tokens: int | None = None, hidden_size: int | None = None) -> dict[str, Any]:
    """Both heads side by side, trained and frozen (as with LoRA), forward and backward.

    Args:
        device: "cuda" or "cpu".
        tokens: tokens of the micro-batch; None: 8,192 on a GPU, 2,048 on a CPU.
        hidden_size: None: 4,096 on a GPU, 128 on a CPU.

    Returns:
        The sizes, and `heads`: for each head the peak memory beyond weights and hidden states in GB, seconds of a
        forward and backward pass, and the relative errors of log-probs and gradients against the next wider dtype.
    """
    on_gpu = torch.device(device).type == "cuda"
    tokens, hidden_size = tokens or (8192 if on_gpu else 2048), hidden_size or (4096 if on_gpu else 128)
    dtype = torch.bfloat16 if on_gpu else torch.float32
    torch.manual_seed(0)
    head = nn.Linear(hidden_size, VOCABULARY, bias=False, device=device, dtype=dtype)
    head.weight.data.normal_(std=4 * hidden_size**-0.5)  # logits with a standard deviation of 4, like a real model's
    hidden = torch.randn(tokens, hidden_size, device=device, dtype=dtype)
    labels = torch.randint(VOCABULARY, (tokens,), device=device)
    errors = _errors(head, hidden[:CHECKED], labels[:CHECKED])
    heads = []
    for trained in (True, False):
        head.weight.requires_grad_(trained)
        for name, log_probs in {"full logits": full, "chunked": chunked}.items():
            peak, seconds = _cost(log_probs, head, hidden, labels, repeats=3 if on_gpu else 1)
            heads.append({"head": name, "trained": trained, "peak_gb": peak, "seconds": seconds, **errors[name]})
    return {
        "dtype": str(dtype).removeprefix("torch."),
        "tokens": tokens,
        "hidden_size": hidden_size,
        "vocabulary": VOCABULARY,
        "heads": heads,
    }


def _step(log_probs: Head, head: nn.Linear, hidden: Tensor, labels: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Log-probs, and the gradients of their weighted sum."""
    hidden = hidden.detach().requires_grad_()
    values = log_probs(head, hidden, labels)
    weights = torch.linspace(-1, 1, len(labels), device=labels.device)
    loss = (weights * values).mean()
    sources = [hidden, head.weight] if head.weight.requires_grad else [hidden]
    return values.detach(), list(torch.autograd.grad(loss, sources))


def _errors(head: nn.Linear, hidden: Tensor, labels: Tensor) -> dict[str, dict[str, float]]:
    """Relative errors of each head against full logits in the next wider dtype."""
    wide = torch.float32 if hidden.dtype == torch.bfloat16 else torch.float64
    wider = nn.Linear(*reversed(head.weight.shape), bias=False, device=hidden.device, dtype=wide)
    wider.weight.data.copy_(head.weight.data)
    exact, exact_gradients = _step(full, wider, hidden.to(wide), labels)

    def off(value: Tensor, reference: Tensor) -> float:
        return float((value.to(wide) - reference).norm() / reference.norm())

    errors = {}
    for name, log_probs in {"full logits": full, "chunked": checked}.items():
        values, gradients = _step(log_probs, head, hidden, labels)
        gradient_errors = [off(*pair) for pair in zip(gradients, exact_gradients, strict=True)]
        errors[name] = {
            "log_prob_error": off(values, exact),
            "hidden_gradient_error": gradient_errors[0],
            "weight_gradient_error": gradient_errors[1],
        }
    return errors


def _cost(log_probs: Head, head: nn.Linear, hidden: Tensor, labels: Tensor, repeats: int) -> tuple[float, float]:
    """Peak memory in GB beyond what was in use before, and the median of the seconds."""
    on_gpu = hidden.is_cuda
    _step(log_probs, head, hidden[:64], labels[:64])  # warm-up: libraries load their kernels
    before = device_costs.reset_peak(on_gpu)
    seconds = device_costs.seconds_of(lambda: _step(log_probs, head, hidden, labels), repeats, on_gpu)
    return (device_costs.peak(on_gpu) - before) / 1e9, statistics.median(seconds)
