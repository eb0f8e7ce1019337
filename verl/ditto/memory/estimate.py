"""Estimate the memory of a training process: weights, gradients, optimizer, activations, logits.

One arithmetic serves GPUs and CPUs, RL and SFT. It adds up what can be there at once in a decoder layer, and in the
head, so with its reserve it is never below what torch's FSDP2 memory tracker counts, and not far above
(`tests/ditto/memory`). It needs no verl: benchmarks use it without.

The coefficients are those of transformers' decoder layers under FSDP2, with RMSNorm in float32, gradient checkpointing
per layer, AdamW, flash attention, and our output head, which computes logits in chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from itertools import product
from typing import Any

from ditto.memory.model_shape import GIB, ModelShape

# Logits per chunk, and the number that its tokens are a multiple of. Same as in ditto.model.chunked_head.
CHUNK_LOGITS, CHUNK_TOKENS = 2**27, 256
# Bytes per logit: of a chunk (bfloat16 logits, float32 log-softmax, its exponentials), and without chunks.
CHUNK_LOGIT, FULL_LOGIT = 10, 6
# Bytes per weight of a trained head: the sum of the chunks' gradients in float32, and the last chunk's in bfloat16.
HEAD_GRADIENT = 6
# What no tracker sees, assumed from logs: CUDA context, NCCL and workspaces, and the share of activations and logits
# that is lost to fragments.
TRAINER, FRAGMENTS = 1.5 * GIB, 0.04

Change = dict[str, Any]  # name of a setting -> its value


@dataclass(frozen=True)
class TrainingSetup:
    """The way a model is trained. Sizes of numbers are in bytes."""

    devices: int = 1  # number of devices that the weights are sharded over
    lora_rank: int = 0  # 0: every weight is trained
    master: int = 4  # a trained weight in the optimizer
    frozen: int = 2  # a weight that LoRA does not train
    compute: int = 2  # a gathered weight, an activation
    reduce: int = 4  # a gradient while devices exchange it
    optimizer: int = 8  # all optimizer states of one trained weight
    checkpointing: bool = True
    reshard: bool = True  # a layer's gathered weights are freed after its forward pass
    keep_gathered_gradients: bool = False  # gradients are exchanged only after the last micro-batch
    offloaded: bool = False  # FSDP2's offload policy: shards, gradients and optimizer are on the host
    full_logits: bool = False  # all logits of a micro-batch exist at once, not just one chunk
    teacher_copies: int = 0  # of the trained weights, in float32 shards (`ditto/model/teacher_weights.py`)

    @property
    def stored(self) -> int:
        """Bytes in a shard per weight of the model itself (not of the adapter)."""
        return self.frozen if self.lora_rank else self.master


@dataclass(frozen=True)
class Memory:
    """Bytes of one training process, by purpose."""

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    logits: int = 0

    @property
    def total(self) -> int:
        """The sum."""
        return sum(astuple(self))

    @property
    def reserve(self) -> int:
        """Further bytes on a GPU; activations and logits are freed all the time, so they fragment."""
        return int(TRAINER) + int(FRAGMENTS * (self.activations + self.logits))


def trained_weights(shape: ModelShape, training: TrainingSetup) -> int:
    """Number of weights that have a gradient."""
    return shape.adapter(training.lora_rank) if training.lora_rank else shape.weights


def trained_shard(shape: ModelShape, training: TrainingSetup, bytes_per_weight: int) -> int:
    """Bytes of one device's part of a value that each trained weight has: a gradient, an optimizer state, a copy."""
    return trained_weights(shape, training) * bytes_per_weight // training.devices


def shard_bytes(shape: ModelShape, training: TrainingSetup) -> int:
    """Bytes of one device's part of the weights."""
    adapter = shape.adapter(training.lora_rank)
    return (shape.weights * training.stored + adapter * training.master) // training.devices


def update_moments(shape: ModelShape, tokens: int, training: TrainingSetup) -> list[Memory]:
    """The moments of an optimizer update that can be its peak: in a decoder layer, in the head, AdamW's step.

    Args:
        tokens: tokens of a micro-batch.
    """
    full, c = training.lora_rank == 0, training.compute
    shard = _sharded(shape, training)
    gradients = 0 if training.offloaded else trained_shard(shape, training, training.master)
    optimizer = 0 if training.offloaded else trained_shard(shape, training, training.optimizer)
    kept_gradients = training.keep_gathered_gradients * trained_weights(shape, training) * training.reduce
    # Gradients on their way to the other devices: of a decoder layer, and of the head.
    layer = (shape.layer_weights if full else shape.layer_adapter(training.lora_rank)) * (c + training.reduce)
    head = full * shape.embedding * (c if training.full_logits else HEAD_GRADIENT)
    kept, backward = layer_activations(shape, training)
    stream = c * shape.hidden  # the input of a layer; with checkpointing nothing else is kept
    held, in_layer = (stream, kept + backward) if training.checkpointing else (kept, backward)
    return [
        Memory(
            weights=shard + _gathered_layers(shape, training),
            gradients=gradients + kept_gradients + layer,
            optimizer=optimizer,
            activations=tokens * (shape.layers * held + in_layer),
        ),
        Memory(
            weights=shard + _gathered_head(shape, training),
            gradients=gradients + kept_gradients + head,
            optimizer=optimizer,
            activations=tokens * (shape.layers * held + 5 * stream),
            logits=_logit_bytes(shape, tokens, training),
        ),
        # The foreach implementation takes the square root of all second moments at once, when the passes are over.
        Memory(weights=shard, gradients=2 * gradients, optimizer=optimizer),
    ]


def forward_moments(
    shape: ModelShape, tokens: int, training: TrainingSetup, optimizer_here: bool = True
) -> list[Memory]:
    """The same of a pass without gradients, which computes log-probs: in a decoder layer, in the head.

    Args:
        optimizer_here: the optimizer stays on the device.
    """
    here = optimizer_here and not training.offloaded
    optimizer = here * trained_shard(shape, training, training.optimizer)
    shard = _sharded(shape, training)
    width = 4 * training.compute * (shape.hidden + shape.intermediate)
    layer = Memory(shard + _gathered_layers(shape, training), 0, optimizer, tokens * width)
    logits = _logit_bytes(shape, tokens, training)
    head = Memory(shard + _gathered_head(shape, training), 0, optimizer, tokens * 8 * shape.hidden, logits)
    return [layer, head]


def largest(moments: Iterable[Memory]) -> Memory:
    """The largest of some moments."""
    return max(moments, key=lambda memory: memory.total)


def layer_activations(shape: ModelShape, training: TrainingSetup) -> tuple[int, int]:
    """Bytes per token that one decoder layer keeps for its backward pass, and that the backward pass needs in addition.

    Kept: the float32 inputs and the outputs of both norms, queries and keys before and after norm and rotation, values,
    the attention's output, gate, up, their activation and product. The input of a frozen weight is not kept.
    """
    c, full = training.compute, training.lora_rank == 0
    norms = (8 if full else 6) * c * shape.hidden
    projections = (3 if shape.qk_norm else 2) + shape.qk_norm * (2 if full else 1)
    kept = norms + projections * c * (shape.query + shape.key_value) + 4 * c * shape.intermediate
    # The larger of: gradients of gate and up; float32 gradients of a norm, when the MLP's tensors are already freed.
    backward = max(2 * c * shape.intermediate, 9 * c * shape.hidden - 4 * c * shape.intermediate)
    return kept + 8 * c * training.lora_rank, backward + (0 if full else c * shape.hidden)


def _logit_bytes(shape: ModelShape, tokens: int, training: TrainingSetup) -> int:
    """Bytes of all logits of a micro-batch, or of one chunk of them."""
    if training.full_logits:
        return tokens * shape.vocab * FULL_LOGIT
    chunk = CHUNK_LOGITS // shape.vocab
    whole_tiles = chunk if chunk < CHUNK_TOKENS else chunk // CHUNK_TOKENS * CHUNK_TOKENS
    return min(tokens, whole_tiles) * shape.vocab * CHUNK_LOGIT


def _sharded(shape: ModelShape, training: TrainingSetup) -> int:
    """Bytes of this device's shards: the weights, and the copies that a distillation keeps."""
    copies = training.teacher_copies * trained_shard(shape, training, training.master)
    return 0 if training.offloaded else shard_bytes(shape, training) + copies


def _gathered_layers(shape: ModelShape, training: TrainingSetup) -> int:
    """Bytes of whole weights in a decoder layer: the root for a whole pass, the layer, and what is fetched ahead."""
    root = shape.root_weights * training.compute
    layer = (shape.layer_weights + shape.layer_adapter(training.lora_rank)) * training.compute
    embedding = 0 if shape.tied else shape.embedding * training.compute  # follows the first layer's backward pass
    return root + layer + max(layer, embedding) if training.reshard else root + shape.layers * layer + 2 * embedding


def _gathered_head(shape: ModelShape, training: TrainingSetup) -> int:
    """Bytes of whole weights in the head, the last unit; the buffer in which it arrived still exists.

    Full logits are turned into log-probs outside of the model, where nothing is gathered.
    """
    if training.full_logits:
        return 0
    if not training.reshard:
        return _gathered_layers(shape, training)
    return (shape.root_weights + (0 if shape.tied else 2 * shape.embedding)) * training.compute


# ---- remedies ------------------------------------------------------------------------------------------------------


def first_fit(values: Change, fits: Callable[[Change], bool]) -> Change | None:
    """The cheapest change with which a run fits; None if there is none.

    Args:
        values: setting -> its values: first the one of the run, then the others; the cheapest setting first.
        fits: computes the memory with other values.
    """
    for chosen in product(*reversed(list(values.values()))):
        named = dict(zip(reversed(list(values)), chosen, strict=True))
        change = {name: named[name] for name in values if named[name] != values[name][0]}
        if fits(change):
            return change
    return None


def lower_limits(limit: int, longest: int) -> list[int]:
    """A token limit of a micro-batch and lower ones, down to the longest sequence, which must fit."""
    halves = [limit >> n for n in range(limit.bit_length()) if limit >> n > longest]
    return [*halves, min(limit, longest)]
