"""The numbers of a memory plan that follow from the config: shards, number formats, the engine, the host.

Every function takes the composed config of RL; `number_formats` also that of supervised training.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from ditto.launching.compose import SEPARATE
from ditto.memory.estimate import (
    TrainingSetup,
    shard_bytes,
    trained_shard,
)
from ditto.memory.model_shape import GIB, ModelShape, read_shape
from ditto.settings import BadConfig, chosen_objective

# Assumed from logs. Of a vLLM engine while it sleeps: CUDA context and CUDA graphs.
CONTEXT, GRAPHS = 1.0 * GIB, 1.5 * GIB
# On the host. Per GPU: a trainer with torch, CUDA and NCCL, and a vLLM engine with its server.
GPU_PROCESSES, AGENT_WORKER, DRIVER = 12 * GIB, 2 * GIB, 8 * GIB
TOKENS = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu"


def training_of(config: DictConfig) -> TrainingSetup:
    """The training process of an RL run, for the arithmetic."""
    model, actor, trainer = config.actor_rollout_ref.model, config.actor_rollout_ref.actor, config.trainer
    engine, objective = actor.fsdp_config, chosen_objective(config.algorithm)
    devices = trainer.n_gpus_per_node * trainer.nnodes
    formats = number_formats(engine, "actor_rollout_ref.actor.fsdp_config")
    several = update_tokens(config) > (actor.ppo_max_token_len_per_gpu or 0)
    moving_teacher = objective.teacher == "feedback" and config.algorithm.sdpo.teacher != "live"
    return TrainingSetup(
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
        copies = 1 if on_gpu else 2  # the CPU build keeps a weight as synced, and packed (verl_hooks/compat.py)
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
    if not is_colocated(config):
        copies += 1 + (separate.parameter_sync_step > 1)
    scoring = scoring_only(training)
    asleep = 0.0  # a sleeping vLLM keeps its weights on the host if only an adapter is synced; else it discards them
    if is_colocated(config) and rollout.free_cache_engine and syncs_adapter(config):
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


def scoring_only(training: TrainingSetup) -> TrainingSetup:
    """A model that only scores: its shards stay on the host, in the number format of the computation."""
    return TrainingSetup(
        training.devices, master=training.compute, compute=training.compute, optimizer=0, offloaded=True
    )


def is_colocated(config: DictConfig) -> bool:
    """True if policy and vLLM share their GPUs."""
    return bool(config.trainer.v1.trainer_mode != SEPARATE)


def _pinned_padding(shape: ModelShape, training: TrainingSetup) -> float:
    """Bytes of pinned memory per byte of weights (1 to 2): torch rounds each tensor up to a power of two."""
    parts = {max(size * training.stored // training.devices, 1): count for size, count in shape.tensors.items()}
    allocated = sum((1 << (part - 1).bit_length()) * count for part, count in parts.items())
    return allocated / sum(part * count for part, count in parts.items())
