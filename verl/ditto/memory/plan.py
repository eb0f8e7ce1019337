"""The memory plan of a run on GPUs: printed by a dry run, and checked before every start.

A step has phases. *rollout*: vLLM has its share of the GPU; an offloaded policy is on the host. *log-probs* and
*update*: vLLM sleeps, and the policy is on the GPU. *teachers*: a checkpoint that teaches is loaded, which takes more
than its scoring. *weight sync*: vLLM has its weights again while the policy is still on the GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import torch
from omegaconf import DictConfig, OmegaConf

from ditto.launching.compose import SEPARATE
from ditto.memory.estimate import GIB, Memory, Model, Training, read_model
from ditto.objectives import objective
from ditto.policies import adapters_of, objectives_of
from ditto.settings import BadConfig
from soul import tasks

ASSUMED_GIB = 79.2  # usable memory of an 80 GB NVIDIA GPU
# Assumed from logs. Of a vLLM engine while it sleeps: its CUDA context and CUDA graphs.
VLLM_CONTEXT, GRAPHS = 1.0 * GIB, 1.5 * GIB
TOKENS = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu"
ENGINES = "actor_rollout_ref.rollout.tensor_model_parallel_size"
OFFLOAD = "actor_rollout_ref.actor.fsdp_config.offload_policy"

Values = dict[str, list[Any]]  # setting -> its values: the run's own, then those that need less memory
Plan = Callable[[DictConfig], "MemoryPlan"]


@dataclass(frozen=True)
class MemoryPlan:
    """The memory that a run needs on each GPU, by phase."""

    model: Model
    devices: str
    phases: dict[str, Memory]
    gpu_bytes: int
    notes: Sequence[str] = ()  # further lines
    problems: Sequence[str] = ()  # reasons other than a full GPU that the run does not fit

    @property
    def reasons(self) -> list[str]:
        """The reasons that the run does not fit; empty if it fits."""
        limit = self.gpu_bytes
        full = {name: phase.total for name, phase in self.phases.items() if phase.total > limit}
        needs = [f"{name} needs {size / GIB:.1f} GiB of {limit / GIB:.1f} GiB" for name, size in full.items()]
        return [*needs, *self.problems]

    def lines(self) -> list[str]:
        """The plan as lines of text."""
        rows = {name: [*memory, memory.reserve, memory.total] for name, memory in self.phases.items()}
        name, most = max(((name, row[-1] / GIB) for name, row in rows.items()), key=lambda row: row[1])
        return [
            f"{self.model} on {self.devices}",
            f"{'GiB on each GPU':<26}"
            + "".join(f"{each:>12}" for each in [*Memory._fields[:-1], "vLLM", "reserve", "total"]),
            *(f"{phase:<26}" + "".join(f"{size / GIB:>12.1f}" for size in row) for phase, row in rows.items()),
            *self.notes,
            f"fits: {most:.1f} of {self.gpu_bytes / GIB:.1f} GiB at most ({name})",
        ]


def remedy(config: DictConfig, values: Values, plan: Plan) -> tuple[dict[str, Any], MemoryPlan] | None:
    """The cheapest overrides that make a run fit, and its plan with them; None: none do.

    Overrides of the first settings are cheaper than those of the others. The config is the same afterwards.
    """
    own = {key: options[0] for key, options in values.items()}
    try:
        for chosen in product(*reversed(values.values())):
            settings = dict(zip(values, reversed(chosen), strict=True))
            for key, value in settings.items():
                OmegaConf.update(config, key, value)
            if not (made := plan(config)).reasons:
                return {key: value for key, value in settings.items() if value != own[key]}, made
        return None
    finally:
        for key, value in own.items():
            OmegaConf.update(config, key, value)


def check_fit(config: DictConfig, values: Values, plan: Plan) -> list[str]:
    """The lines of a plan. Raises BadConfig, which names the overrides that make the run fit, if it does not."""
    made = plan(config)
    if not made.reasons:
        return made.lines()
    advice = "No override makes it fit: use larger GPUs or more of them, LoRA (lora_rank=32) or a smaller model"
    if found := remedy(config, values, plan):
        advice = f"This fits: {' '.join(f'{key}={str(value).lower()}' for key, value in found[0].items())}"
    raise BadConfig(
        f"{made.model.name} does not fit on {made.devices}: {'; '.join(made.reasons)}. {advice}. If your GPUs have "
        "another size, set memory.gpu_gib"
    )


def lower_limits(limit: int, longest: int) -> list[int]:
    """A token limit of a micro-batch and lower ones, down to the longest sequence, which must fit."""
    halves = [limit >> n for n in range(limit.bit_length()) if limit >> n > longest]
    return [*halves, min(limit, longest)]


def check_rl(config: DictConfig, teachers: Collection[str] = ()) -> list[str]:
    """The lines of the plan of an RL run; `teachers`: folders or hub ids. Raises BadConfig if it does not fit."""
    section = config.actor_rollout_ref.model
    model, gpu, taught = (
        model_of(section),
        gpu_size(config),
        [model_of(section, path) for path in sorted(set(teachers))],
    )
    return check_fit(config, remedies(config), lambda trial: rl_plan(trial, model, gpu, taught))


def remedies(config: DictConfig) -> Values:
    """The three remedies of RL, cheapest first: smaller micro-batches, wider engines, weights on the host."""
    rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    tp, gpus = rollout.tensor_model_parallel_size, config.trainer.n_gpus_per_node
    return {
        TOKENS: lower_limits(actor.ppo_max_token_len_per_gpu, rollout.max_model_len),
        ENGINES: [tp, *(wider for wider in (2, 4, 8) if wider > tp and gpus % wider == 0)],
        OFFLOAD: [actor.fsdp_config.offload_policy, True],
    }


def rl_plan(config: DictConfig, model: Model, gpu: tuple[int, str], teachers: Sequence[Model] = ()) -> MemoryPlan:
    """The plan of an RL run.

    Args:
        gpu: the result of `gpu_size`.
        teachers: the checkpoints that teach.
    """
    training, engine, gpu_bytes = rl_training(config, model), engine_memory(config, model), gpu[0]
    rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    offload, colocated = actor.fsdp_config, config.trainer.v1.trainer_mode != SEPARATE
    share = int(gpu_bytes * rollout.gpu_memory_utilization)
    sleeps = rollout.free_cache_engine and rollout.get("enable_sleep_mode") is not False  # null: verl's default
    asleep = (engine.fixed if sleeps else share) if colocated else 0
    # A micro-batch may have fewer tokens than its limit, if a device gets fewer in the whole update.
    limits = (actor.ppo_max_token_len_per_gpu, rollout.log_prob_max_token_len_per_gpu)
    tokens, scored = (min(limit, update_tokens(config)) for limit in limits)
    update, log_probs = training.update(tokens), training.forward(scored)
    if offload.optimizer_offload:
        log_probs = log_probs._replace(optimizer=0)
    here = colocated and not training.offloaded
    copied = training.part if training.teacher_copies else 0
    stays = Memory(
        weights=training.shard + copied if here and not offload.param_offload else 0,
        optimizer=update.optimizer if here and not offload.optimizer_offload else 0,
    )
    # Without LoRA, tensors are gathered one by one into a bucket. An adapter is gathered on the host.
    bucket = rollout.checkpoint_engine.update_weights_bucket_megabytes << 20
    sent = training.shard if model.adapter else 2 * model.largest_tensor * training.master
    phases = {"rollout": stays._replace(vllm=share), f"log-probs ({scored:,} tokens)": log_probs._replace(vllm=asleep)}
    if teachers:
        loaded = training.shard + max(teacher.weights for teacher in teachers) * training.compute
        phases["teachers"] = Memory(loaded, training.part, update.optimizer, vllm=asleep)
    phases[f"update ({tokens:,} tokens)"] = update._replace(vllm=asleep)
    phases["weight sync"] = stays._replace(weights=stays.weights + sent + bucket, vllm=asleep + engine.weights)

    cache = max(share - engine.weights - engine.working - engine.fixed, 0)
    cached = cache // engine.cache_token
    few = (
        f"vLLM's share (gpu_memory_utilization={rollout.gpu_memory_utilization}) holds keys and values of {cached:,} "
        f"tokens, fewer than one sequence may have ({rollout.max_model_len:,})"
    )
    note = (
        f"vLLM: weights {engine.weights / GIB:.1f} GiB, working memory {(engine.working + engine.fixed) / GIB:.1f}, "
        f"keys and values {cache / GIB:.1f} = {cached:,} tokens"
    )
    problems = [few] if cached < rollout.max_model_len else []
    return MemoryPlan(model, gpus_in_words(config.trainer, gpu), phases, gpu_bytes, [note], problems)


class Engine(NamedTuple):
    """Bytes of one vLLM engine on one device."""

    weights: int
    working: int  # activations of the largest batch, and logits
    cache_token: int  # keys and values of one token
    fixed: int  # CUDA context and CUDA graphs, which stay while it sleeps


def engine_memory(config: DictConfig, model: Model) -> Engine:
    """The engine of a run. The CPU build keeps a weight as synced, and packed (verl_hooks/compat.py)."""
    rollout, on_cpu = config.actor_rollout_ref.rollout, config.trainer.device == "cpu"
    tp = rollout.tensor_model_parallel_size
    number = 1 if rollout.get("quantization") else number_bytes(rollout.dtype)
    # A layer's peak: the residual stream, gate, up and their product. Logits: as computed, and float32 twice.
    batch = rollout.max_num_batched_tokens * number * 3 * (model.hidden + model.intermediate // tp)
    return Engine(
        weights=(model.weights * number * (2 if on_cpu else 1) + model.adapter * 2) // tp,
        working=batch + rollout.max_num_seqs * model.vocab * (number + 8),
        cache_token=max(2 * model.layers * model.key_value * (number if on_cpu else 2) // tp, 1),
        fixed=0 if on_cpu else int(VLLM_CONTEXT + (0 if rollout.enforce_eager else GRAPHS)),
    )


def rl_training(config: DictConfig, model: Model) -> Training:
    """The training process of an RL run."""
    ref, algorithm = config.actor_rollout_ref, config.algorithm
    moving_teacher = objective(algorithm.objective).teacher == "feedback" and algorithm.sdpo.teacher != "live"
    training = training_of(model, ref.model, ref.actor.fsdp_config, config.trainer)
    return replace(training, teacher_copies=2 if moving_teacher else 0)


def training_of(model: Model, section: DictConfig, engine: DictConfig, trainer: DictConfig) -> Training:
    """The training process that the sections of model, FSDP engine and trainer determine, for RL and SFT."""
    devices = trainer.n_gpus_per_node * trainer.nnodes
    return Training(
        model,
        devices=devices if engine.fsdp_size in (-1, 0) else min(engine.fsdp_size, devices),
        master=number_bytes(engine.get("model_dtype") or "fp32"),
        compute=number_bytes((engine.get("mixed_precision") or {}).get("param_dtype", "bf16")),
        checkpointing=section.enable_gradient_checkpointing,
        reshard=bool(engine.reshard_after_forward),
        offloaded=bool(engine.offload_policy),
        full_logits=not section.use_fused_kernels,
    )


def model_of(section: DictConfig, path: str | None = None) -> Model:
    """The sizes of the model of a config's section, or of another one as if it were trained in the same way."""
    from transformers import AutoConfig

    path, trust = path or str(section.path), bool(section.get("trust_remote_code", False))
    config = AutoConfig.from_pretrained(path, trust_remote_code=trust)
    rank = int(section.get("lora_rank") or 0) * len(adapters_of(section.get("lora") or {}))  # as one wide adapter
    return read_model(config, path, rank, trust)


def number_bytes(name: Any) -> int:
    """Bytes of a number in the format of this name; vLLM's `auto` is bfloat16."""
    return 4 if str(name).removeprefix("torch.") in ("fp32", "float32", "float") else 2


def update_tokens(config: DictConfig) -> int:
    """Most tokens that one device can get in one optimizer update, which may train every side of a play."""
    rollout, objectives = config.actor_rollout_ref.rollout, objectives_of(config)
    sides = max((1 + len(tasks.load(name).further_sides) for name in config.get("tasks") or ()), default=1)
    kinds = sides * max(len(each.kinds) for each in objectives)
    rows = config.actor_rollout_ref.actor.ppo_mini_batch_size * rollout.n * kinds
    return int(-(-rows // (config.trainer.n_gpus_per_node * config.trainer.nnodes)) * rollout.max_model_len)


def gpus_in_words(trainer: DictConfig, gpu: tuple[int, str]) -> str:
    """The GPUs of a run, in words."""
    nodes = f"{trainer.nnodes} nodes with " if trainer.nnodes > 1 else ""
    plural = "s" if trainer.n_gpus_per_node > 1 else ""
    return f"{nodes}{trainer.n_gpus_per_node} GPU{plural} of {gpu[0] / GIB:.1f} GiB ({gpu[1]})"


def gpu_size(config: DictConfig) -> tuple[int, str]:
    """Bytes of a GPU, and where the number comes from: `memory.gpu_gib`, the GPU found here, or an 80 GB GPU."""
    if (given := OmegaConf.select(config, "memory.gpu_gib")) is not None:
        return int(given * GIB), "memory.gpu_gib"
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        return gpu.total_memory, gpu.name
    return int(ASSUMED_GIB * GIB), "assumed, because this machine has no GPU; set memory.gpu_gib for another size"


def check_gpu(config: DictConfig) -> None:
    """Raise BadConfig on a machine without a GPU, except for a dry run or the driver of a cluster (RL or SFT)."""
    if config.trainer.device == "cpu" or torch.cuda.device_count():  # device_count() occupies no GPU memory
        return
    address = os.environ.get("RAY_ADDRESS") or OmegaConf.select(config, "ray_kwargs.ray_init.address")
    if not (config.get("dry_run") or address or os.environ.get("VERL_PLATFORM", "").lower() == "cuda"):
        raise BadConfig(
            f"trainer.device={config.trainer.device}, but torch {torch.__version__} sees no GPU on this machine. Start "
            "on a GPU node, or train without one: platform=cpu and VERL_PLATFORM=cpu (PLATFORM=cpu in the launchers)."
        )
