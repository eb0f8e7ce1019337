"""Attention over a tree of rows: every token sees its ancestors and what comes before it in its own node.

On a CPU this is a cascade: one causal call of torch's flash kernel for each node, and for each node with descendants
one call more, in which all of these attend to the node at once. Nothing is copied per branch. The parts are joined by
their log-sum-exp, which is exact; the backward pass of each part needs only the joined output and log-sum-exp.

On CUDA it is one call of the variable-length kernel over gathered keys and values: each node's own tokens are the
queries, and the keys are its ancestors and itself, with a causal mask that is aligned at the end.
"""

from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ditto.model.prefix_tree.tree import Node

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class Branches:
    """The nodes of a tree, as attention needs them in every layer."""

    def __init__(self, nodes: list[Node], device: torch.device) -> None:
        self.nodes = nodes
        self.device = device

    @cached_property
    def paths(self) -> Tensor:
        """The places of each node's ancestors and of its own tokens, node by node; int64."""
        spans = torch.arange(self.nodes[-1].end if self.nodes else 0)
        paths: list[Tensor] = []
        for node in self.nodes:
            own = spans[node.start : node.end]
            paths.append(own if node.parent < 0 else torch.cat([paths[node.parent], own]))
        return torch.cat(paths).to(self.device)

    @cached_property
    def query_borders(self) -> tuple[Tensor, int]:
        """The borders of the nodes as the variable-length kernel takes them, and the longest node."""
        return self._borders([node.end - node.start for node in self.nodes])

    @cached_property
    def key_borders(self) -> tuple[Tensor, int]:
        """The borders of the paths, and the longest path."""
        lengths: list[int] = []
        for node in self.nodes:
            lengths.append(node.end - node.start + (lengths[node.parent] if node.parent >= 0 else 0))
        return self._borders(lengths)

    def _borders(self, lengths: list[int]) -> tuple[Tensor, int]:
        borders = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        return borders.to(self.device), max(lengths)


def cascade(query: Tensor, key: Tensor, value: Tensor, branches: Branches, scaling: float | None) -> Tensor:
    """Attention over a tree on a CPU.

    Args:
        query: (1, heads, tokens of the tree, head dim); key and value may have fewer heads.

    Returns:
        (1, heads, tokens, head dim), with gradients for query, key and value.
    """
    output: Tensor = _Cascade.apply(query, key, value, branches.nodes, scaling)
    return output


class _Cascade(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, nodes: list[Node], scaling: float | None
    ) -> Tensor:
        groups = query.shape[1] // key.shape[1]
        keys, values = (tensor.repeat_interleave(groups, dim=1) for tensor in (key, value))
        wide = torch.promote_types(query.dtype, torch.float32)
        output = torch.empty_like(query, dtype=wide)
        weight = query.new_empty(query.shape[:3], dtype=wide)  # log-sum-exp of the scores
        for node in nodes:
            own = slice(node.start, node.end)
            output[:, :, own], weight[:, :, own] = _forward(
                query[:, :, own], keys[:, :, own], values[:, :, own], is_causal=True, scale=scaling
            )
        for node in nodes:
            own, later = slice(node.start, node.end), slice(node.end, node.last)
            if node.last > node.end:
                seen, seen_weight = _forward(query[:, :, later], keys[:, :, own], values[:, :, own], scale=scaling)
                before = weight[:, :, later].clone()
                joined = torch.logaddexp(before, seen_weight)
                output[:, :, later] *= (before - joined).exp_().unsqueeze(-1)
                output[:, :, later] += seen * (seen_weight - joined).exp_().unsqueeze(-1)
                weight[:, :, later] = joined
        output = output.to(query.dtype)
        ctx.save_for_backward(query, key, value, output, weight)
        ctx.nodes, ctx.scaling = nodes, scaling
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, weight = ctx.saved_tensors
        groups = query.shape[1] // key.shape[1]
        keys, values = (tensor.repeat_interleave(groups, dim=1) for tensor in (key, value))
        wide = torch.promote_types(query.dtype, torch.float32)
        grads = [torch.zeros_like(tensor, dtype=wide) for tensor in (query, keys, values)]

        def add(queries: slice, own: slice, *, causal: bool) -> None:
            parts = _backward(
                *(tensor[:, :, queries] for tensor in (gradient, query)),
                *(tensor[:, :, own] for tensor in (keys, values)),
                *(tensor[:, :, queries] for tensor in (output, weight)),
                *(0.0, causal),
                scale=ctx.scaling,
            )
            for total, part, where in zip(grads, parts, (queries, own, own), strict=True):
                total[:, :, where] += part

        for node in ctx.nodes:
            own = slice(node.start, node.end)
            add(own, own, causal=True)
            if node.last > node.end:
                add(slice(node.end, node.last), own, causal=False)
        grad_query, grad_keys, grad_values = (total.to(query.dtype) for total in grads)
        grad_key, grad_value = (total.unflatten(1, (key.shape[1], groups)).sum(2) for total in (grad_keys, grad_values))
        return grad_query, grad_key, grad_value, None, None
