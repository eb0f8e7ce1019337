"""The memory plan of a run on GPUs: printed by a dry run, and checked before every start.

A step has four phases on the same GPUs, and a fifth where checkpoints teach. *rollout*: vLLM has its share of the GPU;
an offloaded policy is on the host. *log-probs* and *update*: vLLM sleeps, and the policy is on the GPU. *teachers*: a
checkpoint is loaded, which takes more than its scoring. *weight sync*: vLLM has its weights again while the policy is
still on the GPU.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from ditto.launching.compose import SEPARATE
from ditto.memory.estimate import (
    Change,
    Memory,
    Training,
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
from ditto.settings import BadConfig, chosen_objective

ASSUMED_GIB = 79.2  # usable memory of an 80 GB NVIDIA GPU
NARROW = 0.95  # above this share of a GPU, the plan says that a run fits narrowly, because the reserve is an estimate
# Assumed from logs. Of a vLLM engine while it sleeps: CUDA context and CUDA graphs.
CONTEXT, GRAPHS = 1.0 * GIB, 1.5 * GIB
# On the host. Per GPU: a trainer with torch, CUDA and NCCL, and a vLLM engine with its server.
GPU_PROCESSES, AGENT_WORKER, DRIVER = 12 * GIB, 2 * GIB, 8 * GIB
TOKENS = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu"
ENGINES = "actor_rollout_ref.rollout.tensor_model_parallel_size"
OFFLOAD = "actor_rollout_ref.actor.fsdp_config.offload_policy"


# ---- what the config says ------------------------------------------------------------------------------------------


def training_of(config: DictConfig) -> Training:
    """The training process of an RL run, for the arithmetic."""
    model, actor, trainer = config.actor_rollout_ref.model, config.actor_rollout_ref.actor, config.trainer
    engine, objective = actor.fsdp_config, chosen_objective(config.algorithm)
    devices = trainer.n_gpus_per_node * trainer.nnodes
    formats = number_formats(engine, "actor_rollout_ref.actor.fsdp_config")
    several = update_tokens(config) > (actor.ppo_max_token_len_per_gpu or 0)
    moving_teacher = objective.teacher == "feedback" and config.algorithm.sdpo.teacher != "live"
    return Training(
        devices=devices if engine.fsdp_size in (-1, 0) else min(engine.fsdp_size, devices),
        lora_rank=int(model.lora_rank or 0),
        **formats,
        optimizer=2 if "8bit" in str(actor.optim.get("optimizer")) else 2 * formats["master"],
        checkpointing=bool(model.enable_gradient_checkpointing),
        reshard=engine.reshard_after_forward,
        keep_gathered_gradients=engine.use_no_sync_for_gradient_accumulation and several,
        offloaded=engine.offload_policy,
        full_logits=not model.use_fused_kernels,
        teacher_copies=2 if moving_teacher else 0,
    )


def update_tokens(config: DictConfig) -> int:
    """Most tokens that one device can get in one optimizer update."""
    rollout, kinds = config.actor_rollout_ref.rollout, chosen_objective(config.algorithm).kinds
    rows = config.actor_rollout_ref.actor.ppo_mini_batch_size * rollout.n * len(kinds)
    return int(-(-rows // (config.trainer.n_gpus_per_node * config.trainer.nnodes)) * rollout.max_model_len)


def reference_bytes(config: DictConfig) -> int:
    """Bytes per weight of a separate reference model for the KL loss; 0: there is none."""
    ref = config.actor_rollout_ref
    separate = ref.actor.use_kl_loss and not ref.model.lora_rank
    return _number_bytes(ref.ref.fsdp_config.model_dtype, "ref model_dtype") if separate else 0


def syncs_adapter(config: DictConfig) -> bool:
    """True if vLLM gets the adapter alone, and keeps the weights of the base model."""
    model = config.actor_rollout_ref.model
    return bool(model.lora_rank) and not (model.get("lora") or {}).get("merge", False)


def exports_model(config: DictConfig) -> bool:
    """True if checkpoints hold the whole model."""
    return "hf_model" in config.actor_rollout_ref.actor.checkpoint.save_contents


def number_formats(engine: Mapping[str, Any], section: str) -> dict[str, int]:
    """Bytes per trained (`master`), frozen and gathered (`compute`) weight, and per gradient in exchange (`reduce`).

    Args:
        engine: the section of an FSDP engine; `section` is its name, for messages.
    """
    precision = engine.get("mixed_precision") or {}
    compute = _number_bytes(precision.get("param_dtype", "bf16"), f"{section}.mixed_precision.param_dtype")
    return {
        "master": _number_bytes(engine.get("model_dtype") or "fp32", f"{section}.model_dtype"),
        "frozen": compute,  # ditto/model/engine.py stores frozen weights like this
        "compute": compute,
        "reduce": _number_bytes(precision.get("reduce_dtype", "fp32"), f"{section}.mixed_precision.reduce_dtype"),
    }


def _number_bytes(name: Any, key: str) -> int:
    short = str(name).removeprefix("torch.")
    if short in ("bf16", "bfloat16", "fp16", "float16", "half"):
        return 2
    if short in ("fp32", "float32", "float"):
        return 4
    raise BadConfig(
        f"{key}={name}: use bfloat16, float16 or float32 (the memory plan supports no other number format)."
    )


def teacher_shapes(config: DictConfig, teachers: Collection[str], dense_only: bool = True) -> list[ModelShape]:
    """The shapes of the checkpoints that teach (folders or hub ids), each once."""
    model = config.actor_rollout_ref.model
    return [
        read_shape(OmegaConf.merge(model, {"path": path}), "algorithm.distill.teachers", dense_only)
        for path in sorted(set(teachers))
    ]


# ---- engine and host -----------------------------------------------------------------------------------------------


class Engine(NamedTuple):
    """Bytes of one vLLM engine on one device."""

    weights: int
    working: int  # activations of the largest batch, and logits
    cache_token: int  # keys and values of one token
    fixed: int  # CUDA context and CUDA graphs, which stay while it sleeps; 0 on a CPU

    @classmethod
    def of(cls, shape: ModelShape, config: DictConfig, on_gpu: bool = True) -> Engine:
        """The engine of a run: weights, the largest batch, and what a token costs in its cache."""
        rollout, rank = config.actor_rollout_ref.rollout, int(config.actor_rollout_ref.model.lora_rank or 0)
        tp = rollout.tensor_model_parallel_size
        number = 1 if rollout.get("quantization") else _number_bytes(rollout.dtype, "dtype")
        copies = (
            1 if on_gpu else 2
        )  # the CPU build keeps each weight as it is synced, and packed (verl_hooks/compat.py)
        weights = (shape.weights * number * copies + syncs_adapter(config) * shape.adapter(rank) * 2) // tp
        # A layer's peak: the residual stream, gate, up and their product. Logits: as computed, and float32 twice.
        batch = rollout.max_num_batched_tokens * number * 3 * (shape.hidden + shape.intermediate // tp)
        logits = rollout.max_num_seqs * shape.vocab * (number + 8)
        token = max(2 * shape.layers * shape.key_value * (2 if on_gpu else number) // tp, 1)
        fixed = int(CONTEXT + (0 if rollout.enforce_eager else GRAPHS)) if on_gpu else 0
        return cls(weights, batch + logits, token, fixed)


def host_memory(shape: ModelShape, config: DictConfig, teachers: Sequence[ModelShape] = ()) -> dict[str, int]:
    """Bytes on one node, by purpose. What is there "while loading" is gone before anything is offloaded.

    If the head is tied, every process loads the model; otherwise one process does (verl builds it on the meta device in
    the others).
    """
    training, gpus, rollout = training_of(config), config.trainer.n_gpus_per_node, config.actor_rollout_ref.rollout
    engine, separate = config.actor_rollout_ref.actor.fsdp_config, config.trainer.v1.separate_async
    copy_bytes = trained_shard(shape, training, training.master)
    pinned = shape.weights * reference_bytes(config) // training.devices
    if engine.param_offload or training.offloaded:
        pinned += shard_bytes(shape, training)
    if engine.optimizer_offload or training.offloaded:
        pinned += trained_shard(shape, training, training.optimizer)
    pinned += training.offloaded * copy_bytes  # gradients
    copies = 0  # of the trained weights: a teacher's and the live ones while it runs, or those of a step's beginning
    if training.teacher_copies:
        copies += 2 if training.offloaded else int(engine.param_offload)
    if not _colocated(config):
        copies += 1 + (separate.parameter_sync_step > 1)
    scoring = _scoring(training)
    asleep = 0.0  # a sleeping vLLM keeps its weights on the host if only an adapter is synced; else it discards them
    if _colocated(config) and rollout.free_cache_engine and syncs_adapter(config):
        asleep = Engine.of(shape, config).weights * _pinned_padding(shape, scoring)
    taught = sum(shard_bytes(each, scoring) * _pinned_padding(each, scoring) for each in teachers)
    return {
        "offloaded": int((pinned * _pinned_padding(shape, training) + copies * copy_bytes) * gpus),
        "weights of sleeping vLLM": int(asleep * gpus),
        "processes": gpus * GPU_PROCESSES + rollout.agent.num_workers * AGENT_WORKER + DRIVER,
        "teachers": int(taught * gpus)
        + max((each.weights * scoring.master * (gpus if each.tied else 1) for each in teachers), default=0),
        "while loading": shape.weights * training.master * (gpus if shape.tied else 1),
        "while writing a checkpoint": shape.weights * (training.stored + 2) if exports_model(config) else 0,
    }


def _scoring(training: Training) -> Training:
    """A model that only scores: its shards stay on the host, in the number format of the computation."""
    return Training(training.devices, master=training.compute, compute=training.compute, optimizer=0, offloaded=True)


def _colocated(config: DictConfig) -> bool:
    """True if policy and vLLM share their GPUs."""
    return bool(config.trainer.v1.trainer_mode != SEPARATE)


def _pinned_padding(shape: ModelShape, training: Training) -> float:
    """Bytes of pinned memory per byte of weights (1 to 2): torch rounds each tensor up to a power of two."""
    parts = {max(size * training.stored // training.devices, 1): count for size, count in shape.tensors.items()}
    allocated = sum((1 << (part - 1).bit_length()) * count for part, count in parts.items())
    return allocated / sum(part * count for part, count in parts.items())


# ---- the plan ------------------------------------------------------------------------------------------------------


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
        rollout, actor, colocated = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor, _colocated(config)
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
