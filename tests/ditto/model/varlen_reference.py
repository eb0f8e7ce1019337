"""A stand-in for torch's variable-length kernel, which needs a GPU: the equation, from the kernel's own arguments.

Put in its place it makes the branch for CUDA run on a CPU. What is tested with it is the bookkeeping of that branch
(borders, longest sequence, layout, heads, window), not the kernel: that is `test_attention.py` on a GPU.
"""

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import varlen

from ditto.model import attention

SIGNATURE = inspect.signature(varlen.varlen_attn)  # the installed torch's


class Kernel:
    """Computes what the kernel would, and remembers the borders and windows of its calls."""

    def __init__(self, takes_groups: bool) -> None:
        self.takes_groups = takes_groups  # that of torch 2.11 wants as many heads of keys as of queries
        self.calls: list[tuple[list[int], tuple[int, int]]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        called = SIGNATURE.bind(*args, **kwargs)
        called.apply_defaults()
        given = called.arguments
        query, key, value, borders = (given[name] for name in ("query", "key", "value", "cu_seq_q"))
        for which, longest, tensors in (("cu_seq_q", "max_q", [query]), ("cu_seq_k", "max_k", [key, value])):
            assert given[which].dtype == torch.int32 and given[which][0] == 0
            assert given[longest] == int(given[which].diff().max())
            assert all(given[which][-1] == len(tensor) for tensor in tensors)
        groups = query.shape[1] // key.shape[1]
        assert given["enable_gqa"] == (groups > 1) and ("enable_gqa" not in kwargs or self.takes_groups)
        assert all(tensor.stride(-1) == 1 for tensor in (query, key, value))  # the kernel wants it
        self.calls.append((borders.tolist(), given["window_size"]))
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        scores = torch.einsum("qhd,khd->hqk", query, key) * given["scale"]
        sides = [(torch.arange(len(side)), given[name]) for side, name in ((query, "cu_seq_q"), (key, "cu_seq_k"))]
        of_query, of_key = (torch.bucketize(place, ends[1:], right=True) for place, ends in sides)
        seen = of_query[:, None] == of_key[None, :]
        if given["window_size"] == (-1, 0):  # aligned at the ends of a sequence's queries and keys
            to_end, key_to_end = (
                ends[1:][of] - place for (place, ends), of in zip(sides, (of_query, of_key), strict=True)
            )
            seen = seen & (to_end[:, None] <= key_to_end[None, :])
        return torch.einsum("hqk,khd->qhd", scores.masked_fill(~seen, float("-inf")).softmax(-1), value)


@pytest.fixture(params=["sequence by sequence", "the kernel's branch", "torch 2.11"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kernel | None:
    """The branches of `packed`: as on a CPU, and as on a GPU with a stand-in for the kernel of two torch versions."""
    if request.param == "sequence by sequence":
        return None
    stand_in = Kernel(takes_groups=request.param != "torch 2.11")
    monkeypatch.setattr(attention, "_TAKES_GROUPS", stand_in.takes_groups)
    monkeypatch.setattr(attention, "varlen_attn", stand_in)
    monkeypatch.setattr(attention, "_kernel_takes", lambda query: True)
    return stand_in
