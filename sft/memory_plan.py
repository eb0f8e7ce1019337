"""The memory plan of supervised training: a single phase, the update, with everything on the GPU or in host memory."""

from dataclasses import replace
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.memory.cpu import DEVICE_PROCESSES, CpuMemory, choose, described, micro_batches, process_bytes
from ditto.memory.estimate import Change, Memory, TrainingSetup, first_fit, largest, lower_limits
from ditto.memory.model_shape import GIB, read_shape
from ditto.memory.plan import advice, gpu_size
from ditto.memory.setup import sharded
from ditto.settings import BadConfig
from soul.host_resources import free_memory

TOKENS, CHECKPOINTING = "data.max_token_len_per_gpu", "model.enable_gradient_checkpointing"  # null: open, on a CPU
FUSED, OFFLOAD = "model.use_fused_kernels", "engine.offload_policy"


def check_memory(config: DictConfig, longest: int) -> list[str]:
    """The memory plan, for people.

    Args:
        longest: tokens of the longest sequence; a micro-batch must be able to hold it.
    """
    shape, limit = read_shape(config.model, "model"), int(config.data.max_token_len_per_gpu)
    training = TrainingSetup(**sharded(shape, config.model, config.engine, config.trainer))
    size, source = gpu_size(OmegaConf.select(config, "memory.gpu_gib"))

    def needed(change: Change) -> Memory:
        offloaded, fused = change.get(OFFLOAD, training.offloaded), change.get(FUSED, not training.full_logits)
        how = replace(training, offloaded=offloaded, full_logits=not fused)
        return largest(how.update(change.get(TOKENS, limit)))

    def fits(change: Change) -> bool:
        memory = needed(change)
        return memory.total + memory.reserve <= size

    memory = needed({})
    with_reserve = f"{(memory.total + memory.reserve) / GIB:.1f}"
    where = f"{training.devices} GPUs of {size / GIB:.1f} GiB ({source})"
    if not fits({}):
        values: dict[str, list[Any]] = {
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
    data, model, free = config.data, config.model, free_memory()
    training = TrainingSetup(**sharded(shape, model, config.engine, config.trainer))
    step_tokens = -(-data.train_batch_size // (devices * config.trainer.nnodes)) * longest

    def needed(checkpointing: bool, tokens: int) -> CpuMemory:
        most, how = min(tokens, step_tokens), replace(training, checkpointing=checkpointing)
        process = process_bytes(how, most, most, config.checkpoint.save_contents)
        return CpuMemory(devices * process, (devices + 1) * DEVICE_PROCESSES, free)  # the launcher, too

    checkpointing, tokens, memory = choose(
        model.enable_gradient_checkpointing, data.max_token_len_per_gpu, longest, needed
    )
    data.max_token_len_per_gpu, model.enable_gradient_checkpointing = tokens, checkpointing
    lengths = "data.max_prompt_length, data.max_response_length"
    memory.check(shape, lengths, longest, "" if training.lora_rank else "model.lora_rank=32")
    return [f"memory: {described(training)}, {memory}; {micro_batches(tokens, checkpointing)}"]
