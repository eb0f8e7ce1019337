"""Fit a run to a machine without a GPU: choose what the config leaves open, and check that free memory suffices.

Trainer and vLLM hold their memory at the same time, because vLLM's CPU build cannot sleep. A config of the CPU platform
leaves open (null) the size of weight buckets, vLLM's cache, the tokens of a micro-batch and gradient checkpointing.
"""

import shutil
from collections.abc import Callable, Collection
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from ditto.memory.estimate import Memory, TrainingSetup
from ditto.memory.model_shape import GIB, ModelShape, read_shape
from ditto.memory.setup import TOKENS, Engine, reference_bytes, teacher_shapes, training_of, update_tokens
from ditto.settings import BadConfig
from soul.host_resources import free_memory

CACHE_KEY = "actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes"
BUCKET_KEY = "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes"
CHECKPOINTING_KEY = "actor_rollout_ref.model.enable_gradient_checkpointing"
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
    engines: int = 0  # supervised training has none

    @property
    def total(self) -> int:
        """The sum of what the run needs."""
        return self.trainer + self.engines + self.processes

    @property
    def fits(self) -> bool:
        """True if the run fits into the free memory."""
        return self.total <= USABLE * self.free

    def __str__(self) -> str:
        vllm = f"vLLM {self.engines / GIB:.1f}, " if self.engines else ""
        return (
            f"at most {self.total / GIB:.1f} GiB (trainer {self.trainer / GIB:.1f}, {vllm}processes "
            f"{self.processes / GIB:.1f}) of {self.free / GIB:.1f} free"
        )

    def check(self, shape: ModelShape, lengths: str, longest: int, lora: str) -> None:
        """Raise BadConfig, which names what would make the run fit, if it does not fit.

        Args:
            lengths: the keys of the sequences' lengths, which have `longest` tokens together.
            lora: the override that would train an adapter; "" if the run does.
        """
        if not self.fits:
            adapter = f"LoRA ({lora}), " if lora else ""
            raise BadConfig(
                f"{shape.name} does not fit into this machine's memory: it needs {self}, of which a run may use "
                f"{USABLE:.0%}. Use shorter sequences ({lengths}; now {longest:,} tokens together), {adapter}a smaller "
                "model, or stop other programs."
            )


def process_bytes(training: TrainingSetup, tokens: int, scored_tokens: int, contents: Collection[str]) -> int:
    """Bytes of one training process at its largest moment: an update, a pass without gradients, loading, or an export.

    Args:
        tokens, scored_tokens: of a micro-batch of an update, and of a pass without gradients.
        contents: of a checkpoint; with `hf_model` the whole model is exported.
    """
    moments = [*training.update(tokens), *training.forward(scored_tokens)]
    # malloc keeps much of what is freed, so what one moment needs is there in the others too.
    kept = Memory(*(max(sizes) for sizes in zip(*(astuple(moment) for moment in moments), strict=True)))
    one, fragments = training.part(training.master), int(FRAGMENTS * (kept.activations + kept.logits))
    passes = kept.total + one + fragments  # AdamW's square roots
    held = training.shard + training.part(training.optimizer) + bool(training.teacher_copies) * one
    return max(passes, held + (1 + ("hf_model" in contents)) * training.shape.weights * training.master)


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


def described(training: TrainingSetup) -> str:
    """A model, for the line of a plan."""
    how = f"LoRA of rank {training.lora_rank}" if training.lora_rank else "all trained"
    return f"{training.shape.weights / 1e9:.2f} B weights ({how})"


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
        BadConfig: the run does not fit.
    """
    ref, devices, free = config.actor_rollout_ref, config.trainer.n_gpus_per_node * config.trainer.nnodes, free_memory()
    shape = read_shape(ref.model, "actor_rollout_ref.model", dense_only=False)
    training = training_of(shape, config)
    longest, most = ref.rollout.max_model_len, update_tokens(config)
    scored_tokens = ref.rollout.log_prob_max_token_len_per_gpu
    taught = sum(teacher.weights for teacher in teacher_shapes(config, teachers, dense_only=False))
    largest_tensor = -(-max(shape.tensors) * training.master // 2**20)
    bucket = OmegaConf.select(config, BUCKET_KEY) or max(largest_tensor, LEAST_BUCKET)
    _check_shared_memory(bucket)
    engine = Engine.of(shape, config, on_gpu=False)
    cache = OmegaConf.select(config, CACHE_KEY) or _cache(engine.cache_token, config, devices, free)

    def needed(checkpointing: bool, tokens: int) -> CpuMemory:
        how, contents = replace(training, checkpointing=checkpointing), ref.actor.checkpoint.save_contents
        actor = process_bytes(how, min(tokens, most), min(scored_tokens or tokens, most), contents)
        actor += shape.weights * reference_bytes(config) // training.devices
        return CpuMemory(
            trainer=devices * actor + taught * training.compute,
            engines=devices * (engine.weights + engine.working + cache),
            processes=PROCESSES + devices * (DEVICE_PROCESSES + (bucket << 20)),
            free=free,
        )

    given = ref.model.enable_gradient_checkpointing, ref.actor.ppo_max_token_len_per_gpu
    checkpointing, tokens, memory = choose(*given, longest, needed)
    lengths = "data.max_prompt_length, data.max_feedback_length, data.max_response_length"
    memory.check(shape, lengths, longest, "" if training.lora_rank else "actor_rollout_ref.model.lora_rank=32")
    chosen = {BUCKET_KEY: bucket, TOKENS: tokens, CHECKPOINTING_KEY: checkpointing, CACHE_KEY: cache}
    chosen |= dict.fromkeys(LOG_PROB_KEYS, scored_tokens or tokens)
    for key, value in chosen.items():
        if OmegaConf.select(config, key) is None:
            OmegaConf.update(config, key, value)
    return [
        f"{described(training)}, {memory}",
        micro_batches(tokens, checkpointing),
        f"vLLM caches keys and values of {cache // engine.cache_token:,} tokens, and gets weights in pieces of "
        f"{bucket} MiB",
    ]


def _cache(token_bytes: int, config: DictConfig, devices: int, free: int) -> int:
    """Bytes of a cache for all sequences that an engine plays at once, or for as many as fit; one at least."""
    rollout = config.actor_rollout_ref.rollout
    longest = -(-rollout.max_model_len // CACHE_BLOCK) * CACHE_BLOCK
    sequences = -(-config.data.train_batch_size * rollout.n * rollout.tensor_model_parallel_size // devices)
    one = token_bytes * (longest + CACHE_BLOCK)  # vLLM keeps one block for itself
    return max(min(one * min(sequences, rollout.max_num_seqs), int(CACHE_SHARE * free / devices)), one)


def _check_shared_memory(bucket: int) -> None:
    """Refuse a shared memory (Docker's has 64 MiB by default) that is too small for a bucket of so many MiB."""
    shared = Path("/dev/shm")  # noqa: S108 - where shm_open puts its segments
    if shared.is_dir() and (free := shutil.disk_usage(shared).free) < bucket * 2**20:
        raise BadConfig(
            f"{BUCKET_KEY}={bucket}: weights go to vLLM through {shared}, which has {free / 2**20:.0f} MiB free. "
            "Enlarge it (docker run --shm-size=2g), or remove what fills it."
        )
