"""The rules of RL: values that cannot work together, and options that nothing would read beside the others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.config_checks.key_types import check_types
from ditto.config_checks.keys import RL_KEYS
from ditto.config_checks.objective_rules import objective_rules
from ditto.config_checks.policy_losses import READ_BY_LOSS, readers, reads, wrong_policy_loss
from ditto.config_checks.resume import check_resume
from ditto.config_checks.rules import Problem, Run, check_rules, chosen_on_a_cpu, model_rules, trainer_rules
from ditto.launching.compose import SEPARATE, default_config
from ditto.objectives.loss_weights import SCALED
from ditto.run.checkpoint import ResumeChoice
from ditto.settings import Settings

_ACTOR, _ROLLOUT, _MODEL = (f"actor_rollout_ref.{section}" for section in ("actor", "rollout", "model"))
_MODE, _SAMPLER = "trainer.v1.trainer_mode", "trainer.v1.sampler"
_SHORTEST_BUDGET = 128  # tokens of the rows that verl pads a batch with
_WEIGHTS = "algorithm.rollout_correction.rollout_is"

# Option -> another key, and the values of that key with which the option is read. [] stands for any value that is set.
_READ_WITH: dict[str, tuple[str, list[str]]] = {
    "trainer.v1.colocate_async.num_warmup_batches": (_MODE, ["ditto_colocate_async"]),
    "trainer.v1.separate_async.num_warmup_batches": (_MODE, [SEPARATE]),
    "trainer.v1.separate_async.parameter_sync_step": (_MODE, [SEPARATE]),
    f"{_SAMPLER}.max_off_policy_threshold": (_MODE, ["ditto_colocate_async", SEPARATE]),
    f"{_SAMPLER}.max_off_policy_strategy": (_MODE, ["ditto_colocate_async", SEPARATE]),
    "algorithm.filter_groups.max_num_gen_batches": ("algorithm.filter_groups.enable", []),
    "algorithm.sdpo.teacher_rate": ("algorithm.sdpo.teacher", ["ema"]),
    "algorithm.sdpo.tail": ("algorithm.sdpo.top_k", []),
    "algorithm.distill.tail": ("algorithm.distill.top_k", []),
    "algorithm.std_floor": ("algorithm.norm_adv_by_std_in_grpo", []),
    f"{_WEIGHTS}_threshold": (_WEIGHTS, []),
    f"{_WEIGHTS}_batch_normalize": (_WEIGHTS, []),
    f"{_ACTOR}.loss_scale_factor": (f"{_ACTOR}.loss_agg_mode", [SCALED]),
    f"{_ACTOR}.kl_loss_type": (f"{_ACTOR}.use_kl_loss", []),
    f"{_ACTOR}.kl_loss_coef": (f"{_ACTOR}.use_kl_loss", []),
}


class RLRun(Run):
    """An RL run, with short names for the main sections of its config."""

    def __init__(self, config: DictConfig, settings: Settings) -> None:
        super().__init__(config)
        self.settings = settings
        self.actor = config.actor_rollout_ref.actor
        self.rollout = config.actor_rollout_ref.rollout
        self.model = config.actor_rollout_ref.model
        self.separate = config.trainer.v1.trainer_mode == SEPARATE  # rollouts have devices of their own

    @property
    def longest(self) -> int:
        """Length in tokens of the longest sequence that the limits in `data` allow."""
        data = self.data
        return int(data.max_prompt_length + data.max_feedback_length + data.max_response_length)

    @property
    def rollout_devices(self) -> int:
        """Number of devices that sample, over all nodes."""
        return int(self.rollout.nnodes * self.rollout.n_gpus_per_node) if self.separate else self.devices

    def changed(self, key: str) -> bool:
        """True if a key has another value than its default."""
        return bool(self.value(key) != OmegaConf.select(default_config("gpu"), key))


def check_every_type(config: DictConfig) -> None:
    """Check that every value has its key's type and is in its range, before any other code reads it."""
    check_types(config, RL_KEYS)


def check_config(config: DictConfig, settings: Settings) -> ResumeChoice:
    """Check everything that needs no rows, model or judge.

    Returns:
        The checkpoint that the run resumes from.
    """
    run = RLRun(config, settings)
    check_rules(rl_rules(run), run)
    return check_resume(config)


def rl_rules(run: RLRun) -> Iterator[Problem]:
    """All rules of RL."""
    yield from _mode_rules(run)
    yield from trainer_rules(run)
    yield from _batch_rules(run)
    yield from _length_rules(run)
    yield from objective_rules(run)
    yield from _loss_rules(run)
    yield from _rollout_rules(run)
    yield from model_rules(run, _MODEL, f"{_ACTOR}.optim", f"{_ACTOR}.fsdp_config", f"{_ACTOR}.checkpoint")
    for key, (other, values) in _READ_WITH.items():
        chosen = run.value(other)
        if not (chosen in values if values else chosen not in (None, False)) and run.changed(key):
            wanted = " or ".join(values) or "set"
            yield Problem(key, f"is read only if {other} is {wanted}. Remove it, or set that.")
    if run.trainer.val_only and not run.trainer.val_before_train:
        yield Problem(
            "trainer.val_only",
            "verl reads val_only only after the validation before training: set trainer.val_before_train=true too.",
        )


def _mode_rules(run: RLRun) -> Iterator[Problem]:
    """Rules for the trainer's mode."""
    v1, rollout, mini_batch = run.trainer.v1, run.rollout, run.actor.ppo_mini_batch_size
    limit = v1.sampler.max_off_policy_threshold
    for mode in ("colocate_async", "separate_async"):
        if (
            v1.trainer_mode == f"ditto_{mode}"
            and v1.sampler.max_off_policy_strategy == "drop"
            and limit is not None
            and v1[mode].num_warmup_batches >= limit
        ):
            yield Problem(
                f"trainer.v1.{mode}.num_warmup_batches",
                "prompts that are sampled so far ahead would be dropped as too old: use less than "
                f"{_SAMPLER}.max_off_policy_threshold={limit}, or raise that.",
            )
    if run.separate and run.data.train_batch_size != v1.separate_async.parameter_sync_step * mini_batch:
        yield Problem(
            "trainer.v1.separate_async.parameter_sync_step",
            f"times {_ACTOR}.ppo_mini_batch_size={mini_batch} must be data.train_batch_size="
            f"{run.data.train_batch_size} (both count prompts): between two weight syncs this mode trains that many "
            "parts, each a mini-batch that is drawn as soon as it is sampled.",
        )
    if run.separate and not rollout.nnodes:
        yield Problem(
            f"{_ROLLOUT}.nnodes",
            f"{_MODE}={SEPARATE} samples on devices of its own: set the number of their nodes, at least 1.",
        )
    if not run.separate and rollout.nnodes:
        yield Problem(
            f"{_ROLLOUT}.nnodes",
            f"nodes for rollouts alone belong to {_MODE}={SEPARATE}; in the other modes rollouts and updates share "
            "trainer.nnodes. Leave it 0.",
        )
    if not run.separate and rollout.n_gpus_per_node != run.trainer.n_gpus_per_node:
        yield Problem(
            f"{_ROLLOUT}.n_gpus_per_node",
            f"its value follows trainer.n_gpus_per_node, except in {_MODE}={SEPARATE}. Set trainer.n_gpus_per_node.",
        )
    if run.separate and run.model.lora_rank and "dummy" in str(rollout.load_format):
        yield Problem(
            f"{_ROLLOUT}.load_format",
            f"with LoRA, {_MODE}={SEPARATE} sends only the adapter, so the rollout servers must load the base model "
            "themselves. Use safetensors.",
        )


def _batch_rules(run: RLRun) -> Iterator[Problem]:
    """Rules for the sizes of batches and groups."""
    prompts, mini_batch, n = run.data.train_batch_size, run.actor.ppo_mini_batch_size, run.rollout.n
    if prompts % mini_batch:
        yield Problem(
            "data.train_batch_size",
            f"must be a multiple of {_ACTOR}.ppo_mini_batch_size={mini_batch} (both count prompts).",
        )
    if prompts * n % run.devices:
        yield Problem(
            "data.train_batch_size",
            f"times {_ROLLOUT}.n={n} sessions cannot be divided evenly among the {run.devices} devices that train "
            "(trainer.nnodes x trainer.n_gpus_per_node). Use another number of devices or, for a new run, another "
            "batch size; a resumed run must keep its batch.",
        )
    if n < 2 and not _learns_from_one_session(run.settings):
        yield Problem(
            f"{_ROLLOUT}.n",
            f"objective {run.settings.objective.name} compares the sessions of a prompt with each other. With one "
            "session every advantage is 0 and nothing is learned. Use 2 or more.",
        )


def _length_rules(run: RLRun) -> Iterator[Problem]:
    """Rules for lengths in tokens: verl does not split sequences, so a micro-batch's budget must fit the longest."""
    tokens, limits = run.longest, "data.max_prompt_length, data.max_feedback_length or data.max_response_length"
    if run.rollout.max_model_len is not None and run.rollout.max_model_len < tokens:
        yield Problem(
            f"{_ROLLOUT}.max_model_len",
            f"is less than prompt + feedback + response = {tokens} tokens. Raise it, or lower {limits}.",
        )
    update, scoring = f"{_ACTOR}.ppo_max_token_len_per_gpu", f"{_ROLLOUT}.log_prob_max_token_len_per_gpu"
    reference = ["actor_rollout_ref.ref.log_prob_max_token_len_per_gpu"] if run.actor.use_kl_loss else []
    bucket = f"{_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes"
    yield from chosen_on_a_cpu(run, [update, scoring, bucket, f"{_MODEL}.enable_gradient_checkpointing"])
    for key in (update, scoring, *reference):
        budget = run.value(key)
        if budget is not None and budget < max(tokens, _SHORTEST_BUDGET):
            yield Problem(
                key,
                f"a micro-batch must fit the longest sequence, prompt + feedback + response = {tokens} tokens (and at "
                f"least {_SHORTEST_BUDGET}). Raise it, or lower {limits}.",
            )


def _loss_rules(run: RLRun) -> Iterator[Problem]:
    """Rules for verl's policy losses and their options."""
    actor, loss_mode = run.actor, f"{_ACTOR}.policy_loss.loss_mode"
    if actor.loss_agg_mode == SCALED and not actor.loss_scale_factor:
        yield Problem(
            f"{_ACTOR}.loss_scale_factor",
            f"{_ACTOR}.loss_agg_mode={SCALED} needs a number here, e.g. the value of data.max_response_length. Without "
            "it, verl divides by the longest response of each micro-batch.",
        )
    if reason := wrong_policy_loss(run.config):
        yield Problem(loss_mode, reason)
    if actor.policy_loss.loss_mode == "dro" and not actor.policy_loss.dro_beta:
        yield Problem(f"{_ACTOR}.policy_loss.dro_beta", "loss_mode=dro needs a number above 0 here.")
    options = {option for known in READ_BY_LOSS.values() for option in known if OmegaConf.select(actor, option)}
    for option in sorted(options):
        if not reads(actor.policy_loss.loss_mode, option) and run.changed(f"{_ACTOR}.{option}"):
            yield Problem(
                f"{_ACTOR}.{option}", f"is read only if {loss_mode} is {readers(option)}. Remove it, or set that."
            )
    if not _is_threshold(run.value(f"{_WEIGHTS}_threshold")):
        yield Problem(f"{_WEIGHTS}_threshold", "use a number above 0, or a lower and an upper one as text: '0.5_2.0'.")


def _rollout_rules(run: RLRun) -> Iterator[Problem]:
    """Rules for sampling and the rollout servers."""
    rollout = run.rollout
    if (rollout.top_p < 1 or rollout.top_k > 0) and run.config.run.max_logprob_diff is None:
        yield Problem(
            "run.max_logprob_diff",
            f"with {_ROLLOUT}.top_p or top_k the rollout normalizes log-probs over the remaining tokens only, so they "
            "differ from the actor's and the weight-sync alarm would end the run. Set the largest mean difference that "
            "you accept, e.g. 0.3.",
        )
    if run.rollout_devices % (rollout.tensor_model_parallel_size * rollout.data_parallel_size):
        yield Problem(
            f"{_ROLLOUT}.tensor_model_parallel_size",
            f"times data_parallel_size={rollout.data_parallel_size} must divide the {run.rollout_devices} devices that "
            f"sample ({_ROLLOUT if run.separate else 'trainer'}.nnodes x n_gpus_per_node): every rollout server uses "
            "that many devices.",
        )
    if rollout.max_num_batched_tokens < rollout.max_num_seqs:
        yield Problem(
            f"{_ROLLOUT}.max_num_batched_tokens",
            f"vLLM needs at least one token for each of {_ROLLOUT}.max_num_seqs={rollout.max_num_seqs} requests. Raise "
            "it, or lower max_num_seqs.",
        )
    if rollout.free_cache_engine and rollout.get("enable_sleep_mode") is False:
        yield Problem(
            f"{_ROLLOUT}.free_cache_engine",
            f"vLLM frees its memory for the update by sleeping, which {_ROLLOUT}.enable_sleep_mode=false forbids. Set "
            "free_cache_engine=false too, or set enable_sleep_mode=true.",
        )


def _is_threshold(value: Any) -> bool:
    """Check for a bound of importance weights: one number, or "lower_upper" as verl parses it from text."""
    try:
        bounds = [float(part) for part in str(value).split("_", 1)]
    except ValueError:
        return False
    return all(0 < bound < math.inf for bound in bounds) and bounds == sorted(bounds)


def _learns_from_one_session(settings: Settings) -> bool:
    """Check that one session of a prompt teaches: by its refined answer, or by a term that compares no sessions."""
    return settings.objective.refines or any(
        part.compares not in ("group", "drafts") and settings.options.weight(part) > 0
        for part in settings.objective.parts
    )
