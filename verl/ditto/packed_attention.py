"""Attention over packed sequences on a CPU: each sequence by itself, nothing across their borders.

A pack is one row in which sequences lie one behind the other; position ids that begin anew tell the borders. On a GPU
flash attention takes it as it is. torch's sdpa has no such kernel on a CPU: transformers gives it a mask over the whole
pack, which costs the square of its length. Here sdpa is called once for each sequence. The name in a config is
`attn_implementation: packed_sdpa`; rows that are padded instead go to sdpa with their mask.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "packed_sdpa"


def register() -> None:
    """Make the name known to transformers, in this process."""
    AttentionInterface.register(NAME, packed_attention)
    AttentionMaskInterface.register(NAME, packed_mask)


def packed_mask(*args: Any, attention_mask: torch.Tensor | None = None, **kwargs: Any) -> torch.Tensor | None:
    """sdpa's mask for padded rows; none for a pack, whose borders `packed_attention` finds by itself."""
    return None if attention_mask is None else sdpa_mask(*args, attention_mask=attention_mask, **kwargs)


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    position_ids: torch.Tensor | None = None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention.

    Args:
        query: (batch, heads, tokens, head dim); key and value may have fewer heads.
        position_ids: (batch, tokens); of a pack, one row in which each sequence counts from 0.

    Returns:
        (batch, tokens, heads, head dim), and no weights.

    Raises:
        ValueError: a row without mask and without position ids: it could be a pack, and nobody could tell.
    """
    causal = kwargs.get("is_causal", getattr(module, "is_causal", True))  # a vision tower's is not: it has no packs
    if causal is not False and attention_mask is None and query.shape[0] == 1 and query.shape[2] > 1:
        if position_ids is None:
            raise ValueError(f"{NAME}: the model does not hand its position ids to attention, so borders are unknown")
        lengths = _lengths(position_ids)
        if len(lengths) > 1:
            groups = getattr(module, "num_key_value_groups", 1)
            parts = (
                tensor.split(lengths, dim=2) for tensor in (query, repeat_kv(key, groups), repeat_kv(value, groups))
            )
            done = [
                scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scaling, is_causal=True)
                for q, k, v in zip(*parts, strict=True)
            ]
            return torch.cat(done, dim=2).transpose(1, 2).contiguous(), None
    made: tuple[torch.Tensor, None] = sdpa_attention_forward(
        module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
    )
    return made


def _lengths(position_ids: torch.Tensor) -> list[int]:
    """The lengths of the sequences of a pack."""
    positions = position_ids[0]
    starts = (positions[1:] != positions[:-1] + 1).nonzero().flatten() + 1
    borders = [0, *starts.tolist(), len(positions)]
    return [end - start for start, end in zip(borders, borders[1:], strict=False)]
