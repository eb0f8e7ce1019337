"""The memory that vLLM's CPU build gets for keys and values when it serves a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soul.errors import SoulError
from soul.host_resources import free_memory

NUMBER = 4  # bytes of float32
SEQUENCES = 16  # of full length; more do not run faster on a CPU
BLOCK = 128  # tokens; a sequence gets whole blocks
SHARE = 0.5  # of the free memory, at most; the rest is for weights, twice, and the server's processes


class CacheTooLarge(SoulError):
    """The free memory does not hold the keys and values of one sequence."""


def cache_bytes(config: Mapping[str, Any], context: int) -> int:
    """Bytes of the cache: for `SEQUENCES` sequences if they fit, at least for one.

    Args:
        config: the model's config.json; empty for a model that is not downloaded yet, which gets `SHARE`.
        context: the most tokens of a sequence.

    Raises:
        CacheTooLarge: the message says which context fits.
    """
    free = int(SHARE * free_memory())
    token = token_bytes(config)
    one = (context + 2 * BLOCK) * token  # vLLM keeps a block for itself
    if one > free:
        fitting = free // token - 2 * BLOCK
        raise CacheTooLarge(
            f"Keys and values of one sequence of {context:,} tokens need {one / 2**30:.1f} GiB, and a cache may have "
            f"{SHARE:.0%} of this machine's free memory: {free / 2**30:.1f} GiB. Serve a shorter context "
            f"(-- --max-model-len {max(fitting, BLOCK)}) or a smaller model, or stop other programs."
        )
    return min(SEQUENCES * one, free) if token else free


def token_bytes(config: Mapping[str, Any]) -> int:
    """Bytes of one token's keys and values in float32, all layers together; 0 if the config does not say."""
    text = config.get("text_config") or config
    heads = text.get("num_attention_heads") or 0
    width = text.get("head_dim") or (text.get("hidden_size", 0) // heads if heads else 0)
    return int(2 * (text.get("num_hidden_layers") or 0) * (text.get("num_key_value_heads") or heads) * width * NUMBER)
