"""Rules for the trainer's mode: no option of another mode is set, and none contradicts the chosen one."""

from __future__ import annotations

from typing import Any

from ditto.config_checks.defaults import changed, only_if
from ditto.config_checks.rules import Rule, one_of
from ditto.launching.compose import SEPARATE

_MODE = "trainer.v1.trainer_mode"
_ROLLOUT, _MODEL = "actor_rollout_ref.rollout", "actor_rollout_ref.model"


def is_separate(run: Any) -> bool:
    """Whether rollouts have devices of their own."""
    return bool(run.trainer.v1.trainer_mode == SEPARATE)


def rollout_devices(run: Any) -> int:
    """Number of devices that sample, over all nodes."""
    return int(run.rollout.nnodes * run.rollout.n_gpus_per_node) if is_separate(run) else int(run.devices)


def _of_mode(mode: str, option: str) -> Rule:
    """A rule: an option of a mode has its default in the other modes."""
    name = f"ditto_{mode}"
    return only_if(f"trainer.v1.{mode}.{option}", _MODE, lambda chosen: chosen == name, name)


def _of_the_asynchronous_modes(option: str) -> Rule:
    """A rule: an option of the sampler has its default in `ditto_sync`, where no rollout is ever too old."""
    key = f"trainer.v1.sampler.{option}"
    return Rule(
        key,
        lambda run: run.trainer.v1.trainer_mode == "ditto_sync" and changed(run, key),
        f"is read only in the asynchronous modes. Remove it, or set {_MODE} to one of them.",
    )


def _not_too_early(mode: str) -> Rule:
    """A rule: what is sampled ahead is still young enough when its turn comes."""
    return Rule(
        f"trainer.v1.{mode}.num_warmup_batches",
        lambda run: (
            run.trainer.v1.trainer_mode == f"ditto_{mode}"
            and run.trainer.v1.sampler.max_off_policy_strategy == "drop"
            and run.trainer.v1.sampler.max_off_policy_threshold is not None
            and run.trainer.v1[mode].num_warmup_batches >= run.trainer.v1.sampler.max_off_policy_threshold
        ),
        lambda run: (
            "prompts that are sampled so far ahead would be dropped as too old: use less than "
            f"trainer.v1.sampler.max_off_policy_threshold={run.trainer.v1.sampler.max_off_policy_threshold}, or raise "
            "that."
        ),
    )


MODE_RULES: tuple[Rule, ...] = (
    one_of(
        _MODE,
        "ditto_sync",
        "ditto_colocate_async",
        SEPARATE,
        because="verl's own trainers do not support verbal feedback.",
    ),
    _of_mode("colocate_async", "num_warmup_batches"),
    _of_mode("separate_async", "num_warmup_batches"),
    _of_mode("separate_async", "parameter_sync_step"),
    _of_the_asynchronous_modes("max_off_policy_threshold"),
    _of_the_asynchronous_modes("max_off_policy_strategy"),
    _not_too_early("colocate_async"),
    _not_too_early("separate_async"),
    Rule(
        "trainer.v1.separate_async.parameter_sync_step",
        lambda run: (
            is_separate(run)
            and run.data.train_batch_size
            != run.trainer.v1.separate_async.parameter_sync_step * run.actor.ppo_mini_batch_size
        ),
        lambda run: (
            f"times actor_rollout_ref.actor.ppo_mini_batch_size={run.actor.ppo_mini_batch_size} must be "
            f"data.train_batch_size={run.data.train_batch_size} (both count prompts): between two weight syncs this "
            "mode trains that many parts, each a mini-batch that is drawn as soon as it is sampled."
        ),
    ),
    Rule(
        f"{_ROLLOUT}.nnodes",
        lambda run: is_separate(run) != (run.rollout.nnodes > 0),
        lambda run: (
            f"{_MODE}={SEPARATE} samples on devices of its own: set the number of their nodes, at least 1."
            if is_separate(run)
            else f"nodes for rollouts alone belong to {_MODE}={SEPARATE}; in the other modes rollouts and updates "
            "share trainer.nnodes. Leave it 0."
        ),
    ),
    Rule(
        f"{_ROLLOUT}.n_gpus_per_node",
        lambda run: not is_separate(run) and run.rollout.n_gpus_per_node != run.trainer.n_gpus_per_node,
        f"its value follows trainer.n_gpus_per_node, except in {_MODE}={SEPARATE}. Set trainer.n_gpus_per_node.",
    ),
    Rule(
        f"{_MODEL}.lora.merge",
        lambda run: is_separate(run) and run.model.lora_rank and run.model.lora.merge,
        f"{_MODE}={SEPARATE} sends the adapter itself: merged weights are rounded to bfloat16, which loses small "
        "updates. Leave it false.",
    ),
    Rule(
        f"{_ROLLOUT}.load_format",
        lambda run: is_separate(run) and run.model.lora_rank and "dummy" in str(run.rollout.load_format),
        f"with LoRA, {_MODE}={SEPARATE} sends only the adapter, so the rollout servers must load the base model "
        "themselves. Use safetensors.",
    ),
)
