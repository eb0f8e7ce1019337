"""The host memory that a run needs on each node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ditto.memory.model_shape import GIB, ModelShape
from ditto.memory.rollout import RolloutMemory
from ditto.memory.setup import Setup
from ditto.memory.training import Training, optimizer_bytes, shard_bytes, teacher_bytes, trained_weights

# Assumptions, not measured yet. Per GPU: a trainer with torch, CUDA and NCCL, and a vLLM engine with its server. Then
# one agent-loop worker, and the driver with Ray's own processes.
GPU_PROCESSES, AGENT_WORKER, DRIVER = 12 * GIB, 2 * GIB, 8 * GIB
QUEUE_FIELDS = 12  # int64 and float32 columns per token in the queue between rollout and update


@dataclass(frozen=True)
class HostMemory:
    """Bytes on one node."""

    offloaded: int  # the policy's weights and optimizer while they are not on the GPU, and copies for pi_old
    vllm: int  # weights of the sleeping engines
    processes: int
    queue: int
    loading: int  # copies of the model during loading
    teachers: int  # weights of the checkpoints that teach
    loading_teacher: int  # copies of the largest of them during loading
    export: int  # copies of the model while a checkpoint is written

    @property
    def peak(self) -> int:
        """The largest of three moments: loading, before anything is offloaded; and after that, loading a teacher and
        writing a checkpoint."""
        steady = self.offloaded + self.vllm + self.processes + self.queue + self.teachers
        return max(self.processes + self.loading, steady + max(self.export, self.loading_teacher))


def host_memory(
    shape: ModelShape, setup: Setup, vllm: RolloutMemory, teachers: Sequence[ModelShape] = ()
) -> HostMemory:
    """The host memory of one node.

    If the head is tied, every process loads the model; otherwise one process does (verl builds it on the meta device in
    the others). Offloaded tensors are in pinned memory, and torch rounds each pinned tensor up to a power of two.
    """
    training = setup.training
    padding = pinned_padding(shape, training)
    shard, optimizer = shard_bytes(shape, training), optimizer_bytes(shape, training)
    offloaded = 0
    if setup.param_offload or training.offloaded:
        offloaded += int(shard * padding) + teacher_bytes(shape, training)
    if setup.optimizer_offload or training.offloaded:
        offloaded += int(optimizer * padding)
    if training.offloaded:
        offloaded += teacher_bytes(shape, training)  # of the live weights, while the teacher runs
        offloaded += int(trained_weights(shape, training) * training.master / training.devices * padding)
    offloaded += int(trained_weights(shape, training) * training.master / training.devices * setup.start_copies)
    if setup.reference:
        offloaded += int(shape.weights * setup.reference / training.devices * padding)
    # A sleeping vLLM keeps its weights on the host if only an adapter is synced; otherwise it discards them.
    keeps_weights = setup.colocated and setup.frees_cache and setup.lora_rank > 0 and not setup.merges_lora
    kept = vllm.weights * pinned_padding(shape, Training(frozen=2, master=2)) if keeps_weights else 0
    sequences = setup.prompts * setup.sessions * setup.sequences
    loaded, stored = shape.weights * training.master, shape.weights * training.stored
    taught = sum(shard_bytes(each, setup.scoring) * pinned_padding(each, setup.scoring) for each in teachers)
    return HostMemory(
        offloaded=offloaded * setup.gpus,
        vllm=int(kept * setup.gpus),
        processes=setup.gpus * GPU_PROCESSES + setup.agent_workers * AGENT_WORKER + DRIVER,
        queue=sequences * setup.max_model_len // setup.nodes * 8 * QUEUE_FIELDS,
        loading=loaded * (setup.gpus if shape.tied else 1),
        export=stored + 2 * shape.weights if setup.exports_model else 0,
        teachers=int(taught * setup.gpus),
        loading_teacher=max(
            (teacher.weights * setup.compute * (setup.gpus if teacher.tied else 1) for teacher in teachers), default=0
        ),
    )


def pinned_padding(shape: ModelShape, training: Training) -> float:
    """Bytes of pinned memory per byte of weights (1 to 2)."""
    used = allocated = 0
    for elements, count in shape.tensors.items():
        part = max(elements * training.stored // training.devices, 1)
        used += part * count
        allocated += (1 << (part - 1).bit_length()) * count
    return allocated / used
