"""One table of rules for values that cannot work together, and for keys that take one of several names.

`numbers.py` has the ranges of single numbers. To add a rule, add an entry to RULES;
`tests/ditto/config_checks/test_config_keys.py` violates every rule once.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.config_checks.defaults import changed, only_if
from ditto.config_checks.mode_rules import MODE_RULES, is_separate, rollout_devices
from ditto.config_checks.objective_rules import OBJECTIVE_RULES
from ditto.config_checks.policy_losses import readers, reads, wrong_policy_loss
from ditto.config_checks.rules import (
    TRAINER_RULES,
    Rule,
    Run,
    adapter_rule,
    check_rules,
    checkpointing_rule,
    chosen_on_a_cpu,
    engine_rules,
    one_of,
    optimizer_rules,
    saved_parts,
)
from ditto.objectives.loss_weights import LOSS_AGG_MODES, SCALED
from ditto.settings import Settings

LOAD_FORMATS = (  # vLLM's LoadFormats, which takes seconds to import
    *("auto", "hf", "dummy", "fastsafetensors", "instanttensor", "mistral", "modelexpress", "npcache", "pt"),
    *("runai_streamer", "runai_streamer_sharded", "safetensors", "sharded_state", "tensorizer"),
)
_SHORTEST_BUDGET = 128  # tokens of the rows that verl pads a batch with


class RLRun(Run):
    """An RL run, with short names for the main sections of its config."""

    def __init__(self, config: DictConfig, settings: Settings) -> None:
        super().__init__(config)
        self.settings = settings
        self.actor = config.actor_rollout_ref.actor
        self.rollout = config.actor_rollout_ref.rollout
        self.model = config.actor_rollout_ref.model

    @property
    def longest(self) -> int:
        """Length in tokens of the longest sequence that the limits in `data` allow."""
        data = self.data
        return int(data.max_prompt_length + data.max_feedback_length + data.max_response_length)


def budget(key: str, applies: Callable[[RLRun], Any] = lambda run: True) -> Rule:
    """A rule: a micro-batch's token budget must fit the longest sequence, because verl does not split sequences."""
    return Rule(
        key,
        lambda run: (
            applies(run)
            and (tokens := OmegaConf.select(run.config, key)) is not None
            and tokens < max(run.longest, _SHORTEST_BUDGET)
        ),
        lambda run: (
            f"a micro-batch must fit the longest sequence, prompt + feedback + response = {run.longest} tokens (and "
            f"at least {_SHORTEST_BUDGET}). Raise it, or lower data.max_prompt_length, data.max_feedback_length or "
            "data.max_response_length."
        ),
    )


def _is_threshold(value: Any) -> bool:
    """Whether this is a bound of importance weights: one number, or "lower_upper" as verl parses it from text."""
    try:
        bounds = [float(part) for part in str(value).split("_", 1)]
    except ValueError:
        return False
    return not isinstance(value, bool) and all(0 < bound < math.inf for bound in bounds) and bounds == sorted(bounds)


def _learns_from_one_session(settings: Settings) -> bool:
    """Whether one session of a prompt teaches: by its refined answer, or by a term that compares no sessions."""
    return settings.objective.refines or any(
        part.compares not in ("group", "drafts") and settings.options.weight(part) > 0
        for part in settings.objective.parts
    )


_ACTOR, _ROLLOUT, _MODEL = (f"actor_rollout_ref.{section}" for section in ("actor", "rollout", "model"))


_CHOSEN = (
    f"{_ACTOR}.ppo_max_token_len_per_gpu",
    f"{_ROLLOUT}.log_prob_max_token_len_per_gpu",
    f"{_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes",
)


def _only_if_the_loss_reads(option: str) -> Rule:
    """A rule: an option of policy losses has its default unless the chosen one reads it."""
    key, chosen = f"{_ACTOR}.{option}", f"{_ACTOR}.policy_loss.loss_mode"
    return only_if(key, chosen, lambda loss: reads(loss, option), readers(option))


RULES: tuple[Rule, ...] = (
    # ---- the mode
    *MODE_RULES,
    *TRAINER_RULES,
    # ---- batches
    Rule(
        "data.train_batch_size",
        lambda run: run.data.train_batch_size % run.actor.ppo_mini_batch_size,
        lambda run: (
            f"must be a multiple of {_ACTOR}.ppo_mini_batch_size={run.actor.ppo_mini_batch_size} (both count prompts)."
        ),
    ),
    Rule(
        "data.train_batch_size",
        lambda run: run.data.train_batch_size * run.rollout.n % run.devices,
        lambda run: (
            f"times {_ROLLOUT}.n={run.rollout.n} sessions cannot be divided evenly among the {run.devices} devices "
            "that train (trainer.nnodes x trainer.n_gpus_per_node). Use another number of devices or, for a new run, "
            "another batch size; a resumed run must keep its batch."
        ),
    ),
    Rule(
        f"{_ROLLOUT}.n",
        lambda run: run.rollout.n < 2 and not _learns_from_one_session(run.settings),
        lambda run: (
            f"objective {run.settings.objective.name} compares the sessions of a prompt with each other. With one "
            "session every advantage is 0 and nothing is learned. Use 2 or more."
        ),
    ),
    Rule(
        "algorithm.filter_groups.enable",
        lambda run: (
            run.config.algorithm.filter_groups.enable
            and run.trainer.v1.sampler.custom_sampler.path != "pkg://ditto.rollout.replay_buffer"
        ),
        "only the sampler pkg://ditto.rollout.replay_buffer can replace groups. Leave "
        "trainer.v1.sampler.custom_sampler.path unchanged, or use false.",
    ),
    only_if("algorithm.filter_groups.max_num_gen_batches", "algorithm.filter_groups.enable", bool, "true"),
    # ---- lengths
    Rule(
        f"{_ROLLOUT}.max_model_len",
        lambda run: run.rollout.max_model_len is not None and run.rollout.max_model_len < run.longest,
        lambda run: (
            f"is less than prompt + feedback + response = {run.longest} tokens. Raise it, or lower one of "
            "data.max_prompt_length, data.max_feedback_length, data.max_response_length."
        ),
    ),
    *(chosen_on_a_cpu(key) for key in _CHOSEN),
    checkpointing_rule(_MODEL),
    budget(f"{_ACTOR}.ppo_max_token_len_per_gpu"),
    budget(f"{_ROLLOUT}.log_prob_max_token_len_per_gpu"),
    budget("actor_rollout_ref.ref.log_prob_max_token_len_per_gpu", lambda run: run.actor.use_kl_loss),
    # ---- the loss
    *OBJECTIVE_RULES,
    one_of(f"{_ACTOR}.loss_agg_mode", *LOSS_AGG_MODES),
    Rule(
        f"{_ACTOR}.loss_scale_factor",
        lambda run: run.actor.loss_agg_mode == SCALED and not run.actor.loss_scale_factor,
        f"{_ACTOR}.loss_agg_mode={SCALED} needs a number here, e.g. the value of "
        "data.max_response_length. Without it, verl divides by the longest response of each micro-batch.",
    ),
    only_if(f"{_ACTOR}.loss_scale_factor", f"{_ACTOR}.loss_agg_mode", lambda mode: mode == SCALED, SCALED),
    Rule(
        f"{_ACTOR}.policy_loss.loss_mode",
        lambda run: wrong_policy_loss(run.config),
        lambda run: wrong_policy_loss(run.config) or "",
    ),
    Rule(
        f"{_ACTOR}.policy_loss.dro_beta",
        lambda run: run.actor.policy_loss.loss_mode == "dro" and not (run.actor.policy_loss.dro_beta or 0) > 0,
        "loss_mode=dro needs a number above 0 here.",
    ),
    *(
        _only_if_the_loss_reads(option)
        for option in (
            "clip_ratio_low",
            "clip_ratio_high",
            "clip_ratio_c",
            "tau_pos",
            "tau_neg",
            "policy_loss.dro_beta",
        )
    ),
    Rule(
        f"{_ACTOR}.clip_ratio",
        lambda run: (
            changed(run, f"{_ACTOR}.clip_ratio")
            and run.actor.clip_ratio_low is not None
            and run.actor.clip_ratio_high is not None
        ),
        f"is read only if clip_ratio_low or clip_ratio_high is null. Set {_ACTOR}.clip_ratio_low and clip_ratio_high "
        "instead.",
    ),
    Rule(
        f"{_ACTOR}.kl_loss_type",
        lambda run: (
            str(run.actor.kl_loss_type).removesuffix("+") not in ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3")
        ),
        "use k1 (kl), k2 (mse), k3 (low_var_kl) or abs; append + to any of them to use k2's gradient.",
    ),
    *(
        only_if(f"{_ACTOR}.{option}", f"{_ACTOR}.use_kl_loss", bool, "true")
        for option in ("kl_loss_type", "kl_loss_coef")
    ),
    one_of("algorithm.rollout_correction.rollout_is", None, "token", "sequence"),
    Rule(
        "algorithm.rollout_correction.rollout_is_threshold",
        lambda run: not _is_threshold(run.config.algorithm.rollout_correction.rollout_is_threshold),
        "use a number above 0, or a lower and an upper one as text: '0.5_2.0'.",
    ),
    *(
        only_if(
            f"algorithm.rollout_correction.{option}",
            "algorithm.rollout_correction.rollout_is",
            lambda weights: weights is not None,
            "token or sequence",
        )
        for option in ("rollout_is_threshold", "rollout_is_batch_normalize")
    ),
    # ---- sampling
    Rule(
        "run.max_logprob_diff",
        lambda run: (run.rollout.top_p < 1 or run.rollout.top_k > 0) and run.config.run.max_logprob_diff is None,
        f"with {_ROLLOUT}.top_p or top_k the rollout normalizes log-probs over the remaining tokens only, so they "
        "differ from the actor's and the weight-sync alarm would end the run. Set the largest mean difference that "
        "you accept, e.g. 0.3.",
    ),
    Rule(
        f"{_ROLLOUT}.tensor_model_parallel_size",
        lambda run: rollout_devices(run) % (run.rollout.tensor_model_parallel_size * run.rollout.data_parallel_size),
        lambda run: (
            f"times data_parallel_size={run.rollout.data_parallel_size} must divide the {rollout_devices(run)} devices "
            f"that sample ({'actor_rollout_ref.rollout' if is_separate(run) else 'trainer'}.nnodes x n_gpus_per_node): "
            "every rollout server uses that many devices."
        ),
    ),
    one_of("trainer.v1.sampler.max_off_policy_strategy", "drop", "wait"),
    # ---- the rollout server
    Rule(
        f"{_ROLLOUT}.max_num_batched_tokens",
        lambda run: run.rollout.max_num_batched_tokens < run.rollout.max_num_seqs,
        lambda run: (
            f"vLLM needs at least one token for each of {_ROLLOUT}.max_num_seqs={run.rollout.max_num_seqs} requests. "
            "Raise it, or lower max_num_seqs."
        ),
    ),
    Rule(
        f"{_ROLLOUT}.free_cache_engine",
        lambda run: run.rollout.free_cache_engine and run.rollout.get("enable_sleep_mode") is False,
        f"vLLM frees its memory for the update by sleeping, which {_ROLLOUT}.enable_sleep_mode=false forbids. Set "
        "free_cache_engine=false too, or set enable_sleep_mode=true.",
    ),
    Rule(
        f"{_ROLLOUT}.layered_summon",
        lambda run: run.rollout.layered_summon and run.model.lora_rank and "dummy" in str(run.rollout.load_format),
        f"vLLM must have loaded the base model before an adapter is sent layer by layer: set {_ROLLOUT}.load_format="
        "safetensors, or layered_summon=false.",
    ),
    one_of(f"{_ROLLOUT}.scheduling_policy", "fcfs", "priority"),
    one_of(f"{_ROLLOUT}.dtype", "auto", "half", "float16", "bfloat16", "float", "float32"),
    one_of(f"{_ROLLOUT}.load_format", *LOAD_FORMATS),
    # ---- model and optimizer
    adapter_rule(_MODEL),
    Rule(
        f"{_MODEL}.use_liger",
        lambda run: run.model.use_liger and importlib.util.find_spec("liger_kernel") is None,
        "the package liger-kernel is not installed in this environment. Install it, or leave use_liger=false.",
    ),
    *optimizer_rules(f"{_ACTOR}.optim"),
    *engine_rules(f"{_ACTOR}.fsdp_config"),
    # ---- checkpoints
    saved_parts(f"{_ACTOR}.checkpoint.save_contents"),
    Rule(
        f"{_ACTOR}.checkpoint.load_contents",
        lambda run: (
            not {"model"}
            <= set(run.actor.checkpoint.load_contents or ())
            <= set(run.actor.checkpoint.save_contents or ())
        ),
        lambda run: (
            f"must contain model, and only parts that are in {_ACTOR}.checkpoint.save_contents="
            f"{list(run.actor.checkpoint.save_contents)}. Use [model,optimizer,extra]."
        ),
    ),
    Rule(
        f"{_ACTOR}.checkpoint.save_lora_only",
        lambda run: run.actor.checkpoint.save_lora_only and not run.model.lora_rank,
        f"needs an adapter: set {_MODEL}.lora_rank.",
    ),
    # ---- how long
    Rule(
        "trainer.val_only",
        lambda run: run.trainer.val_only and not run.trainer.val_before_train,
        "verl reads val_only only after the validation before training: set trainer.val_before_train=true too.",
    ),
)


def check_values(config: DictConfig, settings: Settings) -> None:
    """Check all rules.

    Raises:
        BadConfig: one is broken. SeveralMistakes: several are.
    """
    check_rules(RULES, RLRun(config, settings))
