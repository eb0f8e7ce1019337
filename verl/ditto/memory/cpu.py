"""Fit a run to a machine without a GPU: choose what the config leaves open (null), and check that free memory suffices.

Trainer and vLLM hold their memory at the same time, because vLLM's CPU build cannot sleep.
"""

import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from ditto.memory.estimate import GIB, Memory, Training
from ditto.memory.plan import TOKENS, engine_memory, lower_limits, model_of, number_bytes, rl_training, update_tokens
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

Needed = Callable[[Training, int], dict[str, int]]  # of a training and the tokens of a micro-batch: bytes by purpose


def process_bytes(training: Training, tokens: int, contents: Sequence[str]) -> int:
    """Bytes of one training process at its largest moment: an update, or the export of the whole model (`hf_model`)."""
    # malloc keeps much of what is freed, so what one moment needs is there in the others too.
    kept = Memory(*(max(sizes) for sizes in zip(*training.moments(tokens), strict=True)))
    passes = sum(kept) + training.part + int(FRAGMENTS * (kept.activations + kept.logits))
    export = training.model.weights * training.master * (1 + ("hf_model" in contents))
    return max(passes, training.shard + (2 + bool(training.teacher_copies)) * training.part + export)


def choose(
    training: Training,
    tokens: int | None,
    longest: int,
    needed: Needed,
    rank_key: str,
) -> tuple[bool, int, list[str]]:
    """The fastest gradient checkpointing and tokens of a micro-batch that fit, and the lines of the plan.

    Checkpointing computes every layer twice, so it comes last.

    Args:
        training: its `checkpointing` is None if the config leaves it open.
        tokens: the config's value; None: open.
        longest: tokens of the longest sequence.
        needed: computes the bytes of the run by purpose.
        rank_key: the key of LoRA's rank, for the message.

    Raises:
        BadConfig: nothing fits.
    """
    free = free_memory()
    for checkpointing in [False, True] if training.checkpointing is None else [training.checkpointing]:
        for most in lower_limits(max(MOST_TOKENS, longest), longest) if tokens is None else [tokens]:
            parts = needed(replace(training, checkpointing=checkpointing), most)
            total, shown = sum(parts.values()), ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts.items())
            memory = f"at most {total / GIB:.1f} GiB ({shown}) of {free / GIB:.1f} free"
            if total <= USABLE * free:
                how = f"{most:,} tokens {'with' if checkpointing else 'without'} gradient checkpointing"
                return checkpointing, most, [f"{training.model} {memory}", f"micro-batches of {how}"]
    raise BadConfig(
        f"{training.model.name} does not fit into this machine's memory: it needs {memory}, of which a run may use "
        f"{USABLE:.0%}. Use sequences of less than {longest:,} tokens, LoRA ({rank_key}=32), a smaller model, or stop "
        "other programs."
    )


def fit(config: DictConfig, teachers: Collection[str] = ()) -> list[str]:
    """Choose what the config leaves open, write it there, and return the lines of the plan.

    Args:
        teachers: folders or hub ids of the checkpoints that teach.

    Raises:
        BadConfig: the run does not fit.
    """
    ref, devices = config.actor_rollout_ref, config.trainer.n_gpus_per_node * config.trainer.nnodes
    model, rollout = model_of(ref.model), ref.rollout
    training, engine = rl_training(config, model), engine_memory(config, model)
    frozen = sum(model_of(ref.model, path).weights for path in sorted(set(teachers))) * training.compute
    if ref.actor.use_kl_loss and not model.adapter:
        frozen += model.weights * number_bytes(ref.ref.fsdp_config.model_dtype)
    largest_tensor = -(-model.largest_tensor * training.master // 2**20)
    bucket = OmegaConf.select(config, BUCKET_KEY) or max(largest_tensor, LEAST_BUCKET)
    _check_shared_memory(bucket)
    # Keys and values of all sequences that an engine plays at once, or of as many as fit; of one at least.
    one = engine.cache_token * (-(-rollout.max_model_len // CACHE_BLOCK) + 1) * CACHE_BLOCK  # a block is vLLM's own
    played = -(-config.data.train_batch_size * rollout.n * rollout.tensor_model_parallel_size // devices)
    most = min(one * min(played, rollout.max_num_seqs), int(CACHE_SHARE * free_memory() / devices))
    cache = OmegaConf.select(config, CACHE_KEY) or max(most, one)

    def needed(how: Training, tokens: int) -> dict[str, int]:
        longest_batch = min(max(tokens, rollout.log_prob_max_token_len_per_gpu or 0), update_tokens(config))
        return {
            "trainer": devices * process_bytes(how, longest_batch, ref.actor.checkpoint.save_contents) + frozen,
            "vLLM": devices * (engine.weights + engine.working + cache),
            "processes": PROCESSES + devices * (DEVICE_PROCESSES + (bucket << 20)),
        }

    tokens, rank = ref.actor.ppo_max_token_len_per_gpu, "actor_rollout_ref.model.lora_rank"
    checkpointing, tokens, lines = choose(training, tokens, rollout.max_model_len, needed, rank)
    chosen = {BUCKET_KEY: bucket, TOKENS: tokens, CHECKPOINTING_KEY: checkpointing, CACHE_KEY: cache}
    for key, value in (chosen | dict.fromkeys(LOG_PROB_KEYS, rollout.log_prob_max_token_len_per_gpu or tokens)).items():
        if OmegaConf.select(config, key) is None:
            OmegaConf.update(config, key, value)
    cached = f"{cache // engine.cache_token:,} tokens"
    return [*lines, f"vLLM caches keys and values of {cached}, and gets weights in pieces of {bucket} MiB"]


def _check_shared_memory(bucket: int) -> None:
    """Refuse a shared memory (Docker's has 64 MiB by default) that is too small for a bucket of so many MiB."""
    shared = Path("/dev/shm")  # noqa: S108 - where shm_open puts its segments
    if shared.is_dir() and (free := shutil.disk_usage(shared).free) < bucket * 2**20:
        raise BadConfig(
            f"{BUCKET_KEY}={bucket}: weights go to vLLM through {shared}, which has {free / 2**20:.0f} MiB free. "
            "Enlarge it (docker run --shm-size=2g), or remove what fills it."
        )
