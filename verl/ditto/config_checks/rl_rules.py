"""The rules of RL: values that cannot work together, and options that nothing would read beside the others.

Each rule is a key, the condition under which its value cannot work, and the reason with what to do.

A policy loss of verl works with our weights of tokens if it multiplies each token's loss by the weight and adds up as
its argument `loss_agg_mode` says (`tests/ditto/config_checks/test_policy_losses.py`): those in `keys.py` do. A loss of
your own is a part of an objective.
"""

import math
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ditto.config_checks.key_types import check_types
from ditto.config_checks.keys import RL_KEYS
from ditto.config_checks.resume import check_resume
from ditto.config_checks.rules import Rule, Run, check_rules, chosen_on_a_cpu, model_rules, trainer_rules
from ditto.launching.compose import SEPARATE, default_config
from ditto.objectives import OBJECTIVES
from ditto.objectives.loss_weights import SCALED
from ditto.objectives.options import ObjectiveOptions
from ditto.objectives.spec import Objective
from ditto.run.checkpoint import ResumeChoice
from ditto.settings import Settings

_ACTOR, _ROLLOUT, _MODEL = (f"actor_rollout_ref.{section}" for section in ("actor", "rollout", "model"))
_MODE, _SAMPLER = "trainer.v1.trainer_mode", "trainer.v1.sampler"
_WEIGHTS = "algorithm.rollout_correction.rollout_is"
_SHORTEST_BUDGET = 128  # tokens of the rows that verl pads a batch with
_TRUNCATES = f"with {_ROLLOUT}.top_p or top_k the sampled log-probs are normalized over the remaining tokens only"
_CHOSEN_ON_A_CPU = (
    *(f"{_ACTOR}.ppo_max_token_len_per_gpu", f"{_ROLLOUT}.log_prob_max_token_len_per_gpu"),
    *(f"{_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes", f"{_MODEL}.enable_gradient_checkpointing"),
)
OPTIONS = sorted({option for objective in OBJECTIVES.values() for option in objective.options})

# Option -> another key, and the values of that key with which the option is read. [] stands for any value that is set.
_READ_WITH: dict[str, tuple[str, list[str]]] = {
    "trainer.v1.colocate_async.num_warmup_batches": (_MODE, ["ditto_colocate_async"]),
    "trainer.v1.separate_async.num_warmup_batches": (_MODE, [SEPARATE]),
    "trainer.v1.separate_async.parameter_sync_step": (_MODE, [SEPARATE]),
    f"{_SAMPLER}.max_off_policy_threshold": (_MODE, ["ditto_colocate_async", SEPARATE]),
    f"{_SAMPLER}.max_off_policy_strategy": (_MODE, ["ditto_colocate_async", SEPARATE]),
    "algorithm.sdpo.teacher_rate": ("algorithm.sdpo.teacher", ["ema"]),
    "algorithm.sdpo.tail": ("algorithm.sdpo.top_k", []),
    "algorithm.distill.tail": ("algorithm.distill.top_k", []),
    "algorithm.std_floor": ("algorithm.norm_adv_by_std_in_grpo", []),
    f"{_WEIGHTS}_threshold": (_WEIGHTS, []),
    f"{_WEIGHTS}_batch_normalize": (_WEIGHTS, []),
    f"{_ACTOR}.loss_scale_factor": (f"{_ACTOR}.loss_agg_mode", [SCALED]),
    f"{_ACTOR}.kl_loss_type": (f"{_ACTOR}.use_kl_loss", []),
    f"{_ACTOR}.kl_loss_coef": (f"{_ACTOR}.use_kl_loss", []),
    f"{_ACTOR}.clip_ratio_c": (f"{_ACTOR}.policy_loss.loss_mode", ["vanilla"]),
}


class RLRun(Run):
    """An RL run, with short names for the main sections of its config."""

    def __init__(self, config: DictConfig, settings: Settings) -> None:
        super().__init__(config)
        self.settings, self.objectives = settings, settings.objectives
        self.actor = config.actor_rollout_ref.actor
        self.rollout = config.actor_rollout_ref.rollout
        self.model = config.actor_rollout_ref.model
        self.separate = config.trainer.v1.trainer_mode == SEPARATE  # rollouts have devices of their own

    @property
    def names(self) -> str:
        """The objectives, in words."""
        return " and ".join(dict.fromkeys(objective.name for objective in self.objectives))

    @property
    def longest(self) -> int:
        """Length in tokens of the longest sequence that the limits in `data` allow."""
        return int(self.data.max_prompt_length + self.data.max_feedback_length + self.data.max_response_length)

    def changed(self, key: str) -> bool:
        """True if a key has another value than its default."""
        return bool(self.value(key) != OmegaConf.select(default_config("gpu"), key))


def check_every_type(config: DictConfig) -> None:
    """Check that every value has its key's type and is in its range, before any other code reads it."""
    check_types(config, RL_KEYS)


def check_config(config: DictConfig, settings: Settings) -> ResumeChoice:
    """Check everything that needs no rows, model or judge. Returns the checkpoint that the run resumes from."""
    run = RLRun(config, settings)
    check_rules(rl_rules(run), run)
    return check_resume(config)


def rl_rules(run: RLRun) -> Iterator[Rule]:
    """All rules of RL."""
    yield from trainer_rules(run)
    for rules in (_mode_rules, _batch_rules, _policy_rules, _objective_rules, _loss_rules, _rollout_rules):
        yield from rules(run)
    yield from chosen_on_a_cpu(run, _CHOSEN_ON_A_CPU)
    yield from model_rules(run, _MODEL, f"{_ACTOR}.optim", f"{_ACTOR}.fsdp_config", f"{_ACTOR}.checkpoint")
    for key, (other, values) in _READ_WITH.items():
        chosen = run.value(other)
        read = chosen in values if values else chosen not in (None, False)
        wanted = " or ".join(values) or "set"
        yield key, not read and run.changed(key), f"is read only if {other} is {wanted}. Remove it, or set that."


def _mode_rules(run: RLRun) -> Iterator[Rule]:
    """Rules for the trainer's mode."""
    v1, rollout, mini_batch = run.trainer.v1, run.rollout, run.actor.ppo_mini_batch_size
    limit = v1.sampler.max_off_policy_threshold
    mode = v1.trainer_mode.removeprefix("ditto_")
    if mode != "sync":
        drops = v1.sampler.max_off_policy_strategy == "drop" and limit is not None
        yield (
            f"trainer.v1.{mode}.num_warmup_batches",
            drops and v1[mode].num_warmup_batches >= limit,
            "prompts that are sampled so far ahead would be dropped as too old: use less than "
            f"{_SAMPLER}.max_off_policy_threshold={limit}, or raise that.",
        )
    yield (
        "trainer.v1.separate_async.parameter_sync_step",
        run.separate and run.data.train_batch_size != v1.separate_async.parameter_sync_step * mini_batch,
        f"times {_ACTOR}.ppo_mini_batch_size={mini_batch} must be data.train_batch_size={run.data.train_batch_size} "
        "(both count prompts): between two weight syncs this mode trains that many parts, each a mini-batch.",
    )
    yield (
        f"{_ROLLOUT}.nnodes",
        run.separate != bool(rollout.nnodes),
        f"{_MODE}={SEPARATE} samples on devices of its own: set the number of their nodes, at least 1. In the other "
        "modes it is 0, because rollouts and updates share trainer.nnodes.",
    )


def _batch_rules(run: RLRun) -> Iterator[Rule]:
    """Rules for the sizes of batches and groups, and for lengths in tokens."""
    prompts, mini_batch, n = run.data.train_batch_size, run.actor.ppo_mini_batch_size, run.rollout.n
    yield (
        "data.train_batch_size",
        prompts % mini_batch,
        f"must be a multiple of {_ACTOR}.ppo_mini_batch_size={mini_batch} (both count prompts).",
    )
    yield (
        "data.train_batch_size",
        prompts * n % run.devices,
        f"times {_ROLLOUT}.n={n} sessions cannot be divided evenly among the {run.devices} devices that train "
        "(trainer.nnodes x trainer.n_gpus_per_node). Use another number of devices or, for a new run, another batch "
        "size; a resumed run must keep its batch.",
    )
    yield (
        f"{_ROLLOUT}.n",
        n < 2 and not all(_learns_from_one_session(run.settings, objective) for objective in run.objectives),
        f"objective {run.names} compares the sessions of a prompt with each other. With one session every "
        "advantage is 0 and nothing is learned. Use 2 or more.",
    )
    tokens, limits = run.longest, "data.max_prompt_length, data.max_feedback_length or data.max_response_length"
    yield (
        f"{_ROLLOUT}.max_model_len",
        run.rollout.max_model_len is not None and run.rollout.max_model_len < tokens,
        f"is less than prompt + feedback + response = {tokens} tokens. Raise it, or lower {limits}.",
    )
    budgets = [f"{_ACTOR}.ppo_max_token_len_per_gpu", f"{_ROLLOUT}.log_prob_max_token_len_per_gpu"]
    budgets += ["actor_rollout_ref.ref.log_prob_max_token_len_per_gpu"] if run.actor.use_kl_loss else []
    for key in budgets:  # verl does not split sequences
        yield (
            key,
            run.value(key) is not None and run.value(key) < max(tokens, _SHORTEST_BUDGET),
            f"a micro-batch must fit the longest sequence, prompt + feedback + response = {tokens} tokens (and at "
            f"least {_SHORTEST_BUDGET}). Raise it, or lower {limits}.",
        )


def _policy_rules(run: RLRun) -> Iterator[Rule]:
    """Rules for several policies."""
    several, mode = bool(run.settings.policies), run.trainer.v1.trainer_mode
    yield (
        f"{_MODEL}.lora_rank",
        several and not run.model.lora_rank,
        "each of several policies is a LoRA adapter: use 32.",
    )
    yield _MODE, several and mode != "ditto_sync", "several policies are trained in ditto_sync alone."
    yield (
        "algorithm.sdpo.teacher",
        several
        and any(each.teacher == "feedback" for each in run.objectives)
        and run.settings.options.sdpo.teacher != "live",
        "with several policies the teacher of a distillation is the policy as it is: use live.",
    )
    yield "self_play.turn_steps", not several and run.changed("self_play.turn_steps"), "is read only with policies."


def _objective_rules(run: RLRun) -> Iterator[Rule]:
    """Rules for the options of objectives: none is accepted and ignored, and none contradicts another."""
    objectives, defaults = run.objectives, ObjectiveOptions()
    for option in OPTIONS:
        usual = attrgetter(option)(defaults)
        readers = ", ".join(name for name, each in OBJECTIVES.items() if option in each.options)
        yield (
            f"algorithm.{option}",
            not any(option in each.options for each in objectives)
            and attrgetter(option)(run.settings.options) != usual,
            f"objective {run.names} does not read this option; {readers} do. Leave it at its default, {usual}, "
            "or choose another algorithm.objective.",
        )
    yield (
        "algorithm.distill.teachers",
        any(each.teacher == "experts" for each in objectives) and not run.settings.expert_teachers,
        f"objective {run.names} needs checkpoints that score what the policy samples: "
        "algorithm.distill.teachers.TASK=CHECKPOINT for each task, or for all of them "
        "algorithm.distill.teachers.default=CHECKPOINT.",
    )
    kernels, logits = run.model.fused_kernel_options or {}, any(each.compares_logits for each in objectives)
    yield (
        f"{_MODEL}.use_fused_kernels",
        logits and not (run.model.use_fused_kernels and kernels.get("impl_backend") == "chunked"),
        f"objective {run.names} compares distributions in the chunked head. Use use_fused_kernels=true with "
        "fused_kernel_options.impl_backend=chunked, or the objective's token form.",
    )
    yield (
        f"{_MODEL}.use_remove_padding",
        logits and not run.model.use_remove_padding,
        f"objective {run.names} compares tokens by their place in a packed batch: use true, or the objective's "
        "token form.",
    )


def _loss_rules(run: RLRun) -> Iterator[Rule]:
    """Rules for verl's policy losses, their options, and the log-probs that they divide by."""
    actor = run.actor
    yield (
        f"{_ACTOR}.loss_scale_factor",
        actor.loss_agg_mode == SCALED and not actor.loss_scale_factor,
        f"{_ACTOR}.loss_agg_mode={SCALED} needs a number here, e.g. the value of data.max_response_length. Without it, "
        "verl divides by the longest response of each micro-batch.",
    )
    for option in ("policy_loss.loss_mode", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c"):
        key, unclipped = f"{_ACTOR}.{option}", not any(each.clips for each in run.objectives)
        why = f"objective {run.names} has no clipped part. Remove it."
        yield key, unclipped and run.value(key) and run.changed(key), why
    threshold = run.value(f"{_WEIGHTS}_threshold")
    bound = "use a number above 0, or a lower and an upper one as text: '0.5_2.0'."
    yield f"{_WEIGHTS}_threshold", not _is_threshold(threshold), bound
    old_logp, weights = run.settings.options.old_logp, run.value(_WEIGHTS)
    yield (
        "algorithm.old_logp",
        old_logp == "rollout" and weights is not None,
        f"{_WEIGHTS} weighs by the distance of pi_old from what was sampled, and here they are the same. Use one of "
        "the two.",
    )
    truncates = run.rollout.top_p < 1 or run.rollout.top_k > 0
    wrong = f"{_TRUNCATES}, so every ratio to them would be wrong. Use"
    yield "algorithm.old_logp", truncates and old_logp == "rollout", f"{wrong} auto or recompute."
    yield _WEIGHTS, truncates and weights is not None, f"{wrong} null."


def _rollout_rules(run: RLRun) -> Iterator[Rule]:
    """Rules for sampling and the rollout servers."""
    rollout = run.rollout
    yield (
        "run.max_logprob_diff",
        (rollout.top_p < 1 or rollout.top_k > 0) and run.config.run.max_logprob_diff is None,
        f"{_TRUNCATES}, so they differ from the actor's and the weight-sync alarm would end the run. Set the largest "
        "mean difference that you accept, e.g. 0.3.",
    )
    samples = int(rollout.nnodes * rollout.n_gpus_per_node) if run.separate else run.devices
    yield (
        f"{_ROLLOUT}.tensor_model_parallel_size",
        samples % rollout.tensor_model_parallel_size,
        f"must divide the {samples} devices that sample ({_ROLLOUT if run.separate else 'trainer'}.nnodes x "
        "n_gpus_per_node): every rollout server uses that many devices.",
    )


def _is_threshold(value: Any) -> bool:
    """Check for a bound of importance weights: one number, or "lower_upper" as verl parses it from text."""
    try:
        bounds = [float(part) for part in str(value).split("_", 1)]
    except ValueError:
        return False
    return all(0 < bound < math.inf for bound in bounds) and bounds == sorted(bounds)


def _learns_from_one_session(settings: Settings, objective: Objective) -> bool:
    """Check that one session of a prompt teaches: by its refined answer, or by a term that compares no sessions."""
    return objective.refines or any(
        part.compares not in ("group", "drafts") and settings.options.weight(part) > 0 for part in objective.parts
    )
