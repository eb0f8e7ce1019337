"""Estimate the memory of a training process: weights, gradients, optimizer, activations, logits.

One arithmetic serves GPUs and CPUs, RL and SFT. It adds up what can be there at once in a decoder layer, and in the
head, so with its reserve it is never below what torch's FSDP2 memory tracker counts, and not far above
(`tests/ditto/memory`). It needs no verl: benchmarks use it without.

The coefficients are those of transformers' decoder layers under FSDP2, with RMSNorm in float32, gradient checkpointing
per layer, AdamW, flash attention, and our output head, which computes logits in chunks.
"""

from collections.abc import Callable
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


@dataclass(frozen=True)
class TrainingSetup:
    """A model and the way it is trained, in one process. Sizes of numbers are in bytes."""

    shape: ModelShape
    devices: int = 1  # number of devices that the weights are sharded over
    lora_rank: int = 0  # 0: every weight is trained
    master: int = 4  # a trained weight in the optimizer
    compute: int = 2  # a gathered weight, an activation, and a weight that LoRA does not train
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
        return self.compute if self.lora_rank else self.master

    @property
    def trained(self) -> int:
        """Number of weights that have a gradient."""
        return self.shape.adapter(self.lora_rank) if self.lora_rank else self.shape.weights

    @property
    def shard(self) -> int:
        """Bytes of one device's part of the weights."""
        adapter = self.shape.adapter(self.lora_rank)
        return (self.shape.weights * self.stored + adapter * self.master) // self.devices

    def part(self, bytes_per_weight: int) -> int:
        """Bytes of one device's part of what each trained weight has: a gradient, an optimizer state, a copy."""
        return self.trained * bytes_per_weight // self.devices

    def update(self, tokens: int) -> list[Memory]:
        """The moments of an optimizer update that can be its peak: in a decoder layer, in the head, AdamW's step.

        Args:
            tokens: tokens of a micro-batch.
        """
        shape, here, c = self.shape, not self.offloaded, self.compute
        gradients, optimizer = here * self.part(self.master), here * self.part(self.optimizer)
        kept = gradients + self.keep_gathered_gradients * self.trained * self.reduce
        # Gradients on their way to the other devices: of a decoder layer, and of the head.
        layer = (shape.layer_adapter(self.lora_rank) if self.lora_rank else shape.layer_weights) * (c + self.reduce)
        head = (not self.lora_rank) * shape.embedding * (c if self.full_logits else HEAD_GRADIENT)
        for_backward, in_backward = self.layer_activations()
        stream = c * shape.hidden  # the input of a layer; with checkpointing nothing else is kept
        held, in_layer = (stream, for_backward + in_backward) if self.checkpointing else (for_backward, in_backward)
        activations = shape.layers * held
        return [
            Memory(self._weights(head=False), kept + layer, optimizer, tokens * (activations + in_layer)),
            Memory(
                self._weights(head=True),
                kept + head,
                optimizer,
                tokens * (activations + 5 * stream),
                self._logits(tokens),
            ),
            # The foreach implementation takes the square root of all second moments at once, after the passes.
            Memory(self._own(), 2 * gradients, optimizer),
        ]

    def forward(self, tokens: int, optimizer_here: bool = True) -> list[Memory]:
        """The same of a pass without gradients, which computes log-probs: in a decoder layer, in the head.

        Args:
            optimizer_here: the optimizer stays on the device.
        """
        optimizer = (optimizer_here and not self.offloaded) * self.part(self.optimizer)
        width = 4 * self.compute * (self.shape.hidden + self.shape.intermediate)
        return [
            Memory(self._weights(head=False), 0, optimizer, tokens * width),
            Memory(self._weights(head=True), 0, optimizer, tokens * 8 * self.shape.hidden, self._logits(tokens)),
        ]

    def layer_activations(self) -> tuple[int, int]:
        """Bytes per token that a decoder layer keeps for its backward pass, and that this pass needs in addition.

        Kept: the float32 inputs and the outputs of both norms, queries and keys before and after norm and rotation,
        values, the attention's output, gate, up, their activation and product. The input of a frozen weight is not.
        """
        c, full, shape = self.compute, not self.lora_rank, self.shape
        norms = (8 if full else 6) * c * shape.hidden
        projections = (3 if shape.qk_norm else 2) + shape.qk_norm * (2 if full else 1)
        kept = norms + projections * c * (shape.query + shape.key_value) + 4 * c * shape.intermediate
        # The larger of: gradients of gate and up; float32 gradients of a norm, when the MLP's tensors are freed.
        backward = max(2 * c * shape.intermediate, 9 * c * shape.hidden - 4 * c * shape.intermediate)
        return kept + 8 * c * self.lora_rank, backward + (0 if full else c * shape.hidden)

    def _logits(self, tokens: int) -> int:
        """Bytes of all logits of a micro-batch, or of one chunk of them."""
        if self.full_logits:
            return tokens * self.shape.vocab * FULL_LOGIT
        chunk = CHUNK_LOGITS // self.shape.vocab
        whole_tiles = chunk if chunk < CHUNK_TOKENS else chunk // CHUNK_TOKENS * CHUNK_TOKENS
        return min(tokens, whole_tiles) * self.shape.vocab * CHUNK_LOGIT

    def _own(self) -> int:
        """Bytes of this device's shards: the weights, and the copies that a distillation keeps."""
        return 0 if self.offloaded else self.shard + self.teacher_copies * self.part(self.master)

    def _weights(self, head: bool) -> int:
        """Bytes of this device's shards and of the gathered weights, in a decoder layer or in the head, the last unit.

        The root is gathered for a whole pass. In a layer also the next one, or the embedding, whose turn is after the
        first layer's backward pass; in the head the buffer in which it arrived. Full logits are turned into log-probs
        outside of the model, where nothing is gathered.
        """
        shape, c = self.shape, self.compute
        if head and self.full_logits:
            return self._own()
        layer = (shape.layer_weights + shape.layer_adapter(self.lora_rank)) * c
        embedding = 0 if shape.tied else shape.embedding * c
        if not self.reshard:
            units = shape.layers * layer + 2 * embedding
        else:
            units = 2 * embedding if head else layer + max(layer, embedding)
        return self._own() + shape.root_weights * c + units


def largest(moments: list[Memory]) -> Memory:
    """The largest of some moments."""
    return max(moments, key=lambda memory: memory.total)


def first_fit(values: dict[str, list[Any]], fits: Callable[[Change], bool]) -> Change | None:
    """The cheapest change with which a run fits; None if there is none.

    Args:
        values: setting -> its values: first the one of the run, then the others; the cheapest setting first.
        fits: computes the memory with other values.
    """
    for chosen in product(*reversed(values.values())):
        change = {name: value for name, value in zip(values, reversed(chosen), strict=True) if value != values[name][0]}
        if fits(change):
            return change
    return None


def lower_limits(limit: int, longest: int) -> list[int]:
    """A token limit of a micro-batch and lower ones, down to the longest sequence, which must fit."""
    halves = [limit >> n for n in range(limit.bit_length()) if limit >> n > longest]
    return [*halves, min(limit, longest)]
