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

from ditto.memory.estimate import Change, Memory, TrainingSetup, first_fit, largest, lower_limits
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
    samples_alone: bool = False  # the GPU has no process that trains

    @property
    def reserve(self) -> int:
        """Bytes that no sum sees."""
        return 0 if self.samples_alone else self.memory.reserve

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
    def training(self) -> TrainingSetup:
        """The process that trains."""
        return training_of(self.shape, self.config)

    @cached_property
    def engine(self) -> Engine:
        """vLLM on one GPU."""
        return Engine.of(self.shape, self.config)

    @cached_property
    def host(self) -> dict[str, int]:
        """The memory of each node, by purpose."""
        return host_memory(self.training, self.config, self.teachers)

    @property
    def host_peak(self) -> int:
        """The larger of two moments: loading, before anything is offloaded, and writing a checkpoint."""
        loading, processes = self.host["while loading"], self.host["processes"]
        return processes + max(loading, sum(self.host.values()) - loading - processes)

    @property
    def share(self) -> int:
        """Bytes of a GPU that vLLM takes."""
        return int(self.gpu_bytes * self.config.actor_rollout_ref.rollout.gpu_memory_utilization)

    @property
    def cache(self) -> int:
        """Bytes of vLLM's share that are left for keys and values; 0 if its weights alone exceed the share."""
        return max(self.share - self.engine.weights - self.engine.working - self.engine.fixed, 0)

    @property
    def cached_tokens(self) -> int:
        """Number of tokens whose keys and values fit."""
        return self.cache // self.engine.cache_token

    @cached_property
    def phases(self) -> list[Phase]:
        """The phases of a step."""
        return list(self._phases())

    def _phases(self) -> Iterator[Phase]:
        config, training, colocated = self.config, self.training, is_colocated(self.config)
        rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
        sleeps = rollout.free_cache_engine and rollout.get("enable_sleep_mode") is not False  # null: verl's default
        asleep = (self.engine.fixed if sleeps else self.share) if colocated else 0
        here = not training.offloaded
        shard, copied = here * training.shard, here * bool(training.teacher_copies) * training.part(training.master)
        stays = Memory(
            weights=(colocated and not actor.fsdp_config.param_offload) * (shard + copied),
            optimizer=(colocated and here and not actor.fsdp_config.optimizer_offload)
            * training.part(training.optimizer),
        )
        yield Phase("rollout", stays, self.share, samples_alone=not colocated)

        # A micro-batch may have fewer tokens than its limit, if a device gets fewer in the whole update.
        limits = (actor.ppo_max_token_len_per_gpu, rollout.log_prob_max_token_len_per_gpu)
        tokens, scored = (min(limit, update_tokens(config)) for limit in limits)
        log_probs = largest(training.forward(scored, optimizer_here=not actor.fsdp_config.optimizer_offload))
        yield Phase(f"log-probs ({scored:,} tokens)", log_probs, asleep)
        if self.teachers:
            loaded = max(teacher.weights for teacher in self.teachers) * training.compute
            beside = replace(training.update(0)[0], weights=shard + loaded, activations=0)
            yield Phase("teachers", beside, asleep)
        yield Phase(f"update ({tokens:,} tokens)", largest(training.update(tokens)), asleep)

        # Without LoRA, tensors are gathered one by one into a bucket. An adapter is gathered on the host.
        gathered = 0 if syncs_adapter(config) else 2 * max(self.shape.tensors) * training.master
        bucket = rollout.checkpoint_engine.update_weights_bucket_megabytes << 20
        weights = max(shard if training.lora_rank else 0, stays.weights) + gathered + bucket
        yield Phase("weight sync", replace(stays, weights=weights), asleep + self.engine.weights)

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

    def remedy(self) -> tuple[Change, MemoryPlan] | None:
        """The overrides that make the run fit, and its plan with them; None if there are none.

        Smaller micro-batches, wider engines, weights on the host: the cheapest first.
        """
        ref, gpus = self.config.actor_rollout_ref, self.config.trainer.n_gpus_per_node
        tp = ref.rollout.tensor_model_parallel_size
        values = {
            TOKENS: lower_limits(ref.actor.ppo_max_token_len_per_gpu, ref.rollout.max_model_len),
            ENGINES: [tp, *(wider for wider in (2, 4, 8) if wider > tp and gpus % wider == 0)],
            OFFLOAD: [ref.actor.fsdp_config.offload_policy, True],
        }
        trial = replace(self, config=copy.deepcopy(self.config))  # one for all tries: a copy takes a third of a second

        def fits(change: Change) -> bool:
            for key, given in values.items():
                OmegaConf.update(trial.config, key, change.get(key, given[0]))
            return not replace(trial).problems

        change = first_fit(values, fits)
        return None if change is None else (change, trial)

    def check(self) -> None:
        """Refuse a run that does not fit.

        Raises:
            BadConfig: the message says which phase needs how much memory, and which overrides make it fit.
        """
        if self.problems:
            change, _ = self.remedy() or (None, None)
            raise BadConfig(
                f"{self.shape.name} does not fit on {self._devices()}: {'; '.join(self.problems)}. {advice(change)}. "
                "If your GPUs have another size, set memory.gpu_gib"
            )

    def lines(self) -> list[str]:
        """The plan as lines of text."""
        engine, training, names = self.engine, self.training, [field.name for field in fields(Memory)]
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
        host = ", ".join(f"{name} {size / GIB:.0f}" for name, size in self.host.items() if size)
        return [
            f"{self.shape.name}: {self.shape.weights / 1e9:.2f} B weights, {training.trained / 1e9:.2f} B trained "
            f"({how}), on {self._devices()}",
            *(f"teacher {teacher.name}: {teacher.weights / 1e9:.2f} B weights" for teacher in self.teachers),
            f"{'GiB on each GPU':<26}" + "".join(f"{name:>12}" for name in [*names, "vLLM", "reserve", "total"]),
            *(f"{name:<26}" + "".join(f"{size / GIB:>12.1f}" for size in sizes) for name, sizes in table),
            f"vLLM: weights {engine.weights / GIB:.1f} GiB, working memory "
            f"{(engine.working + engine.fixed) / GIB:.1f}, keys and values {self.cache / GIB:.1f} = "
            f"{self.cached_tokens:,} tokens",
            f"host, GiB on each node: {host}; at most {self.host_peak / GIB:.0f}",
            verdict,
        ]

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
    """Raise BadConfig on a machine without a GPU, except for a dry run or the driver of a cluster (RL or SFT)."""
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
    """The memory plan of a config; `teachers`: folders or hub ids. Raises BadConfig: a model is not a dense decoder."""
    shape = read_shape(config.actor_rollout_ref.model, "actor_rollout_ref.model")
    size, source = gpu_size(OmegaConf.select(config, "memory.gpu_gib"))
    return MemoryPlan(config, shape, size, source, teacher_shapes(config, teachers))
