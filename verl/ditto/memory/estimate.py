"""Estimate the memory of a training run: weights, gradients, optimizer, activations, logits, engine, host.

One arithmetic serves GPUs and CPUs, RL and SFT. It adds up what can be there at once in a decoder layer, and in the
head, so with its reserve it is never below what torch's FSDP2 memory tracker counts, and not far above
(`tests/ditto/memory`).

The coefficients are those of transformers' decoder layers under FSDP2, with RMSNorm in float32, gradient checkpointing
per layer, AdamW, flash attention, and our output head, which computes logits in chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from ditto.memory.model_shape import GIB, ModelShape

if TYPE_CHECKING:  # benchmarks estimate a training process on machines without verl
    from ditto.memory.setup import Setup

# Logits per chunk, and the number that its tokens are a multiple of. Same as in ditto.model.chunked_head.
CHUNK_LOGITS, CHUNK_TOKENS = 2**27, 256
# Bytes per logit: of a chunk (bfloat16 logits, float32 log-softmax, its exponentials), and without chunks.
CHUNK_LOGIT, FULL_LOGIT = 10, 6
# Bytes per weight of a trained head: the sum of the chunks' gradients in float32, and the last chunk's in bfloat16.
HEAD_GRADIENT = 6
# What no tracker sees, assumed from logs. Of a training process: CUDA context, NCCL and workspaces, and the share of
# activations and logits that is lost to fragments. Of vLLM while it sleeps: CUDA context and CUDA graphs.
TRAINER, FRAGMENTS = 1.5 * GIB, 0.04
CONTEXT, GRAPHS = 1.0 * GIB, 1.5 * GIB
# On the host. Per GPU: a trainer with torch, CUDA and NCCL, and a vLLM engine with its server.
GPU_PROCESSES, AGENT_WORKER, DRIVER = 12 * GIB, 2 * GIB, 8 * GIB
QUEUE_FIELDS = 12  # int64 and float32 columns per token in the queue between rollout and update


@dataclass(frozen=True)
class Training:
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


def trained_weights(shape: ModelShape, training: Training) -> int:
    """Number of weights that have a gradient."""
    return shape.adapter(training.lora_rank) if training.lora_rank else shape.weights


def trained_shard(shape: ModelShape, training: Training, bytes_per_weight: int) -> int:
    """Bytes of one device's part of a value that each trained weight has: a gradient, an optimizer state, a copy."""
    return trained_weights(shape, training) * bytes_per_weight // training.devices


def shard_bytes(shape: ModelShape, training: Training) -> int:
    """Bytes of one device's part of the weights."""
    adapter = shape.adapter(training.lora_rank)
    return (shape.weights * training.stored + adapter * training.master) // training.devices


def update_moments(shape: ModelShape, tokens: int, training: Training) -> list[Memory]:
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
            logits=logit_bytes(shape, tokens, training),
        ),
        # The foreach implementation takes the square root of all second moments at once, when the passes are over.
        Memory(weights=shard, gradients=2 * gradients, optimizer=optimizer),
    ]


def forward_moments(shape: ModelShape, tokens: int, training: Training, optimizer_here: bool = True) -> list[Memory]:
    """The same of a pass without gradients, which computes log-probs: in a decoder layer, in the head.

    Args:
        optimizer_here: the optimizer stays on the device.
    """
    here = optimizer_here and not training.offloaded
    optimizer = here * trained_shard(shape, training, training.optimizer)
    shard = _sharded(shape, training)
    width = 4 * training.compute * (shape.hidden + shape.intermediate)
    layer = Memory(shard + _gathered_layers(shape, training), 0, optimizer, tokens * width)
    logits = logit_bytes(shape, tokens, training)
    head = Memory(shard + _gathered_head(shape, training), 0, optimizer, tokens * 8 * shape.hidden, logits)
    return [layer, head]


def largest(moments: Iterable[Memory]) -> Memory:
    """The largest of some moments."""
    return max(moments, key=lambda memory: memory.total)


def logit_bytes(shape: ModelShape, tokens: int, training: Training) -> int:
    """Bytes of all logits of a micro-batch, or of one chunk of them."""
    if training.full_logits:
        return tokens * shape.vocab * FULL_LOGIT
    chunk = CHUNK_LOGITS // shape.vocab
    return min(tokens, chunk if chunk < CHUNK_TOKENS else chunk // CHUNK_TOKENS * CHUNK_TOKENS) * (
        shape.vocab * CHUNK_LOGIT
    )


def layer_activations(shape: ModelShape, training: Training) -> tuple[int, int]:
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


def _sharded(shape: ModelShape, training: Training) -> int:
    """Bytes of this device's shards: the weights, and the copies that a distillation keeps."""
    copies = training.teacher_copies * trained_shard(shape, training, training.master)
    return 0 if training.offloaded else shard_bytes(shape, training) + copies


def _gathered_layers(shape: ModelShape, training: Training) -> int:
    """Bytes of whole weights in a decoder layer: the root for a whole pass, the layer, and what is fetched ahead."""
    root = shape.root_weights * training.compute
    layer = (shape.layer_weights + shape.layer_adapter(training.lora_rank)) * training.compute
    embedding = 0 if shape.tied else shape.embedding * training.compute  # follows the first layer's backward pass
    return root + layer + max(layer, embedding) if training.reshard else root + shape.layers * layer + 2 * embedding


def _gathered_head(shape: ModelShape, training: Training) -> int:
    """Bytes of whole weights in the head, the last unit; the buffer in which it arrived still exists.

    Full logits are turned into log-probs outside of the model, where nothing is gathered.
    """
    if training.full_logits:
        return 0
    if not training.reshard:
        return _gathered_layers(shape, training)
    return (shape.root_weights + (0 if shape.tied else 2 * shape.embedding)) * training.compute


@dataclass(frozen=True)
class Engine:
    """Bytes of one vLLM engine on one device."""

    weights: int
    working: int  # activations of the largest batch, and logits
    cache_token: int  # keys and values of one token
    fixed: int = 0  # CUDA context and CUDA graphs, which stay while it sleeps


def engine_memory(shape: ModelShape, setup: Setup, on_gpu: bool = True) -> Engine:
    """The memory of vLLM: weights, the largest batch, and what a token costs in its cache."""
    tp, number = setup.tensor_parallel, setup.rollout_number
    adapter = 0 if setup.merges_lora else shape.adapter(setup.lora_rank)
    copies = 1 if on_gpu else 2  # the CPU build keeps each weight as it is synced, and packed (verl_hooks/compat.py)
    weights = ((shape.weights - setup.text_only * shape.vision_weights) * number * copies + adapter * 2) // tp
    # A layer's peak: the residual stream, gate, up and their product. Logits: as computed, and float32 twice.
    batch = setup.max_num_batched_tokens * number * 3 * (shape.hidden + shape.intermediate // tp)
    logits = setup.max_num_seqs * shape.vocab * (number + 8)
    token = max(2 * shape.layers * shape.key_value * (2 if on_gpu else number) // tp, 1)
    return Engine(weights, batch + logits, token, int(CONTEXT + (0 if setup.eager else GRAPHS)) if on_gpu else 0)


@dataclass(frozen=True)
class HostMemory:
    """Bytes on one node that has GPUs."""

    offloaded: int  # the policy's weights and optimizer while they are not on the GPU, and copies for pi_old
    vllm: int  # weights of the sleeping engines
    processes: int
    queue: int
    loading: int  # copies of the model during loading
    teachers: int  # weights of the checkpoints that teach, and copies of the largest of them during loading
    export: int  # copies of the model while a checkpoint is written

    @property
    def peak(self) -> int:
        """The larger of two moments: loading, before anything is offloaded, and writing a checkpoint."""
        steady = self.offloaded + self.vllm + self.queue + self.teachers + self.export
        return self.processes + max(self.loading, steady)


def host_memory(shape: ModelShape, setup: Setup, teachers: Sequence[ModelShape] = ()) -> HostMemory:
    """The host memory of one node.

    If the head is tied, every process loads the model; otherwise one process does (verl builds it on the meta device in
    the others).
    """
    training = setup.training
    shard, states = shard_bytes(shape, training), trained_shard(shape, training, training.optimizer)
    copy = trained_shard(shape, training, training.master)
    pinned = (setup.param_offload or training.offloaded) * shard + (
        setup.optimizer_offload or training.offloaded
    ) * states
    pinned += training.offloaded * copy + shape.weights * setup.reference // training.devices  # gradients; reference
    copies = setup.start_copies + bool(training.teacher_copies) * (
        2 if training.offloaded else 1 if setup.param_offload else 0  # with the live weights, while the teacher runs
    )
    offloaded = pinned * pinned_padding(shape, training) + copies * copy
    # A sleeping vLLM keeps its weights on the host if only an adapter is synced; otherwise it discards them.
    keeps_weights = setup.colocated and setup.frees_cache and setup.lora_rank > 0 and not setup.merges_lora
    asleep = keeps_weights * engine_memory(shape, setup).weights * pinned_padding(shape, Training(frozen=2, master=2))
    taught = sum(shard_bytes(each, setup.scoring) * pinned_padding(each, setup.scoring) for each in teachers)
    loading = max((each.weights * setup.compute * (setup.gpus if each.tied else 1) for each in teachers), default=0)
    sequences = setup.prompts * setup.sessions * setup.sequences
    return HostMemory(
        offloaded=int(offloaded * setup.gpus),
        vllm=int(asleep * setup.gpus),
        processes=setup.gpus * GPU_PROCESSES + setup.agent_workers * AGENT_WORKER + DRIVER,
        queue=sequences * setup.max_model_len // setup.nodes * 8 * QUEUE_FIELDS,
        loading=shape.weights * training.master * (setup.gpus if shape.tied else 1),
        teachers=int(taught * setup.gpus) + loading,
        export=shape.weights * (training.stored + 2) if setup.exports_model else 0,
    )


def pinned_padding(shape: ModelShape, training: Training) -> float:
    """Bytes of pinned memory per byte of weights (1 to 2): torch rounds each tensor up to a power of two."""
    used = allocated = 0
    for elements, count in shape.tensors.items():
        part = max(elements * training.stored // training.devices, 1)
        used += part * count
        allocated += (1 << (part - 1).bit_length()) * count
    return allocated / used
