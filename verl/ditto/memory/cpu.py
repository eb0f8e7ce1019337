"""Fit a run to a machine without a GPU: choose what the config leaves open, and check that free memory suffices.

Trainer and vLLM hold their memory at the same time, because vLLM's CPU build cannot sleep. A config of the CPU platform
leaves open (null) the size of weight buckets, vLLM's cache, the tokens of a micro-batch and gradient checkpointing.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from ditto.memory.estimate import (
    Memory,
    Training,
    engine_memory,
    forward_moments,
    shard_bytes,
    trained_shard,
    update_moments,
)
from ditto.memory.model_shape import GIB, ModelShape, read_shape
from ditto.memory.setup import KEYS, Setup
from ditto.settings import BadConfig, Settings
from soul.host_resources import free_memory

CACHE_KEY = "actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes"
LOG_PROB_KEYS = tuple(f"actor_rollout_ref.{part}.log_prob_max_token_len_per_gpu" for part in ("rollout", "ref"))
MOST_TOKENS, LEAST_BUCKET = 65_536, 64  # of a micro-batch, as on a GPU; MiB
CACHE_BLOCK = 128  # tokens; vLLM's CPU build gives a sequence whole blocks
CACHE_SHARE = 0.2  # of the free memory, at most, for keys and values beyond one sequence
USABLE = 0.9  # share of the free memory that a run may plan with
# Measured with SmolLM2-135M: the driver, Ray and workers that share their imports; an actor and an engine of a device.
PROCESSES, DEVICE_PROCESSES = 2 * GIB, 1 * GIB
FRAGMENTS = 0.1  # lost by malloc, per byte of activations and logits


@dataclass(frozen=True)
class CpuMemory:
    """Bytes that a run needs on this machine, by purpose, and what is free there."""

    trainer: int
    processes: int
    free: int
    engines: int | None = None  # None: supervised training, which has none

    @property
    def fits(self) -> bool:
        """True if the run fits into the free memory."""
        return self.trainer + (self.engines or 0) + self.processes <= USABLE * self.free

    def __str__(self) -> str:
        vllm = f"vLLM {self.engines / GIB:.1f}, " if self.engines is not None else ""
        total = self.trainer + (self.engines or 0) + self.processes
        return (
            f"at most {total / GIB:.1f} GiB (trainer {self.trainer / GIB:.1f}, {vllm}processes "
            f"{self.processes / GIB:.1f}) of {self.free / GIB:.1f} free"
        )

    def check(self, shape: ModelShape, lengths: str, longest: int, lora: str) -> None:
        """Refuse a run that does not fit.

        Args:
            lengths: the keys of the sequences' lengths, which have `longest` tokens together.
            lora: the override that would train an adapter; "" if the run does.

        Raises:
            BadConfig: names what would make it fit.
        """
        if not self.fits:
            adapter = f"LoRA ({lora}), " if lora else ""
            raise BadConfig(
                f"{shape.name} does not fit into this machine's memory: it needs {self}, of which a run may use "
                f"{USABLE:.0%}. Use shorter sequences ({lengths}; now {longest:,} tokens together), {adapter}a smaller "
                "model, or stop other programs."
            )


def process_bytes(shape: ModelShape, training: Training, tokens: int, scored_tokens: int, exports_model: bool) -> int:
    """Bytes of one training process at its largest moment: an update, a pass without gradients, loading, or an export.

    Args:
        tokens, scored_tokens: of a micro-batch of an update, and of a pass without gradients.
    """
    moments = [*update_moments(shape, tokens, training), *forward_moments(shape, scored_tokens, training)]
    # malloc keeps much of what is freed, so what one moment needs is there in the others too.
    kept = Memory(*(max(sizes) for sizes in zip(*(astuple(moment) for moment in moments), strict=True)))
    fragments = int(FRAGMENTS * (kept.activations + kept.logits))
    passes = kept.total + trained_shard(shape, training, training.master) + fragments  # AdamW's square roots
    held = shard_bytes(shape, training) + trained_shard(shape, training, training.optimizer)
    held += bool(training.teacher_copies) * trained_shard(shape, training, training.master)
    return max(passes, held + (1 + exports_model) * shape.weights * training.master)


def choose(
    checkpointing: bool | None, tokens: int | None, longest: int, needed: Callable[[bool, int], CpuMemory]
) -> tuple[bool, int, CpuMemory]:
    """The fastest gradient checkpointing and tokens of a micro-batch that fit; else those that need the least.

    Checkpointing computes every layer twice.

    Args:
        checkpointing, tokens: given values; None: open.
        longest: tokens of the longest sequence.
    """
    halves = [MOST_TOKENS >> n for n in range(17) if MOST_TOKENS >> n > longest]
    tried = [
        (checkpoints, most, needed(checkpoints, most))
        for checkpoints in ([False, True] if checkpointing is None else [checkpointing])
        for most in ([*halves, longest] if tokens is None else [tokens])
    ]
    return next((choice for choice in tried if choice[2].fits), tried[-1])


def described(shape: ModelShape, rank: int) -> str:
    """A model, for the line of a plan."""
    return f"{shape.weights / 1e9:.2f} B weights ({f'LoRA of rank {rank}' if rank else 'all trained'})"


def micro_batches(tokens: int, checkpointing: bool) -> str:
    """The line of a plan on what `choose` gave."""
    return f"micro-batches of {tokens:,} tokens {'with' if checkpointing else 'without'} gradient checkpointing"


def fit(config: DictConfig, teachers: Collection[str] = ()) -> list[str]:
    """Choose what the config leaves open, write it there, and check that the run fits.

    Args:
        teachers: folders or hub ids of the checkpoints that teach.

    Returns:
        The plan, for people.

    Raises:
        BadConfig: the run does not fit, or a value is too small for the model.
    """
    model = config.actor_rollout_ref.model
    shape = read_shape(model, "actor_rollout_ref.model", dense_only=False)
    setup = Setup.from_config(config, Settings.from_config(config).objective)
    taught = sum(
        read_shape(OmegaConf.merge(model, {"path": path}), "algorithm.distill.teachers", dense_only=False).weights
        for path in sorted(set(teachers))
    )
    setup = replace(setup, bucket_mib=_bucket(shape, setup))
    scored, free = OmegaConf.select(config, KEYS["log_prob_tokens"]), free_memory()
    engine = engine_memory(shape, setup, on_gpu=False)
    cache = OmegaConf.select(config, CACHE_KEY) or _cache(engine.cache_token, setup, free)
    cached = cache // engine.cache_token

    def needed(checkpointing: bool, tokens: int) -> CpuMemory:
        training = replace(setup, checkpointing=checkpointing, tokens=tokens).training
        update, scoring = (min(most, setup.update_tokens) for most in (tokens, scored or tokens))
        actor = process_bytes(shape, training, update, scoring, setup.exports_model)
        actor += shape.weights * setup.reference // training.devices
        return CpuMemory(
            trainer=setup.devices * actor + taught * setup.compute,
            engines=setup.devices * (engine.weights + engine.working + cache),
            processes=PROCESSES + setup.devices * (DEVICE_PROCESSES + (setup.bucket_mib << 20)),
            free=free,
        )

    checkpointing, tokens, memory = choose(setup.checkpointing, setup.tokens, setup.max_model_len, needed)
    if cached < setup.max_model_len:
        raise BadConfig(
            f"{CACHE_KEY}={cache}: it holds keys and values of {cached:,} tokens, fewer than one sequence may have "
            f"({setup.max_model_len:,}). Use {engine.cache_token * (setup.max_model_len + 2 * CACHE_BLOCK)} or more, "
            "or null."
        )
    lengths = "data.max_prompt_length, data.max_feedback_length, data.max_response_length"
    lora = "" if setup.lora_rank else "actor_rollout_ref.model.lora_rank=32"
    memory.check(shape, lengths, setup.max_model_len, lora)
    chosen = {KEYS["bucket_mib"]: setup.bucket_mib, KEYS["tokens"]: tokens, KEYS["checkpointing"]: checkpointing}
    chosen |= {CACHE_KEY: cache, **dict.fromkeys(LOG_PROB_KEYS, scored or tokens)}
    for key, value in chosen.items():
        if OmegaConf.select(config, key) is None:
            OmegaConf.update(config, key, value)
    return [
        f"{described(shape, setup.lora_rank)}, {memory}",
        micro_batches(tokens, checkpointing),
        f"vLLM caches keys and values of {cached:,} tokens, and gets weights in pieces of {setup.bucket_mib} MiB",
    ]


def _cache(token_bytes: int, setup: Setup, free: int) -> int:
    """Bytes of a cache for all sequences that an engine plays at once, or for as many as fit; one at least."""
    longest = -(-setup.max_model_len // CACHE_BLOCK) * CACHE_BLOCK
    sequences = -(-setup.prompts * setup.sessions * setup.tensor_parallel // setup.devices)
    one = token_bytes * (longest + CACHE_BLOCK)  # vLLM keeps one block for itself
    return max(min(one * min(sequences, setup.max_num_seqs), int(CACHE_SHARE * free / setup.devices)), one)


def _bucket(shape: ModelShape, setup: Setup) -> int:
    """MiB of the pieces in which weights go to vLLM.

    Raises:
        BadConfig: one is smaller than the largest tensor, or larger than the shared memory.
    """
    key, piece = KEYS["bucket_mib"], -(-max(shape.tensors) * setup.master // 2**20)
    bucket = setup.bucket_mib or max(piece, LEAST_BUCKET)
    if bucket < piece:
        raise BadConfig(f"{key}={bucket}: the model's largest tensor has {piece} MiB. Use {piece} or more, or null.")
    shared = Path("/dev/shm")  # noqa: S108 - where shm_open puts its segments
    if shared.is_dir() and (free := shutil.disk_usage(shared).free) < bucket * 2**20:
        raise BadConfig(
            f"{key}={bucket}: weights go to vLLM through {shared}, which has {free / 2**20:.0f} MiB free. Enlarge it "
            f"(docker run --shm-size=2g), or remove what fills it."
        )
    return bucket
