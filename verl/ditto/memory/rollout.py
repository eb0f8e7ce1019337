"""vLLM's memory on a GPU: weights, working memory, and the rest of its share as cache for keys and values."""

from __future__ import annotations

from dataclasses import dataclass

from ditto.memory.model_shape import GIB, ModelShape
from ditto.memory.setup import Setup

# What vLLM keeps on the GPU while it sleeps: its CUDA context with workspaces, and the CUDA graphs, which cannot be
# moved. From vLLM's logs for dense models of up to 32B; the graphs depend on max_num_seqs.
CONTEXT, GRAPHS = 1.0 * GIB, 1.5 * GIB
CACHE_NUMBER = 2  # bytes of a number in the cache


@dataclass(frozen=True)
class RolloutMemory:
    """Bytes on one GPU."""

    weights: int
    working: int  # activations of the largest batch, logits, context, graphs
    cache: int  # negative: weights and working memory alone exceed the share
    cache_token: int  # bytes of one token's keys and values
    asleep: int  # stays on the GPU while vLLM sleeps

    @property
    def cached_tokens(self) -> int:
        """Number of tokens whose keys and values fit."""
        return max(self.cache, 0) // self.cache_token


def rollout_memory(shape: ModelShape, setup: Setup, gpu_bytes: int) -> RolloutMemory:
    """How vLLM divides its share of the GPU."""
    tp, share = setup.tensor_parallel, int(gpu_bytes * setup.utilization)
    tower = shape.vision_weights if setup.text_only else 0
    adapter = 0 if setup.merges_lora else shape.adapter(setup.lora_rank)
    weights = int(((shape.weights - tower) * setup.rollout_number + adapter * 2) / tp)
    fixed = int(CONTEXT + (0 if setup.eager else GRAPHS))
    # A layer's peak: the residual stream, gate, up and their product. Logits: bfloat16, and float32 twice.
    batch = setup.max_num_batched_tokens * 2 * (3 * shape.hidden + 3 * shape.intermediate // tp)
    logits = setup.max_num_seqs * shape.vocab * 10
    patches = 0 if setup.text_only else 4 * setup.max_num_batched_tokens  # an image has four patches per token
    vision = patches * 2 * 8 * shape.vision_hidden
    token = max(2 * shape.layers * shape.key_value * CACHE_NUMBER // tp, 1)
    working = batch + logits + vision + fixed
    sleeps = setup.frees_cache and setup.sleep_mode  # weights and cache leave the GPU while the policy is trained
    return RolloutMemory(weights, working, share - weights - working, token, asleep=fixed if sleeps else share)
