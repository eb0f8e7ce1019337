"""The host memory that a run needs on each node."""

from __future__ import annotations

from dataclasses import dataclass

from ditto.memory.model_shape import GIB, ModelShape
from ditto.memory.training import Training, optimizer_bytes, shard_bytes, trained_weights

# Assumptions, not measured yet. Per GPU: a trainer with torch, CUDA and NCCL, and a vLLM engine with its server. Then
# one agent-loop worker, and the driver with Ray's own processes.
GPU_PROCESSES, AGENT_WORKER, DRIVER = 12 * GIB, 2 * GIB, 8 * GIB
QUEUE_FIELDS = 12  # int64 and float32 columns per token in the queue between rollout and update


@dataclass(frozen=True)
class HostUse:
    """How a run uses a node's host memory."""

    gpus: int  # per node
    weights_offloaded: bool  # during the rollout
    optimizer_offloaded: bool
    vllm_weights: int  # bytes per GPU that vLLM keeps on the host while it sleeps; 0: it discards its weights
    reference: int  # bytes per weight of a separate, frozen reference model; 0: there is none
    agent_workers: int
    queue_tokens: int  # per step
    exports_model: bool  # checkpoints contain the whole model, gathered by one process


@dataclass(frozen=True)
class HostMemory:
    """Bytes on one node."""

    offloaded: int  # the policy's weights and optimizer while they are not on the GPU
    vllm: int  # weights of the sleeping engines
    processes: int
    queue: int
    loading: int  # copies of the model during loading
    export: int  # copies of the model while a checkpoint is written

    @property
    def peak(self) -> int:
        """The larger of two moments: loading, before anything is offloaded, and writing a checkpoint, after that."""
        steady = self.offloaded + self.vllm + self.processes + self.queue
        return max(self.processes + self.loading, steady + self.export)


def host_memory(shape: ModelShape, training: Training, use: HostUse) -> HostMemory:
    """The host memory of one node.

    If the head is tied, every process loads the model; otherwise one process does (verl builds it on the meta device in
    the others). Offloaded tensors are in pinned memory, and torch rounds each pinned tensor up to a power of two.
    """
    padding = pinned_padding(shape, training)
    shard, optimizer = shard_bytes(shape, training), optimizer_bytes(shape, training)
    offloaded = 0
    if use.weights_offloaded or training.offloaded:
        offloaded += int(shard * padding)
    if use.optimizer_offloaded or training.offloaded:
        offloaded += int(optimizer * padding)
    if training.offloaded:
        offloaded += int(trained_weights(shape, training) * training.master / training.devices * padding)
    if use.reference:
        offloaded += int(shape.weights * use.reference / training.devices * padding)
    loaded, stored = shape.weights * training.master, shape.weights * training.stored
    return HostMemory(
        offloaded=offloaded * use.gpus,
        vllm=int(use.vllm_weights * pinned_padding(shape, Training(devices=1, frozen=2, master=2)) * use.gpus),
        processes=use.gpus * GPU_PROCESSES + use.agent_workers * AGENT_WORKER + DRIVER,
        queue=use.queue_tokens * 8 * QUEUE_FIELDS,
        loading=loaded * (use.gpus if shape.tied else 1),
        export=stored + 2 * shape.weights if use.exports_model else 0,
    )


def pinned_padding(shape: ModelShape, training: Training) -> float:
    """Bytes of pinned memory per byte of weights (1 to 2)."""
    used = allocated = 0
    for elements, count in shape.tensors.items():
        part = max(elements * training.stored // training.devices, 1)
        used += part * count
        allocated += (1 << (part - 1).bit_length()) * count
    return allocated / used
