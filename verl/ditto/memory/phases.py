"""The GPU memory of each phase of a step, and the host memory.

A step has four phases on the same GPUs. *rollout*: vLLM has its share of the GPU; an offloaded policy is on the host.
*log-probs* and *update*: vLLM sleeps, and the policy is on the GPU. *weight sync*: vLLM has its weights again while the
policy is still on the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from ditto.memory.host import HostMemory, HostUse, host_memory
from ditto.memory.model_shape import GIB, ModelShape
from ditto.memory.rollout import Rollout, RolloutMemory, rollout_memory
from ditto.memory.setup import Setup
from ditto.memory.training import Memory, Training, forward_peak, optimizer_bytes, shard_bytes, update_peak

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


def training_of(setup: Setup) -> Training:
    """The part of a setup that describes the training."""
    return Training(
        devices=setup.shards,
        lora_rank=setup.lora_rank,
        master=setup.master,
        frozen=setup.frozen,
        compute=setup.compute,
        reduce=setup.reduce,
        optimizer=setup.optimizer_states,
        checkpointing=setup.checkpointing,
        reshard=setup.reshard,
        keep_gathered_gradients=setup.defer_gradients and setup.update_tokens > setup.tokens,
        offloaded=setup.offload_policy,
        full_logits=not setup.fused_head,
    )


def rollout_of(setup: Setup) -> Rollout:
    """The part of a setup that describes vLLM."""
    return Rollout(
        utilization=setup.utilization,
        tensor_parallel=setup.tensor_parallel,
        weight=setup.rollout_number,
        lora_rank=0 if setup.merges_lora else setup.lora_rank,
        text_only=setup.text_only,
        max_num_seqs=setup.max_num_seqs,
        max_num_batched_tokens=setup.max_num_batched_tokens,
        eager=setup.eager,
        sleeps=setup.frees_cache and setup.sleep_mode,
    )


def compute(setup: Setup, shape: ModelShape, gpu_bytes: int) -> Computed:
    """Compute the memory of all phases of a step, and of the host."""
    training = training_of(setup)
    vllm = rollout_memory(shape, rollout_of(setup), gpu_bytes)
    asleep = vllm.asleep if setup.colocated else 0
    shard = 0 if setup.offload_policy else shard_bytes(shape, training)
    states = 0 if setup.offload_policy else optimizer_bytes(shape, training)
    resident = Memory(
        weights=0 if setup.param_offload or not setup.colocated else shard,
        optimizer=0 if setup.optimizer_offload or not setup.colocated else states,
    )
    update = update_peak(shape, micro_batch(setup.tokens, setup), training)
    log_probs = forward_peak(
        shape, micro_batch(setup.log_prob_tokens, setup), training, optimizer_on_gpu=not setup.optimizer_offload
    )
    trainer = int(TRAINER)
    phases = [
        Phase("rollout", resident, int(gpu_bytes * setup.utilization), trainer if setup.colocated else 0),
        Phase("log-probs", log_probs, asleep, trainer + int(FRAGMENTS * _moving(log_probs))),
        Phase("update", update, asleep, trainer + int(FRAGMENTS * _moving(update))),
        Phase("weight sync", _sync(setup, shape, shard, resident), asleep + vllm.weights, trainer),
    ]
    return Computed(setup, gpu_bytes, phases, vllm, _host(setup, shape, training, vllm))


def micro_batch(limit: int, setup: Setup) -> int:
    """Most tokens that a micro-batch can have: the limit, or fewer if a device gets fewer in the whole update."""
    return min(limit, setup.update_tokens)


def _moving(memory: Memory) -> int:
    """Bytes that are allocated and freed all the time, and so fragment the allocator's memory."""
    return memory.activations + memory.logits


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


def _host(setup: Setup, shape: ModelShape, training: Training, vllm: RolloutMemory) -> HostMemory:
    keeps_weights = setup.colocated and setup.frees_cache and setup.lora_rank > 0 and not setup.merges_lora
    sequences = setup.prompts * setup.sessions * setup.sequences
    return host_memory(
        shape,
        training,
        HostUse(
            gpus=setup.gpus,
            weights_offloaded=setup.param_offload,
            optimizer_offloaded=setup.optimizer_offload,
            vllm_weights=vllm.weights if keeps_weights else 0,
            reference=setup.reference,
            agent_workers=setup.agent_workers,
            queue_tokens=sequences * setup.max_model_len // setup.nodes,
            exports_model=setup.exports_model,
        ),
    )
