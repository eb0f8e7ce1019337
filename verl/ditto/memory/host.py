"""What a run holds in the memory of one node's host."""

from __future__ import annotations

from dataclasses import dataclass

from ditto.memory.model_shape import GIB, ModelShape
from ditto.memory.training import Training, optimizer_bytes, shard_bytes, trained_weights

# Measured nowhere yet: a trainer with torch, CUDA and NCCL, a vLLM engine and its server, for each GPU; an agent-loop
# worker; the driver with Ray's own processes.
GPU_PROCESSES, AGENT_WORKER, DRIVER = 12 * GIB, 2 * GIB, 8 * GIB
QUEUE_FIELDS = 12  # int64 and float32 columns of a token in the queue between rollout and update


@dataclass(frozen=True)
class HostUse:
    """What a run keeps on the host."""

    gpus: int  # of one node
    weights_offloaded: bool  # while the policy plays
    optimizer_offloaded: bool
    vllm_weights: int  # bytes of one GPU's weights that vLLM keeps on the host while it sleeps; 0: it throws them away
    reference: int  # bytes of a weight of a second, frozen model beside the trained one; 0: there is none
    agent_workers: int
    queue_tokens: int  # of one step
    exports_model: bool  # checkpoints hold the whole model, gathered by one process


@dataclass(frozen=True)
class HostMemory:
    """Bytes on one node."""

    offloaded: int  # the policy's weights and optimizer while they are not on the GPU
    vllm: int  # weights of the sleeping engines
    processes: int
    queue: int
    loading: int  # copies of the model while it is loaded
    export: int  # copies of the model while a checkpoint is written

    @property
    def peak(self) -> int:
        """Loading comes before everything is offloaded; a checkpoint after it."""
        steady = self.offloaded + self.vllm + self.processes + self.queue
        return max(self.processes + self.loading, steady + self.export)


def host_memory(shape: ModelShape, training: Training, use: HostUse) -> HostMemory:
    """What one node's host holds.

    Every process loads a model whose head is tied; any other model is loaded by one (verl builds it on the meta device
    elsewhere). The GPU copies to and from pinned memory, and torch rounds each pinned tensor up to a power of two.
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
    """Bytes of pinned memory for one byte of weights."""
    asked = taken = 0
    for elements, count in shape.tensors.items():
        part = max(elements * training.stored // training.devices, 1)
        asked += part * count
        taken += (1 << (part - 1).bit_length()) * count
    return taken / asked
