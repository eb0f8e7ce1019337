"""Attention over packed sequences (`attn_implementation: packed`) on GPU and CPU, without further packages.

A pack is one row of several sequences, one after the other; position ids that start again at 0 mark the borders. On
CUDA, torch's own variable-length flash kernel processes the whole pack in bfloat16 or float16. In float32 and on a CPU,
sdpa is called once per sequence. Padded rows, and generation from a cache, use sdpa with their mask.

Importing this module registers the name with transformers. verl imports it in every process that builds a model
(`model.external_lib`). It imports nothing but torch and transformers, so that benchmarks run without verl.
"""

import weakref
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from ditto.model.prefix_tree.attention import Branches, cascade

NAME = "packed"
KERNEL_DTYPES = (torch.bfloat16, torch.float16)
_TAKES_GROUPS = "enable_gqa" in signature(varlen_attn).parameters  # torch 2.13 does, 2.11 does not


class Packing(NamedTuple):
    """The borders of the sequences in a row."""

    borders: Tensor  # int32 (sequences + 1,), on the row's device: 0, end of the first sequence, ..., end of the row
    lengths: list[int]


def packed_mask(
    batch_size: int, q_length: int, kv_length: int, *, attention_mask: Tensor | None = None, **kwargs: Any
) -> Tensor | None:
    """No mask for a pack, because `packed_attention` finds its borders itself; sdpa's mask for everything else.

    Windows (`local_size`) and the special masks of a few models (`use_vmap`) also get sdpa's mask. It is exact, but its
    size is the square of the row's length.
    """
    special = kwargs.get("local_size") is not None or kwargs.get("use_vmap", False)
    if attention_mask is None and batch_size == 1 and q_length == kv_length and not special:
        return None
    return sdpa_mask(batch_size, q_length, kv_length, attention_mask=attention_mask, **kwargs)


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    position_ids: Tensor | None = None,
    prefix_tree: Branches | None = None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention within each sequence of a pack, or within each row of a tree of rows.

    Args:
        query: (batch, heads, tokens, head dim); key and value may have fewer heads.
        position_ids: (batch, tokens); a pack has one row, in which each sequence counts from 0.
        prefix_tree: the row is a tree (`prefix_tree/`), and these are its branches.
        is_causal: None: the module's attribute decides. A vision tower is not causal, and passes one image at a time.

    Returns:
        (batch, tokens, heads, head dim), and None in place of attention weights.

    Raises:
        ValueError: a causal row has no position ids, so it could be a pack with unknown borders; or the model needs
            something that neither kernel computes.
    """
    for name in ("softcap", "s_aux"):
        if kwargs.get(name) is not None:
            raise ValueError(
                f"attn_implementation={NAME} does not support the `{name}` of {type(module).__name__}. Use sdpa or "
                "eager."
            )
    if prefix_tree is not None:
        return _by_tree(query, key, value, prefix_tree, scaling), None
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    tokens = query.shape[2]
    if attention_mask is not None or query.shape[0] != 1 or tokens != key.shape[2]:
        padded: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=causal, **kwargs
        )
        return padded
    if not causal or tokens == 1:
        packing = Packing(torch.tensor([0, tokens], dtype=torch.int32, device=query.device), [tokens])
    elif position_ids is None:
        raise ValueError(
            f"attn_implementation={NAME}: {type(module).__name__} does not pass position ids to attention, so the "
            "borders are unknown (Qwen-VL models: position_ids need four rows, the first of which counts the tokens)"
        )
    else:
        packing = packing_of(position_ids)
    query, key, value = _autocast(query, key, value)
    if _kernel_takes(query) and not dropout:
        borders, window = (packing.borders, max(packing.lengths)), (-1, 0) if causal else (-1, -1)
        return _by_kernel(query, key, value, borders, borders, window, scaling), None
    return by_sequence(query, key, value, packing, causal=causal, scaling=scaling, dropout=dropout), None


def _kernel_takes(query: Tensor) -> bool:
    return query.is_cuda and query.dtype in KERNEL_DTYPES


def _autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Cast to autocast's dtype if autocast is on: torch casts the inputs of sdpa, but not those of the kernel."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    return tuple(tensor.to(torch.get_autocast_dtype(device)) for tensor in tensors)


def _by_tree(query: Tensor, key: Tensor, value: Tensor, branches: Branches, scaling: float | None) -> Tensor:
    """Attention within each row of a tree."""
    query, key, value = _autocast(query, key, value)
    if not _kernel_takes(query):
        return cascade(query, key, value, branches, scaling).transpose(1, 2)
    key, value = (tensor.index_select(2, branches.paths) for tensor in (key, value))
    return _by_kernel(query, key, value, branches.query_borders, branches.key_borders, (-1, 0), scaling)


def _by_kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    queries: tuple[Tensor, int],
    keys: tuple[Tensor, int],
    window: tuple[int, int],
    scaling: float | None,
) -> Tensor:
    """One call of the flash kernel; `queries` and `keys` are borders and the longest sequence."""
    groups, grouped = query.shape[1] // key.shape[1], {}
    if groups > 1 and _TAKES_GROUPS:
        grouped = {"enable_gqa": True}
    elif groups > 1:
        key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    # (1, heads, tokens, head dim) -> (tokens, heads, head dim)
    packed = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    output: Tensor = varlen_attn(
        *packed, queries[0], keys[0], queries[1], keys[1], scale=scaling, window_size=window, **grouped
    )
    return output[None]


def by_sequence(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    packing: Packing,
    *,
    causal: bool,
    scaling: float | None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention with one call of sdpa per sequence."""
    groups = query.shape[1] // key.shape[1]
    parts = (t.split(packing.lengths, dim=2) for t in (query, repeat_kv(key, groups), repeat_kv(value, groups)))
    outputs = [
        scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scaling, is_causal=causal)
        for q, k, v in zip(*parts, strict=True)
    ]
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous()


_last: tuple[weakref.ref[Tensor], int, Packing] | None = None


def packing_of(position_ids: Tensor) -> Packing:
    """The borders of a pack: a sequence starts wherever a position is not its predecessor plus one.

    All layers of a model get the same tensor, so the last result is cached: the lengths must be copied to the host, and
    a GPU should not wait for that in every layer. Tensors of the inference mode have no version, and are not cached.

    Args:
        position_ids: (1, tokens), int.
    """
    global _last
    version = -1 if position_ids.is_inference() else position_ids._version
    if version >= 0 and _last is not None and _last[0]() is position_ids and _last[1] == version:
        return _last[2]
    packing = _find_sequences(position_ids[0])
    if version >= 0 and not torch.is_inference_mode_enabled():
        _last = (weakref.ref(position_ids), version, packing)
    return packing


def _find_sequences(positions: Tensor) -> Packing:
    starts = (positions[1:] != positions[:-1] + 1).nonzero().flatten() + 1
    borders = pad(pad(starts, (1, 0)), (0, 1), value=len(positions)).to(torch.int32)
    return Packing(borders, borders.diff().tolist())


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, packed_mask)
