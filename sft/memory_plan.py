"""The memory plan of supervised training: a single phase, the update, with everything on the GPU or in host memory."""

from __future__ import annotations

from dataclasses import replace

from omegaconf import DictConfig, OmegaConf

from ditto.memory.cpu import DEVICE_PROCESSES, CpuMemory, choose, described, micro_batches, process_bytes
from ditto.memory.estimate import Change, Memory, TrainingSetup, first_fit, largest, lower_limits, update_moments
from ditto.memory.model_shape import GIB, read_shape
from ditto.memory.plan import advice, gpu_size
from ditto.memory.setup import number_formats
from ditto.settings import BadConfig
from soul.host_resources import free_memory

TOKENS, CHECKPOINTING = "data.max_token_len_per_gpu", "model.enable_gradient_checkpointing"  # null: open, on a CPU
FUSED, OFFLOAD = "model.use_fused_kernels", "engine.offload_policy"


def check_memory(config: DictConfig, longest: int) -> list[str]:
    """The memory plan, for people.

    Args:
        longest: tokens of the longest sequence; a micro-batch must be able to hold it.
    """
    shape, training, limit = (
        read_shape(config.model, "model"),
        _training(config),
        int(config.data.max_token_len_per_gpu),
    )
    size, source = gpu_size(OmegaConf.select(config, "memory.gpu_gib"))

    def needed(change: Change) -> Memory:
        offloaded, fused = change.get(OFFLOAD, training.offloaded), change.get(FUSED, not training.full_logits)
        how = replace(training, offloaded=offloaded, full_logits=not fused)
        return largest(update_moments(shape, change.get(TOKENS, limit), how))

    def fits(change: Change) -> bool:
        memory = needed(change)
        return memory.total + memory.reserve <= size

    memory = needed({})
    with_reserve = f"{(memory.total + memory.reserve) / GIB:.1f}"
    where = f"{training.devices} GPUs of {size / GIB:.1f} GiB ({source})"
    if not fits({}):
        values = {
            FUSED: [not training.full_logits, True],
            TOKENS: lower_limits(limit, longest),
            OFFLOAD: [training.offloaded, True],
        }
        raise BadConfig(
            f"{shape.name} does not fit on {where}: an update with {TOKENS}={limit} needs {with_reserve} GiB. "
            f"{advice(first_fit(values, fits))}. A GPU of another size: memory.gpu_gib=..."
        )
    parts = ", ".join(f"{name} {size / GIB:.1f}" for name, size in vars(memory).items())
    return [
        f"memory of an update with {limit:,} tokens, GiB on each of {where}: {parts}; with a reserve {with_reserve}"
    ]


def fit(config: DictConfig, longest: int) -> list[str]:
    """The memory plan on a CPU, for people. What the config leaves open is chosen, and written there.

    Args:
        longest: tokens of the longest sequence.
    """
    shape, devices = read_shape(config.model, "model", dense_only=False), int(config.trainer.n_gpus_per_node)
    data, model, rank = config.data, config.model, int(config.model.get("lora_rank") or 0)
    step_tokens = -(-data.train_batch_size // (devices * config.trainer.nnodes)) * longest
    exports, free = "hf_model" in config.checkpoint.save_contents, free_memory()

    def needed(checkpointing: bool, tokens: int) -> CpuMemory:
        most, training = min(tokens, step_tokens), replace(_training(config), checkpointing=checkpointing)
        process = process_bytes(shape, training, most, most, exports)
        return CpuMemory(devices * process, (devices + 1) * DEVICE_PROCESSES, free)  # the launcher, too

    checkpointing, tokens, memory = choose(
        model.enable_gradient_checkpointing, data.max_token_len_per_gpu, longest, needed
    )
    data.max_token_len_per_gpu, model.enable_gradient_checkpointing = tokens, checkpointing
    lengths = "data.max_prompt_length, data.max_response_length"
    memory.check(shape, lengths, longest, "" if rank else "model.lora_rank=32")
    return [f"memory: {described(shape, rank)}, {memory}; {micro_batches(tokens, checkpointing)}"]


def _training(config: DictConfig) -> TrainingSetup:
    engine, model = config.engine, config.model
    devices = config.trainer.n_gpus_per_node * config.trainer.nnodes
    formats = number_formats(engine, "engine")
    return TrainingSetup(
        devices=devices if engine.fsdp_size in (-1, 0) else min(engine.fsdp_size, devices),
        lora_rank=int(model.get("lora_rank") or 0),
        **formats,
        optimizer=2 * formats["master"],
        checkpointing=bool(model.enable_gradient_checkpointing),
        reshard=bool(engine.reshard_after_forward),
        keep_gathered_gradients=bool(engine.get("use_no_sync_for_gradient_accumulation")),
        offloaded=bool(engine.offload_policy),
        full_logits=not model.use_fused_kernels,
    )
