"""Fit a run to a machine without a GPU: choose what the config leaves open, and check that free memory suffices.

Trainer and vLLM hold their memory at the same time, because vLLM's CPU build cannot sleep. A config of the CPU platform
leaves open (null) the size of weight buckets, vLLM's cache, the tokens of a micro-batch and gradient checkpointing.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.memory.model_shape import GIB, ModelShape
from ditto.memory.read_model import read_shape
from ditto.memory.setup import KEYS, Setup
from ditto.memory.training import (
    Memory,
    Training,
    forward_peak,
    optimizer_bytes,
    shard_bytes,
    teacher_bytes,
    trained_weights,
    update_moments,
)
from ditto.settings import BadConfig, Settings
from soul.host_resources import free_memory

CACHE_KEY = "actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes"
LOG_PROB_KEYS = ("actor_rollout_ref.rollout", "actor_rollout_ref.ref")  # .log_prob_max_token_len_per_gpu
FREE_KEYS = (*(KEYS[name] for name in ("bucket_mib", "tokens", "checkpointing")), CACHE_KEY)
MOST_TOKENS, LEAST_BUCKET = 65_536, 64  # of a micro-batch, as on a GPU; MiB
CACHE_BLOCK = 128  # tokens; vLLM's CPU build gives a sequence whole blocks
CACHE_SHARE = 0.2  # of the free memory, at most, for keys and values beyond one sequence
USABLE = 0.9  # share of the free memory that a run may plan with
# Measured with SmolLM2-135M: the driver, Ray and workers that share their imports; an actor and an engine of a device.
PROCESSES, DEVICE_PROCESSES = 2 * GIB, 1 * GIB
PACKED = 2  # vLLM keeps each weight as it is synced, and packed for its matrix products (verl_hooks/compat.py)
FRAGMENTS = 1.1  # allocated by malloc, per byte of activations and logits


@dataclass(frozen=True)
class CpuPlan:
    """The chosen settings, and the bytes that the run needs on this machine."""

    shape: ModelShape
    setup: Setup
    cache: int  # bytes of keys and values of one engine
    teachers: int  # bytes of the weights of checkpoints that teach
    free: int

    @property
    def trainer(self) -> int:
        """Bytes of all actors at their largest moment: an update, a pass for log-probs, loading, or an export."""
        setup, training = self.setup, self.setup.training
        tokens, scored = (min(most, setup.update_tokens) for most in (setup.tokens, setup.log_prob_tokens))
        largest = process_bytes(self.shape, training, tokens, scored, setup.exports_model)
        reference = self.shape.weights * setup.reference // training.devices
        return setup.devices * (largest + reference) + self.teachers

    @property
    def engines(self) -> int:
        """Bytes of all vLLM engines."""
        setup, number = self.setup, self.setup.rollout_number
        adapter = self.shape.adapter(setup.lora_rank)
        weights = (self.shape.weights * PACKED + adapter) * number // setup.tensor_parallel
        batch = setup.max_num_batched_tokens * number * 3 * (self.shape.hidden + self.shape.intermediate)
        logits = setup.max_num_seqs * self.shape.vocab * 3 * 4
        return setup.devices * (weights + self.cache + batch + logits)

    @property
    def processes(self) -> int:
        """Bytes of the processes themselves, and of the shared memory in which weights go to vLLM."""
        return PROCESSES + self.setup.devices * (DEVICE_PROCESSES + self.setup.bucket_mib * 2**20)

    @property
    def total(self) -> int:
        """Bytes of everything."""
        return self.trainer + self.engines + self.processes

    @property
    def cached_tokens(self) -> int:
        """Number of tokens whose keys and values fit into one engine's cache."""
        return self.cache // cache_bytes(self.shape, self.setup, 1)

    @property
    def fits(self) -> bool:
        """True if the run fits into the free memory."""
        return self.total <= USABLE * self.free

    def lines(self) -> Iterator[str]:
        """The plan, for people."""
        setup = self.setup
        how = f"LoRA of rank {setup.lora_rank}" if setup.lora_rank else "all trained"
        yield f"{self.shape.weights / 1e9:.2f} B weights ({how}), {self.parts()}"
        yield micro_batches(setup.tokens, setup.checkpointing)
        yield (
            f"vLLM caches keys and values of {self.cached_tokens:,} tokens, and gets weights in pieces of "
            f"{setup.bucket_mib} MiB"
        )

    def parts(self) -> str:
        """The memory that each part needs."""
        sizes = (self.total, self.trainer, self.engines, self.processes, self.free)
        total, trainer, engines, processes, free = (f"{size / GIB:.1f}" for size in sizes)
        return f"at most {total} GiB (trainer {trainer}, vLLM {engines}, processes {processes}) of {free} free"


def process_bytes(shape: ModelShape, training: Training, tokens: int, scored_tokens: int, exports_model: bool) -> int:
    """Bytes of one training process at its largest moment: an update, a pass without gradients, loading, or an export.

    Args:
        tokens, scored_tokens: of a micro-batch of an update, and of a pass without gradients.
    """
    moments = [*update_moments(shape, tokens, training), forward_peak(shape, scored_tokens, training, True)]
    # malloc keeps much of what is freed, so what one moment needs is there in the others too.
    kept = Memory(*(max(sizes) for sizes in zip(*(astuple(moment) for moment in moments), strict=True)))
    temporary = trained_weights(shape, training) * training.master // training.devices  # AdamW's square roots
    passes = kept.total + temporary + int((FRAGMENTS - 1) * (kept.activations + kept.logits))
    held = shard_bytes(shape, training) + optimizer_bytes(shape, training) + teacher_bytes(shape, training)
    return max(passes, held + (1 + exports_model) * shape.weights * training.master)


def choices(checkpointing: bool | None, tokens: int | None, longest: int) -> Iterator[tuple[bool, int]]:
    """Gradient checkpointing and tokens of a micro-batch to try, the fastest first.

    Checkpointing computes every layer twice.

    Args:
        checkpointing, tokens: given values; None: open.
        longest: tokens of the longest sequence.
    """
    halves = [MOST_TOKENS >> n for n in range(17) if MOST_TOKENS >> n > longest]
    for checkpoints in [False, True] if checkpointing is None else [checkpointing]:
        for most in [*halves, longest] if tokens is None else [tokens]:
            yield checkpoints, most


def micro_batches(tokens: int, checkpointing: bool) -> str:
    """The line of a plan on what `choices` gave."""
    return f"micro-batches of {tokens:,} tokens {'with' if checkpointing else 'without'} gradient checkpointing"


def fit(config: DictConfig, teachers: Collection[str] = ()) -> CpuPlan:
    """Choose what the config leaves open, write it there, and check that the run fits.

    Args:
        teachers: folders or hub ids of the checkpoints that teach.

    Raises:
        BadConfig: the run does not fit, or a value is too small for the model.
    """
    model = config.actor_rollout_ref.model
    shape = read_shape(model, "actor_rollout_ref.model", dense_only=False)
    setup = Setup.from_config(config, Settings.from_config(config).objective)
    others = [
        read_shape(OmegaConf.merge(model, {"path": path}), "algorithm.distill.teachers", dense_only=False)
        for path in sorted(set(teachers))
    ]
    piece = -(-max(shape.tensors) * setup.master // 2**20)
    setup = replace(setup, bucket_mib=setup.bucket_mib or max(piece, LEAST_BUCKET))
    _check_bucket(setup.bucket_mib, piece)
    free, taught = free_memory(), sum(other.weights for other in others) * setup.compute
    cache = OmegaConf.select(config, CACHE_KEY) or _cache(shape, setup, free)
    plans = [CpuPlan(shape, choice, cache, taught, free) for choice in _choices(setup, config)]
    plan = next((plan for plan in plans if plan.fits), plans[-1])
    _check(plan)
    _write(config, plan)
    return plan


def cache_bytes(shape: ModelShape, setup: Setup, tokens: int) -> int:
    """Bytes of the keys and values of some tokens."""
    return max(2 * shape.layers * shape.key_value * setup.rollout_number // setup.tensor_parallel, 1) * tokens


def _cache(shape: ModelShape, setup: Setup, free: int) -> int:
    """Bytes of a cache for all sequences that an engine plays at once, or for as many as fit; one at least."""
    longest = -(-setup.max_model_len // CACHE_BLOCK) * CACHE_BLOCK
    sequences = -(-setup.prompts * setup.sessions * setup.tensor_parallel // setup.devices)
    one = cache_bytes(shape, setup, longest + CACHE_BLOCK)  # vLLM keeps one block for itself
    most = int(CACHE_SHARE * free / setup.devices)
    return max(min(one * min(sequences, setup.max_num_seqs), most), one)


def _choices(setup: Setup, config: DictConfig) -> Iterator[Setup]:
    """The setups to try, the fastest first."""
    given = OmegaConf.select(config, KEYS["log_prob_tokens"])
    for checkpointing, tokens in choices(setup.checkpointing, setup.tokens, setup.max_model_len):
        yield replace(setup, checkpointing=checkpointing, tokens=tokens, log_prob_tokens=given or tokens)


def _check_bucket(bucket: int, piece: int) -> None:
    key = KEYS["bucket_mib"]
    if bucket < piece:
        raise BadConfig(f"{key}={bucket}: the model's largest tensor has {piece} MiB. Use {piece} or more, or null.")
    shared = Path("/dev/shm")  # noqa: S108 - where shm_open puts its segments
    if shared.is_dir() and (free := shutil.disk_usage(shared).free) < bucket * 2**20:
        raise BadConfig(
            f"{key}={bucket}: weights go to vLLM through {shared}, which has {free / 2**20:.0f} MiB free. Enlarge it "
            f"(docker run --shm-size=2g), or remove what fills it."
        )


def _check(plan: CpuPlan) -> None:
    if plan.cached_tokens < plan.setup.max_model_len:
        raise BadConfig(
            f"{CACHE_KEY}={plan.cache}: it holds keys and values of {plan.cached_tokens:,} tokens, fewer than one "
            f"sequence may have ({plan.setup.max_model_len:,}). Use "
            f"{cache_bytes(plan.shape, plan.setup, plan.setup.max_model_len + 2 * CACHE_BLOCK)} or more, or null."
        )
    if not plan.fits:
        lora = "" if plan.setup.lora_rank else "LoRA (actor_rollout_ref.model.lora_rank=32), "
        raise BadConfig(
            f"{plan.shape.name} does not fit into this machine's memory: it needs {plan.parts()}, of which a run may "
            f"use {USABLE:.0%}. Use shorter sequences (data.max_prompt_length, data.max_feedback_length, "
            f"data.max_response_length; now {plan.setup.max_model_len:,} tokens together), {lora}a smaller model, or "
            f"stop other programs."
        )


def _write(config: DictConfig, plan: CpuPlan) -> None:
    """Write what was chosen into the config."""
    chosen: dict[str, Any] = {
        KEYS[name]: getattr(plan.setup, name) for name in ("bucket_mib", "tokens", "checkpointing")
    }
    chosen |= {f"{section}.log_prob_max_token_len_per_gpu": plan.setup.log_prob_tokens for section in LOG_PROB_KEYS}
    for key, value in {**chosen, CACHE_KEY: plan.cache}.items():
        if OmegaConf.select(config, key) is None:
            OmegaConf.update(config, key, value)
