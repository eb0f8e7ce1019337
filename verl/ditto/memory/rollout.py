"""vLLM's memory on a GPU: weights, working memory, and the rest of its share as cache for keys and values."""

from __future__ import annotations

from dataclasses import dataclass

from ditto.memory.model_shape import GIB, ModelShape

# What vLLM keeps on the GPU while it sleeps: its CUDA context with workspaces, and the CUDA graphs, which cannot be
# moved. From vLLM's logs for dense models of up to 32B; the graphs depend on max_num_seqs.
CONTEXT, GRAPHS = 1.0 * GIB, 1.5 * GIB


@dataclass(frozen=True)
class Rollout:
    """How vLLM is configured."""

    utilization: float  # its share of the GPU
    tensor_parallel: int = 1
    weight: float = 2.0  # bytes per weight
    cache_number: int = 2  # bytes of a number in the cache
    lora_rank: int = 0  # rank of the adapter that vLLM applies; 0: none, or merged into the weights
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    eager: bool = False  # no CUDA graphs
    text_only: bool = False  # vLLM loads no vision tower
    sleeps: bool = True  # weights and cache leave the GPU while the policy is trained


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


def rollout_memory(shape: ModelShape, rollout: Rollout, gpu_bytes: int) -> RolloutMemory:
    """How vLLM divides its share of the GPU."""
    tp = rollout.tensor_parallel
    tower = shape.vision_weights if rollout.text_only else 0
    weights = int(((shape.weights - tower) * rollout.weight + shape.adapter(rollout.lora_rank) * 2) / tp)
    fixed = int(CONTEXT + (0 if rollout.eager else GRAPHS))
    # A layer's peak: the residual stream, gate, up and their product. Logits: bfloat16, and float32 twice.
    batch = rollout.max_num_batched_tokens * 2 * (3 * shape.hidden + 3 * shape.intermediate // tp)
    logits = rollout.max_num_seqs * shape.vocab * 10
    patches = 0 if rollout.text_only else 4 * rollout.max_num_batched_tokens  # an image has four patches per token
    vision = patches * 2 * 8 * shape.vision_hidden
    token = max(2 * shape.layers * shape.key_value * rollout.cache_number // tp, 1)
    working = batch + logits + vision + fixed
    cache = int(gpu_bytes * rollout.utilization) - weights - working
    asleep = fixed if rollout.sleeps else int(gpu_bytes * rollout.utilization)
    return RolloutMemory(weights, working, cache, token, asleep)
