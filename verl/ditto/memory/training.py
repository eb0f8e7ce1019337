"""The GPU memory of a training process: FSDP2, gradient checkpointing per layer, AdamW, flash attention.

The coefficients are those of transformers' decoder layers in bfloat16, with RMSNorm in float32 and one kernel launch
per operation. `tests/ditto/memory/test_tracked_memory.py` compares them with torch's FSDP2 memory tracker. `phases.py`
adds what the tracker cannot see (CUDA context, NCCL, fragmentation).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ditto.memory.head import GRADIENT_SUM, head_bytes
from ditto.memory.model_shape import ModelShape


@dataclass(frozen=True)
class Training:
    """How a model is trained. Sizes of numbers are in bytes."""

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
    """Bytes on one GPU, by purpose."""

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    logits: int = 0

    @property
    def total(self) -> int:
        """The sum."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.logits


def update_peak(shape: ModelShape, tokens: int, training: Training) -> Memory:
    """The peak of an optimizer update on one GPU, with `tokens` tokens per micro-batch."""
    return max(update_moments(shape, tokens, training), key=lambda memory: memory.total)


def forward_peak(shape: ModelShape, tokens: int, training: Training, optimizer_on_gpu: bool) -> Memory:
    """The peak of a forward pass without gradients (log-probs)."""
    sizes = _Sizes.from_shape(shape, training)
    width = 4 * training.compute * (shape.hidden + shape.intermediate)
    optimizer = sizes.optimizer if optimizer_on_gpu else 0
    gathered = (
        sizes.root + sizes.layer + max(sizes.layer, sizes.head)
    )  # the previous unit is freed only when the next has arrived
    layer = Memory(sizes.shard + gathered, 0, optimizer, tokens * width, 0)
    logits = head_bytes(tokens, shape.vocab, training.full_logits, backward=False)
    head = Memory(sizes.shard + _in_head(sizes, training), 0, optimizer, tokens * 8 * shape.hidden, logits)
    return max(layer, head, key=lambda memory: memory.total)


def between_micro_batches(shape: ModelShape, training: Training) -> Memory:
    """What stays on one GPU between two micro-batches of an update."""
    sizes = _Sizes.from_shape(shape, training)
    return Memory(weights=sizes.shard, gradients=max(sizes.gradients, sizes.kept), optimizer=sizes.optimizer)


def shard_bytes(shape: ModelShape, training: Training) -> int:
    """Bytes of one device's part of the weights."""
    adapter = shape.adapter(training.lora_rank)
    return (shape.weights * training.stored + adapter * training.master) // training.devices


def trained_weights(shape: ModelShape, training: Training) -> int:
    """Number of weights that have a gradient."""
    return shape.adapter(training.lora_rank) if training.lora_rank else shape.weights


def teacher_bytes(shape: ModelShape, training: Training) -> int:
    """Bytes of one device's part of the teacher's own copy, which is kept between updates."""
    return bool(training.teacher_copies) * trained_weights(shape, training) * training.master // training.devices


def optimizer_bytes(shape: ModelShape, training: Training) -> int:
    """Bytes of one device's part of the optimizer states."""
    return trained_weights(shape, training) * training.optimizer // training.devices


def layer_activations(shape: ModelShape, training: Training) -> tuple[int, int]:
    """Bytes per token that one decoder layer keeps for its backward pass, and that the backward pass needs in addition.

    Kept: the float32 inputs and the outputs of both norms, queries and keys before and after norm and rotation, values,
    the attention's output, gate, up, their activation and product. The input of a frozen weight is not kept.
    """
    c = training.compute
    trained = training.lora_rank == 0
    norms = (8 if trained else 6) * c * shape.hidden
    attention = (3 if shape.qk_norm else 2) * c * (shape.query + shape.key_value)
    if shape.qk_norm:
        attention += (2 if trained else 1) * c * (shape.query + shape.key_value)
    mlp = 4 * c * shape.intermediate
    adapters = 8 * c * training.lora_rank
    # The larger of: gradients of gate and up; float32 gradients of a norm, when the MLP's tensors are already freed.
    backward = max(2 * c * shape.intermediate, 9 * c * shape.hidden - mlp) + (0 if trained else c * shape.hidden)
    return norms + attention + mlp + adapters, backward


@dataclass(frozen=True)
class _Sizes:
    """Bytes of the parts that the moments below consist of."""

    shard: int  # this device's part of the weights
    root: int  # the gathered root, for a whole pass
    layer: int  # one gathered decoder layer
    head: int  # the gathered head; 0 if it is tied, because then it is part of the root
    gradients: int  # this device's part of all gradients
    optimizer: int
    kept: int  # gathered gradients of earlier micro-batches

    @classmethod
    def from_shape(cls, shape: ModelShape, training: Training) -> _Sizes:
        layer = shape.layer_weights + shape.layer_adapter(training.lora_rank)
        root, head = shape.root_weights * training.compute, 0 if shape.tied else shape.embedding * training.compute
        trained = trained_weights(shape, training)
        if not training.reshard:
            root += shape.layers * layer * training.compute + 2 * head
            layer = head = 0
        here = 0 if training.offloaded else 1
        return cls(
            shard=here
            * (shard_bytes(shape, training) + training.teacher_copies * trained * training.master // training.devices),
            root=root,
            layer=layer * training.compute,
            head=head,
            gradients=here * trained * training.master // training.devices,
            optimizer=here * optimizer_bytes(shape, training),
            kept=trained * training.reduce if training.keep_gathered_gradients else 0,
        )


def _in_head(sizes: _Sizes, training: Training) -> int:
    """Gathered weights while the head, the last unit, runs; the buffer in which it arrived still exists.

    Full logits are turned into log-probs outside of the model, where nothing is gathered.
    """
    return 0 if training.full_logits else sizes.root + 2 * sizes.head


def update_moments(shape: ModelShape, tokens: int, training: Training) -> Iterator[Memory]:
    """The moments of an update that can be its peak, in order."""
    sizes, c = _Sizes.from_shape(shape, training), training.compute
    full = training.lora_rank == 0
    head_weights = shape.embedding if full else 0
    layer_trained = shape.layer_weights if full else shape.layer_adapter(training.lora_rank)
    kept, backward = layer_activations(shape, training)
    stream = c * shape.hidden  # a layer's input; with checkpointing nothing else is kept
    held = shape.layers * (stream if training.checkpointing else kept)
    in_layer = kept + backward if training.checkpointing else backward
    tied_gradient = head_weights * c if shape.tied else 0  # the root's gradients are exchanged last

    # The head's forward pass: the inputs of all layers are kept.
    yield Memory(
        weights=sizes.shard + _in_head(sizes, training),
        gradients=sizes.kept,
        optimizer=sizes.optimizer,
        activations=tokens * (held + 4 * stream),
        logits=head_bytes(tokens, shape.vocab, training.full_logits, backward=False),
    )
    # The head's backward pass: one layer is prefetched.
    yield Memory(
        weights=sizes.shard + sizes.root + sizes.head + sizes.layer,
        gradients=sizes.kept + head_weights * (c if training.full_logits else GRADIENT_SUM),
        optimizer=sizes.optimizer,
        activations=tokens * (held + 5 * stream),
        logits=head_bytes(tokens, shape.vocab, training.full_logits, backward=True),
    )
    # The last layer's backward pass: the head's gradient is still being exchanged.
    exchanged = 0 if shape.tied else head_weights * (training.reduce + training.master // training.devices)
    yield Memory(
        weights=sizes.shard + sizes.root + 2 * sizes.layer,
        gradients=sizes.kept + layer_trained * c + tied_gradient + exchanged,
        optimizer=sizes.optimizer,
        activations=tokens * (held + in_layer),
    )
    # The first layer's: one input is left, every layer has its gradients, and the embedding is prefetched.
    ahead = sizes.head if training.devices > 1 else 0
    yield Memory(
        weights=sizes.shard + sizes.root + sizes.layer + ahead,
        gradients=sizes.kept + sizes.gradients + layer_trained * (c + training.reduce) + tied_gradient,
        optimizer=sizes.optimizer,
        activations=tokens * (stream + in_layer + (0 if training.checkpointing else kept)),
    )
    # The embedding's: its weight is already sharded again when its gradient is exchanged.
    yield Memory(
        weights=sizes.shard + sizes.root,
        gradients=sizes.kept + sizes.gradients + head_weights * (c + training.reduce),
        optimizer=sizes.optimizer,
        activations=tokens * 2 * stream,
    )
    # AdamW's step: the foreach implementation takes the square root of all second moments at once.
    yield Memory(weights=sizes.shard, gradients=2 * sizes.gradients, optimizer=sizes.optimizer)
