"""Values that cannot work, of keys that are read: one table of rules.

A rule is a key, a condition under which its value is wrong, and the reason with the remedy. To add one, add an entry to
RULES; `tests/ditto/test_config_keys.py` breaks every rule once.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.compose import default_config
from ditto.config_checks.policy_losses import wrong_policy_loss
from ditto.loss_weights import LOSS_AGG_MODES
from ditto.settings import BadConfig, Settings

_MAX_LORA_RANK = 512  # of vLLM
_SHORTEST_BUDGET = 128  # tokens of the rows with which verl pads a batch


class Run:
    """What the rules look at: the config with its main sections at hand."""

    def __init__(self, config: DictConfig, settings: Settings) -> None:
        self.config, self.settings = config, settings
        self.actor = config.actor_rollout_ref.actor
        self.rollout = config.actor_rollout_ref.rollout
        self.model = config.actor_rollout_ref.model
        self.data, self.trainer = config.data, config.trainer

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence that the limits of `data` allow."""
        data = self.data
        return int(data.max_prompt_length + data.max_feedback_length + data.max_response_length)

    @property
    def devices(self) -> int:
        """How many devices train."""
        return int(self.trainer.nnodes * self.trainer.n_gpus_per_node)


@dataclass(frozen=True)
class Rule:
    """One thing that cannot be.

    Attributes:
        key: whose value it is about, in dotted form.
        broken: whether the value is wrong in this run.
        why: the reason and the remedy, or a function of the run that words them.
    """

    key: str
    broken: Callable[[Run], Any]
    why: str | Callable[[Run], str]

    def check(self, run: Run) -> None:
        """Raises BadConfig where the rule is broken."""
        if self.broken(run):
            why = self.why if isinstance(self.why, str) else self.why(run)
            raise BadConfig(f"{self.key}={OmegaConf.select(run.config, self.key)}: {why}")


def one_of(key: str, *allowed: Any, because: str = "") -> Rule:
    """The key takes one of these values."""
    names = ", ".join("null" if value is None else str(value) for value in allowed)
    why = f"use one of {names}. {because}".strip()
    return Rule(key, lambda run: OmegaConf.select(run.config, key) not in allowed, why)


def at_least(key: str, least: float) -> Rule:
    """The key takes a number from here on."""
    return Rule(key, lambda run: not _number(run, key) >= least, f"must be a number, {least} or more.")


def above(key: str, bound: float, because: str) -> Rule:
    """The key takes a number above this one."""
    return Rule(key, lambda run: not _number(run, key) > bound, f"must be a number above {bound}: {because}")


def _number(run: Run, key: str) -> float:
    """The value of a key; NaN, which is neither above nor below anything, where it is not a number."""
    value = OmegaConf.select(run.config, key)
    return value if isinstance(value, int | float) else float("nan")


def truncation(section: str) -> tuple[Rule, Rule]:
    """vLLM's limits of top_p and top_k; it would refuse every single request."""
    top_p, top_k = f"{section}.top_p", f"{section}.top_k"
    return (
        Rule(top_p, lambda run: not 0 < _number(run, top_p) <= 1, "must be a number above 0, up to 1 (all words)."),
        Rule(top_k, lambda run: not _number(run, top_k) >= -1, "must be -1 (all words) or more."),
    )


def budget(key: str, applies: Callable[[Run], Any] = lambda run: True) -> Rule:
    """A token budget of a micro-batch holds the longest sequence: verl does not split one."""
    return Rule(
        key,
        lambda run: applies(run) and not _number(run, key) >= max(run.longest, _SHORTEST_BUDGET),
        lambda run: (
            f"a micro-batch must hold the longest sequence, prompt + feedback + response = {run.longest} tokens (and "
            f"at least {_SHORTEST_BUDGET}). Raise it, or lower data.max_prompt_length, data.max_feedback_length or "
            "data.max_response_length."
        ),
    )


def _lacks(found: Any, wanted: Any) -> list[str]:
    return [name for name in wanted if name not in (found or [])]


def _no_such_optimizer(run: Run) -> bool:
    """Whether optim.optimizer_impl cannot be imported, or has no optim.optimizer."""
    name, optimizer = str(run.actor.optim.optimizer_impl), str(run.actor.optim.optimizer)
    if importlib.util.find_spec(name.split(".")[0]) is None:
        return True
    return not hasattr(importlib.import_module(name), optimizer)


_ACTOR, _ROLLOUT, _MODEL = (f"actor_rollout_ref.{section}" for section in ("actor", "rollout", "model"))

RULES: tuple[Rule, ...] = (
    # ---- the mode
    Rule(
        "trainer.v1.trainer_mode",
        lambda run: run.trainer.v1.trainer_mode == "ditto_separate_async",
        "rollout and update on devices of their own is not right yet with verl 0.9.1: its updates within one weight "
        "sync skip the recomputed pi_old, so nothing is clipped; metrics of parts that should be added are averaged; "
        "and with LoRA the adapter never reaches the rollout, or the sync hangs (verl issue 7495). Use ditto_sync or "
        "ditto_colocate_async.",
    ),
    one_of(
        "trainer.v1.trainer_mode",
        "ditto_sync",
        "ditto_colocate_async",
        because="verl's own trainers know nothing of verbal feedback.",
    ),
    one_of("trainer.device", "cuda", "cpu"),
    at_least("trainer.nnodes", 1),
    at_least("trainer.n_gpus_per_node", 1),
    # ---- batches
    at_least("data.train_batch_size", 1),
    at_least(f"{_ACTOR}.ppo_mini_batch_size", 1),
    at_least(f"{_ACTOR}.ppo_epochs", 1),
    Rule(
        "data.train_batch_size",
        lambda run: run.data.train_batch_size % run.actor.ppo_mini_batch_size,
        lambda run: (
            f"is not a multiple of {_ACTOR}.ppo_mini_batch_size={run.actor.ppo_mini_batch_size} (both count prompts)."
        ),
    ),
    at_least(f"{_ROLLOUT}.n", 1),
    Rule(
        f"{_ROLLOUT}.n",
        lambda run: run.rollout.n < 2 and not run.settings.objective.refines,
        lambda run: (
            f"objective {run.settings.objective.name} compares the sessions of a prompt with each other: with one "
            "session every advantage is 0 and nothing is learned. Use 2 or more."
        ),
    ),
    at_least(f"{_ROLLOUT}.val_kwargs.n", 1),
    # ---- lengths
    *(at_least(f"data.max_{name}_length", 1) for name in ("prompt", "response")),
    at_least("data.max_feedback_length", 0),
    Rule(
        f"{_ROLLOUT}.max_model_len",
        lambda run: (
            run.rollout.max_model_len is not None and not _number(run, f"{_ROLLOUT}.max_model_len") >= run.longest
        ),
        lambda run: (
            f"is less than prompt + feedback + response = {run.longest} tokens. Raise it, or lower one of "
            "data.max_prompt_length, data.max_feedback_length, data.max_response_length."
        ),
    ),
    budget(f"{_ACTOR}.ppo_max_token_len_per_gpu"),
    budget(f"{_ROLLOUT}.log_prob_max_token_len_per_gpu"),
    budget("actor_rollout_ref.ref.log_prob_max_token_len_per_gpu", lambda run: run.actor.use_kl_loss),
    # ---- the loss
    one_of(f"{_ACTOR}.loss_agg_mode", *LOSS_AGG_MODES),
    Rule(
        f"{_ACTOR}.loss_scale_factor",
        lambda run: run.actor.loss_agg_mode == "seq-mean-token-sum-norm" and not run.actor.loss_scale_factor,
        f"{_ACTOR}.loss_agg_mode=seq-mean-token-sum-norm needs a number here, e.g. that of data.max_response_length: "
        "without it verl divides by the longest response of each micro-batch.",
    ),
    Rule(
        f"{_ACTOR}.policy_loss.loss_mode",
        lambda run: wrong_policy_loss(run.config),
        lambda run: wrong_policy_loss(run.config) or "",
    ),
    Rule(
        f"{_ACTOR}.policy_loss.dro_beta",
        lambda run: run.actor.policy_loss.loss_mode == "dro" and not (run.actor.policy_loss.dro_beta or 0) > 0,
        "loss_mode=dro needs a penalty above 0 here.",
    ),
    above(f"{_ACTOR}.clip_ratio_c", 1, "it bounds the ratio where the advantage is negative (dual clip)."),
    Rule(
        f"{_ACTOR}.clip_ratio",
        lambda run: (
            run.actor.clip_ratio != default_config("gpu").actor_rollout_ref.actor.clip_ratio
            and run.actor.clip_ratio_low is not None
            and run.actor.clip_ratio_high is not None
        ),
        f"is read only where clip_ratio_low or clip_ratio_high is null. Set {_ACTOR}.clip_ratio_low and "
        "clip_ratio_high.",
    ),
    Rule(
        f"{_ACTOR}.kl_loss_type",
        lambda run: (
            str(run.actor.kl_loss_type).removesuffix("+") not in ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3")
        ),
        "use k1 (kl), k2 (mse), k3 (low_var_kl) or abs, each with + behind it for k2's gradient.",
    ),
    one_of("algorithm.rollout_correction.rollout_is", None, "token", "sequence"),
    # ---- sampling
    above(f"{_ROLLOUT}.temperature", 0, "log-probs are taken at the sampling temperature, and 1.0 is usual."),
    *truncation(_ROLLOUT),
    Rule(
        "run.max_logprob_diff",
        lambda run: (run.rollout.top_p < 1 or run.rollout.top_k > 0) and run.config.run.max_logprob_diff is None,
        f"with {_ROLLOUT}.top_p or top_k the rollout's log-probs are those of the words that are left, so they differ "
        "from the actor's, and the alarm for a lost weight sync would end the run. Set the mean difference that is "
        "still right, e.g. 0.3.",
    ),
    at_least(f"{_ROLLOUT}.val_kwargs.temperature", 0),
    *truncation(f"{_ROLLOUT}.val_kwargs"),
    at_least(f"{_ROLLOUT}.tensor_model_parallel_size", 1),
    at_least(f"{_ROLLOUT}.data_parallel_size", 1),
    Rule(
        f"{_ROLLOUT}.tensor_model_parallel_size",
        lambda run: run.devices % (run.rollout.tensor_model_parallel_size * run.rollout.data_parallel_size),
        lambda run: (
            f"times data_parallel_size={run.rollout.data_parallel_size} does not divide the {run.devices} devices "
            "(trainer.nnodes x trainer.n_gpus_per_node): every rollout server takes that many."
        ),
    ),
    one_of("trainer.v1.sampler.max_off_policy_strategy", "drop", "wait"),
    # ---- the rollout server
    Rule(
        f"{_ROLLOUT}.gpu_memory_utilization",
        lambda run: not 0 < _number(run, f"{_ROLLOUT}.gpu_memory_utilization") <= 1,
        "is the share of a device's memory that vLLM may take: above 0, up to 1.",
    ),
    Rule(
        f"{_ROLLOUT}.max_num_batched_tokens",
        lambda run: not _number(run, f"{_ROLLOUT}.max_num_batched_tokens") >= _number(run, f"{_ROLLOUT}.max_num_seqs"),
        lambda run: (
            f"vLLM wants at least one token for each of {_ROLLOUT}.max_num_seqs={run.rollout.max_num_seqs} requests. "
            "Raise it, or lower max_num_seqs."
        ),
    ),
    Rule(
        f"{_ROLLOUT}.free_cache_engine",
        lambda run: run.rollout.free_cache_engine and run.rollout.get("enable_sleep_mode") is False,
        f"vLLM frees its memory for the update by sleeping, and {_ROLLOUT}.enable_sleep_mode=false forbids it. Set "
        "free_cache_engine=false too, or let it sleep.",
    ),
    Rule(
        f"{_ROLLOUT}.layered_summon",
        lambda run: run.rollout.layered_summon and run.model.lora_rank and "dummy" in str(run.rollout.load_format),
        f"the base model must be in vLLM before an adapter is sent layer by layer: set {_ROLLOUT}.load_format="
        "safetensors, or layered_summon=false.",
    ),
    one_of(f"{_ROLLOUT}.scheduling_policy", "fcfs", "priority"),
    # ---- model and optimizer
    Rule(
        f"{_MODEL}.lora_rank",
        lambda run: not 0 <= _number(run, f"{_MODEL}.lora_rank") <= _MAX_LORA_RANK,
        f"use 0 (train all weights) up to {_MAX_LORA_RANK}, the most that vLLM takes.",
    ),
    Rule(
        f"{_MODEL}.lora_adapter_path",
        lambda run: run.model.lora_adapter_path is not None and not run.model.lora_rank,
        f"the adapter is loaded only with {_MODEL}.lora_rank > 0: set the rank it has.",
    ),
    Rule(
        f"{_MODEL}.use_liger",
        lambda run: run.model.use_liger and importlib.util.find_spec("liger_kernel") is None,
        "the package liger-kernel is not installed in this environment. Install it, or leave use_liger=false.",
    ),
    one_of(f"{_ACTOR}.optim.lr_scheduler_type", "constant", "cosine"),
    one_of(f"{_ACTOR}.optim.warmup_style", None, "constant", "cosine"),
    Rule(
        f"{_ACTOR}.optim.optimizer",
        _no_such_optimizer,
        lambda run: (
            f"there is no such optimizer in {run.actor.optim.optimizer_impl} "
            f"({_ACTOR}.optim.optimizer_impl). Use AdamW of torch.optim, or install the package that has it."
        ),
    ),
    # ---- checkpoints
    Rule(
        f"{_ACTOR}.checkpoint.save_contents",
        lambda run: _lacks(run.actor.checkpoint.save_contents, ["model", "hf_model"]),
        lambda run: (
            f"lacks {', '.join(_lacks(run.actor.checkpoint.save_contents, ['model', 'hf_model']))}: a checkpoint is "
            "verl's state to resume from (model, optimizer, extra) and a model path (hf_model). Use "
            "[model,optimizer,extra,hf_model]."
        ),
    ),
    Rule(
        f"{_ACTOR}.checkpoint.load_contents",
        lambda run: (
            _lacks(run.actor.checkpoint.save_contents, run.actor.checkpoint.load_contents or [])
            or "model" not in (run.actor.checkpoint.load_contents or [])
        ),
        lambda run: (
            f"a resume loads model at least, and nothing that {_ACTOR}.checkpoint.save_contents="
            f"{list(run.actor.checkpoint.save_contents)} does not save. Use [model,optimizer,extra]."
        ),
    ),
    one_of("trainer.resume_mode", "auto", "disable", "resume_path"),
    Rule(
        "trainer.resume_from_path",
        lambda run: (run.trainer.resume_from_path is not None) != (run.trainer.resume_mode == "resume_path"),
        "goes together with trainer.resume_mode=resume_path: set both, or neither.",
    ),
    # ---- how long
    Rule(
        "trainer.total_training_steps",
        lambda run: (
            run.trainer.total_training_steps is not None and not _number(run, "trainer.total_training_steps") >= 1
        ),
        "must be 1 or more, or null for trainer.total_epochs passes over the rows.",
    ),
    at_least("trainer.total_epochs", 1),
    Rule(
        "trainer.val_only",
        lambda run: run.trainer.val_only and not run.trainer.val_before_train,
        "verl validates before it trains, and only then looks at val_only: set trainer.val_before_train=true too.",
    ),
)


def check_values(config: DictConfig, settings: Settings) -> None:
    """Raises BadConfig for the first rule that the config breaks."""
    run = Run(config, settings)
    for rule in RULES:
        rule.check(run)
