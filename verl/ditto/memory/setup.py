"""The numbers of a memory plan that follow from the composed config of RL: the training process, the engine, the host.

`sharded` also reads that of supervised training.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from ditto.launching.compose import SEPARATE
from ditto.memory.estimate import TrainingSetup
from ditto.memory.model_shape import GIB, ModelShape, read_shape
from ditto.objectives import objective

# Assumed from logs. Of a vLLM engine while it sleeps: CUDA context and CUDA graphs.
CONTEXT, GRAPHS = 1.0 * GIB, 1.5 * GIB
# On the host. Per GPU: a trainer with torch, CUDA and NCCL, and a vLLM engine with its server.
GPU_PROCESSES, AGENT_WORKER, DRIVER = 12 * GIB, 2 * GIB, 8 * GIB
TOKENS = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu"


def sharded(shape: ModelShape, model: DictConfig, engine: DictConfig, trainer: DictConfig) -> dict[str, Any]:
    """The arguments of a TrainingSetup that the sections of model, FSDP engine and trainer determine."""
    devices, precision = trainer.n_gpus_per_node * trainer.nnodes, engine.get("mixed_precision") or {}
    master = number_bytes(engine.get("model_dtype") or "fp32")
    return {
        "shape": shape,
        "devices": devices if engine.fsdp_size in (-1, 0) else min(engine.fsdp_size, devices),
        "lora_rank": int(model.get("lora_rank") or 0),
        "master": master,
        "compute": number_bytes(precision.get("param_dtype", "bf16")),
        "reduce": number_bytes(precision.get("reduce_dtype", "fp32")),
        "optimizer": 2 * master,
        "checkpointing": bool(model.enable_gradient_checkpointing),
        "reshard": bool(engine.reshard_after_forward),
        "keep_gathered_gradients": bool(engine.get("use_no_sync_for_gradient_accumulation")),
        "offloaded": bool(engine.offload_policy),
        "full_logits": not model.use_fused_kernels,
    }


def number_bytes(name: Any) -> int:
    """Bytes of a number in the format of this name; vLLM's `auto` is bfloat16."""
    return 4 if str(name).removeprefix("torch.") in ("fp32", "float32", "float") else 2


def training_of(shape: ModelShape, config: DictConfig) -> TrainingSetup:
    """The training process of an RL run, for the arithmetic."""
    model, actor, algorithm = config.actor_rollout_ref.model, config.actor_rollout_ref.actor, config.algorithm
    training = sharded(shape, model, actor.fsdp_config, config.trainer)
    if "8bit" in str(actor.optim.get("optimizer")):
        training["optimizer"] = 2
    training["keep_gathered_gradients"] &= update_tokens(config) > (actor.ppo_max_token_len_per_gpu or 0)
    moving_teacher = objective(algorithm.objective).teacher == "feedback" and algorithm.sdpo.teacher != "live"
    return TrainingSetup(**training, teacher_copies=2 if moving_teacher else 0)


def update_tokens(config: DictConfig) -> int:
    """Most tokens that one device can get in one optimizer update."""
    rollout, kinds = config.actor_rollout_ref.rollout, objective(config.algorithm.objective).kinds
    rows = config.actor_rollout_ref.actor.ppo_mini_batch_size * rollout.n * len(kinds)
    return int(-(-rows // (config.trainer.n_gpus_per_node * config.trainer.nnodes)) * rollout.max_model_len)


def reference_bytes(config: DictConfig) -> int:
    """Bytes per weight of a separate reference model for the KL loss; 0: there is none."""
    ref = config.actor_rollout_ref
    separate = ref.actor.use_kl_loss and not ref.model.lora_rank
    return number_bytes(ref.ref.fsdp_config.model_dtype) if separate else 0


def syncs_adapter(config: DictConfig) -> bool:
    """True if vLLM gets the adapter alone, and keeps the weights of the base model."""
    model = config.actor_rollout_ref.model
    return bool(model.lora_rank) and not (model.get("lora") or {}).get("merge", False)


def is_colocated(config: DictConfig) -> bool:
    """True if policy and vLLM share their GPUs."""
    return bool(config.trainer.v1.trainer_mode != SEPARATE)


def teacher_shapes(config: DictConfig, teachers: Collection[str], dense_only: bool = True) -> list[ModelShape]:
    """The shapes of the checkpoints that teach (folders or hub ids), each once."""
    model = config.actor_rollout_ref.model
    return [
        read_shape(OmegaConf.merge(model, {"path": path}), "algorithm.distill.teachers", dense_only)
        for path in sorted(set(teachers))
    ]


class Engine(NamedTuple):
    """Bytes of one vLLM engine on one device."""

    weights: int
    working: int  # activations of the largest batch, and logits
    cache_token: int  # keys and values of one token
    fixed: int  # CUDA context and CUDA graphs, which stay while it sleeps; 0 on a CPU

    @classmethod
    def of(cls, shape: ModelShape, config: DictConfig, on_gpu: bool = True) -> Engine:
        """The engine of a run."""
        rollout, rank = config.actor_rollout_ref.rollout, int(config.actor_rollout_ref.model.lora_rank or 0)
        tp = rollout.tensor_model_parallel_size
        number = 1 if rollout.get("quantization") else number_bytes(rollout.dtype)
        copies = 1 if on_gpu else 2  # the CPU build keeps a weight as synced, and packed (verl_hooks/compat.py)
        weights = (shape.weights * number * copies + syncs_adapter(config) * shape.adapter(rank) * 2) // tp
        # A layer's peak: the residual stream, gate, up and their product. Logits: as computed, and float32 twice.
        batch = rollout.max_num_batched_tokens * number * 3 * (shape.hidden + shape.intermediate // tp)
        logits = rollout.max_num_seqs * shape.vocab * (number + 8)
        token = max(2 * shape.layers * shape.key_value * (2 if on_gpu else number) // tp, 1)
        fixed = int(CONTEXT + (0 if rollout.enforce_eager else GRAPHS)) if on_gpu else 0
        return cls(weights, batch + logits, token, fixed)


def host_memory(training: TrainingSetup, config: DictConfig, teachers: Sequence[ModelShape] = ()) -> dict[str, int]:
    """Bytes on one node, by purpose. What is there "while loading" is gone before anything is offloaded.

    If the head is tied, every process loads the model; otherwise one process does (verl builds it on the meta device in
    the others).
    """
    shape, gpus, rollout = training.shape, config.trainer.n_gpus_per_node, config.actor_rollout_ref.rollout
    actor, colocated = config.actor_rollout_ref.actor, is_colocated(config)
    copy_bytes, engine = training.part(training.master), actor.fsdp_config
    pinned = shape.weights * reference_bytes(config) // training.devices
    pinned += (engine.param_offload or training.offloaded) * training.shard
    pinned += (engine.optimizer_offload or training.offloaded) * training.part(training.optimizer)
    pinned += training.offloaded * copy_bytes  # gradients
    copies = 0  # of the trained weights: a teacher's and the live ones while it runs, or those of a step's beginning
    if training.teacher_copies:
        copies += 2 if training.offloaded else int(engine.param_offload)
    if not colocated:
        copies += 1 + (config.trainer.v1.separate_async.parameter_sync_step > 1)
    number = training.compute  # of teachers and of vLLM: shards that only score stay on the host in this format
    asleep = 0.0  # a sleeping vLLM keeps its weights on the host if only an adapter is synced; else it discards them
    if colocated and rollout.free_cache_engine and syncs_adapter(config):
        asleep = Engine.of(shape, config).weights * _pinned_padding(shape, number, training.devices)
    taught = sum(
        each.weights * number // training.devices * _pinned_padding(each, number, training.devices) for each in teachers
    )
    return {
        "offloaded": int(
            (pinned * _pinned_padding(shape, training.stored, training.devices) + copies * copy_bytes) * gpus
        ),
        "weights of sleeping vLLM": int(asleep * gpus),
        "processes": gpus * GPU_PROCESSES + rollout.agent.num_workers * AGENT_WORKER + DRIVER,
        "teachers": int(taught * gpus)
        + max((each.weights * number * (gpus if each.tied else 1) for each in teachers), default=0),
        "while loading": shape.weights * training.master * (gpus if shape.tied else 1),
        "while writing a checkpoint": shape.weights * (training.stored + 2)
        if "hf_model" in actor.checkpoint.save_contents
        else 0,
    }


def _pinned_padding(shape: ModelShape, number: int, devices: int) -> float:
    """Bytes of pinned memory per byte of weights (1 to 2): torch rounds each tensor up to a power of two."""
    parts = {max(size * number // devices, 1): count for size, count in shape.tensors.items()}
    allocated = sum((1 << (part - 1).bit_length()) * count for part, count in parts.items())
    return allocated / sum(part * count for part, count in parts.items())
