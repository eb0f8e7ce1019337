"""The GPU memory of each phase of a step, and the host memory.

A step has four phases on the same GPUs, and a fifth where checkpoints teach. *rollout*: vLLM has its share of the GPU;
an offloaded policy is on the host. *log-probs* and *update*: vLLM sleeps, and the policy is on the GPU. *teachers*: a
checkpoint scores a micro-batch of the update, or is loaded. *weight sync*: vLLM has its weights again while the policy
is still on the GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ditto.memory.host import HostMemory, host_memory
from ditto.memory.model_shape import GIB, ModelShape
from ditto.memory.rollout import RolloutMemory, rollout_memory
from ditto.memory.setup import Setup
from ditto.memory.training import (
    Memory,
    between_micro_batches,
    forward_peak,
    optimizer_bytes,
    shard_bytes,
    teacher_bytes,
    update_peak,
)

# Reserve of the training process: CUDA context, NCCL buffers and cuBLAS workspaces; and the share of activations and
# logits that the allocator loses to fragmentation.
TRAINER, FRAGMENTS = 1.5 * GIB, 0.04


@dataclass(frozen=True)
class Phase:
    """One phase on one GPU."""

    name: str
    memory: Memory
    vllm: int = 0
    reserve: int = 0

    @property
    def total(self) -> int:
        """All bytes of the phase."""
        return self.memory.total + self.vllm + self.reserve


@dataclass(frozen=True)
class Computed:
    """The memory of a run, computed from its setup, its model and the size of a GPU."""

    setup: Setup
    gpu_bytes: int
    phases: list[Phase]
    rollout: RolloutMemory
    host: HostMemory

    @property
    def problems(self) -> list[str]:
        """Why the run does not fit; empty if it fits."""
        reasons = [
            f"the {phase.name} phase needs {phase.total / GIB:.1f} GiB of {self.gpu_bytes / GIB:.1f} GiB"
            for phase in self.phases
            if phase.total > self.gpu_bytes
        ]
        if self.rollout.cached_tokens < self.setup.max_model_len:
            reasons.append(
                f"vLLM's share holds keys and values of {self.rollout.cached_tokens:,} tokens, fewer than one sequence "
                f"may have ({self.setup.max_model_len:,})"
            )
        return reasons


def compute(setup: Setup, shape: ModelShape, gpu_bytes: int, teachers: Sequence[ModelShape] = ()) -> Computed:
    """Compute the memory of all phases of a step, and of the host.

    Args:
        teachers: the checkpoints that teach.
    """
    training = setup.training
    vllm = rollout_memory(shape, setup, gpu_bytes)
    asleep = vllm.asleep if setup.colocated else 0
    shard = 0 if setup.offload_policy else shard_bytes(shape, training)
    teacher = 0 if setup.offload_policy else teacher_bytes(shape, training)
    states = 0 if setup.offload_policy else optimizer_bytes(shape, training)
    resident = Memory(
        weights=0 if setup.param_offload or not setup.colocated else shard + teacher,
        optimizer=0 if setup.optimizer_offload or not setup.colocated else states,
    )
    # A micro-batch may have fewer tokens than its limit, if a device gets fewer in the whole update.
    update_tokens = min(setup.tokens, setup.update_tokens)
    update = _with_lessons(update_peak(shape, update_tokens, training), setup, teachers, update_tokens)
    tokens = min(setup.log_prob_tokens, setup.update_tokens)
    log_probs = forward_peak(shape, tokens, training, optimizer_on_gpu=not setup.optimizer_offload)
    phases = [
        Phase("rollout", resident, int(gpu_bytes * setup.utilization), reserve(resident) if setup.colocated else 0),
        Phase("log-probs", log_probs, asleep, reserve(log_probs)),
        Phase("update", update, asleep, reserve(update)),
        Phase("weight sync", _sync(setup, shape, shard, resident), asleep + vllm.weights, reserve(resident)),
    ]
    if teachers:
        taught = max((_taught(setup, shape, teacher, update_tokens) for teacher in teachers), key=lambda m: m.total)
        phases.insert(2, Phase("teachers", taught, asleep, reserve(taught)))
    return Computed(setup, gpu_bytes, phases, vllm, host_memory(shape, setup, vllm, teachers))


def _with_lessons(update: Memory, setup: Setup, teachers: Sequence[ModelShape], tokens: int) -> Memory:
    """An update in which the distributions are compared: what the teachers left for the student's pass."""
    if not teachers or not setup.compares_logits:
        return update
    heads = sum(teacher.embedding * setup.compute for teacher in teachers)
    hidden = tokens * max(teacher.hidden for teacher in teachers) * setup.compute
    return replace(update, weights=update.weights + heads, activations=update.activations + hidden)


def _taught(setup: Setup, shape: ModelShape, teacher: ModelShape, tokens: int) -> Memory:
    """The larger of two moments: the teacher scores a micro-batch between two of the student's; it is loaded, when the
    first GPU has all its weights."""
    student = between_micro_batches(shape, setup.training)
    scoring = forward_peak(teacher, tokens, setup.scoring, optimizer_on_gpu=False)
    scored = replace(scoring, weights=scoring.weights + student.weights, gradients=student.gradients)
    scored = replace(scored, optimizer=student.optimizer)
    loading = Memory(weights=student.weights + teacher.weights * setup.compute)
    return max(scored, loading, key=lambda memory: memory.total)


def reserve(memory: Memory) -> int:
    """The training process's reserve; activations and logits are allocated and freed all the time, so they fragment."""
    return int(TRAINER) + int(FRAGMENTS * (memory.activations + memory.logits))


def _sync(setup: Setup, shape: ModelShape, shard: int, resident: Memory) -> Memory:
    """The policy's memory during a weight sync.

    Without LoRA, tensors are gathered one by one into a bucket. An adapter is gathered on the host, with the policy on
    the GPU.
    """
    adapter = setup.lora_rank > 0
    bucket = setup.bucket_mib << 20
    gathered = 0 if adapter and not setup.merges_lora else 2 * max(shape.tensors) * setup.master
    return Memory(
        weights=max(shard if adapter else 0, resident.weights) + gathered + bucket, optimizer=resident.optimizer
    )
