"""The memory plan of a run on GPUs: printed by a dry run, and checked before every start.

A step has four phases on the same GPUs, and a fifth where checkpoints teach. *rollout*: vLLM has its share of the GPU;
an offloaded policy is on the host. *log-probs* and *update*: vLLM sleeps, and the policy is on the GPU. *teachers*: a
checkpoint is loaded, which takes more than its scoring. *weight sync*: vLLM has its weights again while the policy is
still on the GPU.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

from omegaconf import DictConfig, OmegaConf

from ditto.memory.estimate import (
    Change,
    Memory,
    first_fit,
    forward_moments,
    largest,
    lower_limits,
    shard_bytes,
    trained_shard,
    trained_weights,
    update_moments,
)
from ditto.memory.model_shape import GIB, ModelShape, read_shape
from ditto.memory.setup import (
    TOKENS,
    Engine,
    host_memory,
    is_colocated,
    syncs_adapter,
    teacher_shapes,
    training_of,
    update_tokens,
)
from ditto.settings import BadConfig

ASSUMED_GIB = 79.2  # usable memory of an 80 GB NVIDIA GPU
NARROW = 0.95  # above this share of a GPU, the plan says that a run fits narrowly, because the reserve is an estimate
ENGINES = "actor_rollout_ref.rollout.tensor_model_parallel_size"
OFFLOAD = "actor_rollout_ref.actor.fsdp_config.offload_policy"


class Phase(NamedTuple):
    """Bytes of one phase on one GPU."""

    name: str
    memory: Memory
    vllm: int
    reserve: int

    @property
    def total(self) -> int:
        """All bytes of the phase."""
        return self.memory.total + self.vllm + self.reserve


@dataclass(frozen=True)
class MemoryPlan:
    """The memory that a run needs, and the memory of a GPU.

    Attributes:
        gpu: where `gpu_bytes` comes from, for messages.
        teachers: the checkpoints that teach.
    """

    config: DictConfig
    shape: ModelShape
    gpu_bytes: int
    gpu: str
    teachers: Sequence[ModelShape] = ()

    @cached_property
    def engine(self) -> Engine:
        """vLLM on one GPU."""
        return Engine.of(self.shape, self.config)

    @cached_property
    def host(self) -> dict[str, int]:
        """The memory of each node, by purpose."""
        return host_memory(self.shape, self.config, self.teachers)

    @property
    def host_peak(self) -> int:
        """The larger of two moments: loading, before anything is offloaded, and writing a checkpoint."""
        loading, processes = self.host["while loading"], self.host["processes"]
        return processes + max(loading, sum(self.host.values()) - loading - processes)

    @property
    def cache(self) -> int:
        """Bytes of vLLM's share that are left for keys and values; 0 if its weights alone exceed the share."""
        share = int(self.gpu_bytes * self.config.actor_rollout_ref.rollout.gpu_memory_utilization)
        return max(share - self.engine.weights - self.engine.working - self.engine.fixed, 0)

    @property
    def cached_tokens(self) -> int:
        """Number of tokens whose keys and values fit."""
        return self.cache // self.engine.cache_token

    @cached_property
    def phases(self) -> list[Phase]:
        """The phases of a step."""
        return list(self._phases())

    def _phases(self) -> Iterator[Phase]:
        config, shape, training = self.config, self.shape, training_of(self.config)
        rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
        colocated = is_colocated(config)
        share = int(self.gpu_bytes * rollout.gpu_memory_utilization)
        sleeps = rollout.free_cache_engine and rollout.get("enable_sleep_mode") is not False  # null: verl's default
        asleep = (self.engine.fixed if sleeps else share) if colocated else 0
        shard, states, copied = 0, 0, 0
        if not training.offloaded:
            shard, states = shard_bytes(shape, training), trained_shard(shape, training, training.optimizer)
            copied = bool(training.teacher_copies) * trained_shard(shape, training, training.master)
        stays = Memory(
            weights=0 if actor.fsdp_config.param_offload or not colocated else shard + copied,
            optimizer=0 if actor.fsdp_config.optimizer_offload or not colocated else states,
        )
        yield Phase("rollout", stays, share, stays.reserve if colocated else 0)

        # A micro-batch may have fewer tokens than its limit, if a device gets fewer in the whole update.
        limits = (actor.ppo_max_token_len_per_gpu, rollout.log_prob_max_token_len_per_gpu)
        tokens, scored = (min(limit, update_tokens(config)) for limit in limits)
        optimizer_here = not actor.fsdp_config.optimizer_offload
        log_probs = largest(forward_moments(shape, scored, training, optimizer_here=optimizer_here))
        yield Phase(f"log-probs ({scored:,} tokens)", log_probs, asleep, log_probs.reserve)

        update = largest(update_moments(shape, tokens, training))
        if self.teachers:
            loaded = max(teacher.weights for teacher in self.teachers) * training.compute
            beside = replace(update_moments(shape, 0, training)[0], weights=shard + loaded, activations=0)
            yield Phase("teachers", beside, asleep, beside.reserve)
        yield Phase(f"update ({tokens:,} tokens)", update, asleep, update.reserve)

        # Without LoRA, tensors are gathered one by one into a bucket. An adapter is gathered on the host.
        gathered = 0 if syncs_adapter(config) else 2 * max(shape.tensors) * training.master
        bucket = rollout.checkpoint_engine.update_weights_bucket_megabytes << 20
        weights = max(shard if training.lora_rank else 0, stays.weights) + gathered + bucket
        sync = replace(stays, weights=weights)
        yield Phase("weight sync", sync, asleep + self.engine.weights, sync.reserve)

    @property
    def problems(self) -> list[str]:
        """The reasons that the run does not fit; empty if it fits."""
        rollout = self.config.actor_rollout_ref.rollout
        reasons = [
            f"{phase.name} needs {phase.total / GIB:.1f} GiB of {self.gpu_bytes / GIB:.1f} GiB"
            for phase in self.phases
            if phase.total > self.gpu_bytes
        ]
        if self.cached_tokens < rollout.max_model_len:
            reasons.append(
                f"vLLM's share (gpu_memory_utilization={rollout.gpu_memory_utilization}) holds keys and values of "
                f"{self.cached_tokens:,} tokens, fewer than one sequence may have ({rollout.max_model_len:,})"
            )
        return reasons

    def changed(self, change: Change) -> MemoryPlan:
        """The plan with some keys of the config changed."""
        config = copy.deepcopy(self.config)
        for key, value in change.items():
            OmegaConf.update(config, key, value)
        return replace(self, config=config)

    def remedy(self) -> Change | None:
        """The overrides that make the run fit: smaller micro-batches, wider engines, weights on the host; or None."""
        rollout, gpus = self.config.actor_rollout_ref.rollout, self.config.trainer.n_gpus_per_node
        tp = rollout.tensor_model_parallel_size
        limit = self.config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu
        values = {
            TOKENS: lower_limits(limit, rollout.max_model_len),
            ENGINES: [tp, *(wider for wider in (2, 4, 8) if wider > tp and gpus % wider == 0)],
            OFFLOAD: [self.config.actor_rollout_ref.actor.fsdp_config.offload_policy, True],
        }
        trial = copy.deepcopy(self.config)  # one for all tries: a copy takes a third of a second

        def fits(change: Change) -> bool:
            for key, given in values.items():
                OmegaConf.update(trial, key, change.get(key, given[0]))
            return not replace(self, config=trial).problems

        return first_fit(values, fits)

    def check(self) -> None:
        """Refuse a run that does not fit.

        Raises:
            BadConfig: the message says which phase needs how much memory, and which overrides make it fit.
        """
        if self.problems:
            change = self.remedy()
            raise BadConfig(
                f"{self.shape.name} does not fit on {self._devices()}: {'; '.join(self.problems)}. {advice(change)}. "
                "If your GPUs have another size, set memory.gpu_gib"
            )

    def lines(self) -> list[str]:
        """The plan as lines of text."""
        engine, names, training = self.engine, [field.name for field in fields(Memory)], training_of(self.config)
        how = f"LoRA of rank {training.lora_rank}" if training.lora_rank else "full"
        fullest = max(self.phases, key=lambda phase: phase.total)
        verdict = f"does not fit: {'; '.join(self.problems)}"
        if not self.problems:
            narrowly = " narrowly" if fullest.total > NARROW * self.gpu_bytes else ""
            share = f"{fullest.total / GIB:.1f} of {self.gpu_bytes / GIB:.1f} GiB"
            verdict = f"fits{narrowly}: {share} at most ({fullest.name})"
        table = [
            (phase.name, [getattr(phase.memory, name) for name in names] + [phase.vllm, phase.reserve, phase.total])
            for phase in self.phases
        ]
        return [
            f"{self.shape.name}: {self.shape.weights / 1e9:.2f} B weights, "
            f"{trained_weights(self.shape, training) / 1e9:.2f} B trained ({how}), on {self._devices()}",
            *(f"teacher {teacher.name}: {teacher.weights / 1e9:.2f} B weights" for teacher in self.teachers),
            f"{'GiB on each GPU':<26}" + "".join(f"{name:>12}" for name in [*names, "vLLM", "reserve", "total"]),
            *(f"{name:<26}" + "".join(f"{size / GIB:>12.1f}" for size in sizes) for name, sizes in table),
            f"vLLM: weights {engine.weights / GIB:.1f} GiB, working memory "
            f"{(engine.working + engine.fixed) / GIB:.1f}, keys and values {self.cache / GIB:.1f} = "
            f"{self.cached_tokens:,} tokens",
            f"host, GiB on each node: {self._host_parts()}; at most {self.host_peak / GIB:.0f}",
            verdict,
        ]

    def _host_parts(self) -> str:
        return ", ".join(f"{name} {size / GIB:.0f}" for name, size in self.host.items() if size)

    def _devices(self) -> str:
        trainer = self.config.trainer
        nodes = f"{trainer.nnodes} nodes with " if trainer.nnodes > 1 else ""
        plural = "s" if trainer.n_gpus_per_node > 1 else ""
        return f"{nodes}{trainer.n_gpus_per_node} GPU{plural} of {self.gpu_bytes / GIB:.1f} GiB ({self.gpu})"


def advice(change: Change | None) -> str:
    """The sentence on what to do where a model does not fit; `change` is from key to value."""
    if change is None:
        return "No override makes it fit: use larger GPUs or more of them, LoRA (lora_rank=32) or a smaller model"
    return f"This fits: {' '.join(f'{key}={str(value).lower()}' for key, value in change.items())}"


def gpu_size(gpu_gib: float | None) -> tuple[int, str]:
    """Bytes of a GPU, and where the number comes from.

    Args:
        gpu_gib: `memory.gpu_gib`; None: the size of the GPU found here, else that of an 80 GB GPU.
    """
    import torch

    if gpu_gib is not None:
        return int(gpu_gib * GIB), "memory.gpu_gib"
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        return gpu.total_memory, gpu.name
    return int(ASSUMED_GIB * GIB), "assumed, because this machine has no GPU; set memory.gpu_gib for another size"


def check_gpu(config: DictConfig) -> None:
    """Refuse a machine without a GPU, except for a dry run or the driver of a cluster.

    Args:
        config: of RL or of supervised training.

    Raises:
        BadConfig: there is no GPU to train on.
    """
    import torch

    if config.trainer.device == "cpu" or torch.cuda.device_count():  # device_count() occupies no GPU memory
        return
    address = os.environ.get("RAY_ADDRESS") or OmegaConf.select(config, "ray_kwargs.ray_init.address")
    if not (config.get("dry_run") or address or os.environ.get("VERL_PLATFORM", "").lower() == "cuda"):
        raise BadConfig(
            f"trainer.device={config.trainer.device}, but torch {torch.__version__} sees no GPU on this machine. Start "
            "on a GPU node, or train without one: platform=cpu and VERL_PLATFORM=cpu (PLATFORM=cpu in the launchers)."
        )


def plan(config: DictConfig, teachers: Collection[str] = ()) -> MemoryPlan:
    """The memory plan of a composed config.

    Args:
        teachers: folders or hub ids of the checkpoints that teach.

    Raises:
        BadConfig: the plan does not support the model or a number format.
    """
    shape = read_shape(config.actor_rollout_ref.model, "actor_rollout_ref.model")
    size, source = gpu_size(OmegaConf.select(config, "memory.gpu_gib"))
    return MemoryPlan(config, shape, size, source, teacher_shapes(config, teachers))
