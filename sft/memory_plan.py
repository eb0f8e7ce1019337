"""The memory plan of supervised training: a single phase, the update, with everything on the GPU or in host memory."""

from __future__ import annotations

from dataclasses import replace

from omegaconf import DictConfig, OmegaConf

from ditto.memory.cpu import DEVICE_PROCESSES, USABLE, choices, micro_batches, process_bytes
from ditto.memory.machine import Machine
from ditto.memory.model_shape import GIB, ModelShape
from ditto.memory.phases import reserve
from ditto.memory.read_model import read_shape
from ditto.memory.setup import number_formats
from ditto.memory.training import Memory, Training, update_peak
from ditto.settings import BadConfig
from soul.host_resources import free_memory

TOKENS, CHECKPOINTING = "data.max_token_len_per_gpu", "model.enable_gradient_checkpointing"  # null: open, on a CPU
TOKEN_STEP = 4096


def check_memory(config: DictConfig, longest: int) -> list[str]:
    """The memory plan, for people.

    Args:
        longest: tokens of the longest sequence; a micro-batch must be able to hold it.

    Raises:
        BadConfig: the model does not fit; names the override that makes it fit.
    """
    shape = read_shape(config.model, "model")
    machine = Machine.find(OmegaConf.select(config, "memory.gpu_gib"))
    training, tokens = _training(config), int(config.data.max_token_len_per_gpu)
    needed = _needed(shape, tokens, training)
    where = f"{training.devices} GPUs of {machine.gpu_bytes / GIB:.1f} GiB ({machine.gpu_source})"
    if needed[1] > machine.gpu_bytes:
        raise BadConfig(
            f"{shape.name} does not fit on {where}: an update with data.max_token_len_per_gpu={tokens} needs "
            f"{needed[1] / GIB:.1f} GiB. {_advice(shape, tokens, longest, training, machine.gpu_bytes)}. "
            "A GPU of another size: memory.gpu_gib=..."
        )
    parts = ", ".join(f"{name} {size / GIB:.1f}" for name, size in vars(needed[0]).items())
    return [
        f"memory of an update with {tokens:,} tokens, GiB on each of {where}: {parts}; with a reserve "
        f"{needed[1] / GIB:.1f}"
    ]


def fit(config: DictConfig, longest: int) -> list[str]:
    """The memory plan on a CPU, for people. What the config leaves open is chosen, and written there.

    Args:
        longest: tokens of the longest sequence.

    Raises:
        BadConfig: the model does not fit.
    """
    shape, devices = read_shape(config.model, "model", dense_only=False), int(config.trainer.n_gpus_per_node)
    step_tokens = -(-config.data.train_batch_size // (devices * config.trainer.nnodes)) * longest
    exports, free = "hf_model" in config.checkpoint.save_contents, free_memory()
    processes = (devices + 1) * DEVICE_PROCESSES  # the launcher, too
    trainer = 0
    data, model = config.data, config.model
    for checkpointing, tokens in choices(model.enable_gradient_checkpointing, data.max_token_len_per_gpu, longest):
        data.max_token_len_per_gpu, model.enable_gradient_checkpointing = tokens, checkpointing
        most = min(tokens, step_tokens)
        trainer = devices * process_bytes(shape, _training(config), most, most, exports)
        if trainer + processes <= USABLE * free:
            break
    sizes = (f"{size / GIB:.1f}" for size in (trainer + processes, trainer, processes, free))
    parts = "at most {} GiB (trainer {}, processes {}) of {} free".format(*sizes)
    if trainer + processes > USABLE * free:
        lora = "" if model.lora_rank else "LoRA (model.lora_rank=32), "
        raise BadConfig(
            f"{shape.name} does not fit into this machine's memory: it needs {parts}, of which a run may use "
            f"{USABLE:.0%}. Use shorter sequences (data.max_prompt_length, data.max_response_length; now {longest:,} "
            f"tokens together), {lora}a smaller model, or stop other programs."
        )
    how = f"LoRA of rank {model.lora_rank}" if model.lora_rank else "all trained"
    chosen = micro_batches(data.max_token_len_per_gpu, model.enable_gradient_checkpointing)
    return [f"memory: {shape.weights / 1e9:.2f} B weights ({how}), {parts}; {chosen}"]


def _training(config: DictConfig) -> Training:
    engine, model = config.engine, config.model
    devices = config.trainer.n_gpus_per_node * config.trainer.nnodes
    formats = number_formats(engine, "engine")
    return Training(
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


def _needed(shape: ModelShape, tokens: int, training: Training) -> tuple[Memory, int]:
    """The peak by part, and the total bytes with the reserve."""
    peak = update_peak(shape, tokens, training)
    return peak, peak.total + reserve(peak)


def _advice(shape: ModelShape, tokens: int, longest: int, training: Training, gpu_bytes: int) -> str:
    """The first change of settings that makes it fit, the cheapest one first."""
    fused = replace(training, full_logits=False)
    override = "model.use_fused_kernels=true " if training.full_logits else ""
    offloaded = replace(fused, offloaded=True)
    changes = [("", training), (override, fused), (f"{override}engine.offload_policy=true ", offloaded)]
    for overrides, changed in changes:
        for limit in [tokens, *range((tokens - 1) // TOKEN_STEP * TOKEN_STEP, longest, -TOKEN_STEP), longest]:
            if limit <= tokens and _needed(shape, limit, changed)[1] <= gpu_bytes:
                lower = f"data.max_token_len_per_gpu={limit}" if limit < tokens else ""
                return f"This fits: {overrides}{lower}".rstrip()
    return "No override makes it fit: use more or larger GPUs, LoRA (model.lora_rank=32) or a smaller model"
