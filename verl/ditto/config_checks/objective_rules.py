"""Rules for the options of objectives: none is accepted and ignored, and none contradicts another."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

from ditto.config_checks.defaults import changed, default, only_if
from ditto.config_checks.policy_losses import PI_OLD, readers, reads
from ditto.config_checks.rules import Rule
from ditto.objectives import AGENT_VERSIONS, OBJECTIVES

_ACTOR = "actor_rollout_ref.actor"
_LOSS_MODE = f"{_ACTOR}.policy_loss.loss_mode"
_SAMPLED = ("rollout", "token", "sequence")  # values that take log-probs from the rollout engine


def _unread(option: str) -> Rule:
    """A rule: an option has its default unless the objective reads it."""
    key = f"algorithm.{option}"
    objectives = ", ".join(name for name, objective in OBJECTIVES.items() if option in objective.options)
    return Rule(
        key,
        lambda run: changed(run, key) and option not in run.settings.objective.options,
        lambda run: (
            f"objective {run.settings.objective.name} does not read this option; {objectives} do. Leave it at its "
            f"default, {default(key)}, or choose another algorithm.objective."
        ),
    )


def _not_from_truncated_sampling(option: str, instead: str) -> Rule:
    """A rule: nothing is divided by the sampled log-probs of a truncated distribution."""
    key = f"algorithm.{option}"
    return Rule(
        key,
        lambda run: OmegaConf.select(run.config, key) in _SAMPLED and (run.rollout.top_p < 1 or run.rollout.top_k > 0),
        "with actor_rollout_ref.rollout.top_p or top_k the sampled log-probs are normalized over the remaining tokens "
        f"only, so every ratio to them would be wrong. Use {instead}.",
    )


def _only_if_clipped(option: str) -> Rule:
    """A rule: a clip range has its default unless a part is clipped."""
    key = f"{_ACTOR}.{option}"
    return Rule(
        key,
        lambda run: changed(run, key) and not run.settings.objective.clips,
        lambda run: f"objective {run.settings.objective.name} has no clipped part. Remove it.",
    )


OPTIONS = sorted({option for objective in OBJECTIVES.values() for option in objective.options})

OBJECTIVE_RULES: tuple[Rule, ...] = (
    Rule(
        # grpo and ditto stand in the config files, so beside agent_version they need not be the user's words.
        "algorithm.agent_version",
        lambda run: (
            run.config.algorithm.agent_version is not None
            and run.config.algorithm.objective not in AGENT_VERSIONS.values()
        ),
        lambda run: (
            f"would train {run.settings.objective.name} in place of algorithm.objective="
            f"{run.config.algorithm.objective}. Remove one of the two."
        ),
    ),
    *(_unread(option) for option in OPTIONS),
    only_if("algorithm.erl.threshold", "algorithm.erl.accept", lambda accept: accept == "threshold", "threshold"),
    only_if("algorithm.sdpo.teacher_rate", "algorithm.sdpo.teacher", lambda teacher: teacher == "ema", "ema"),
    *(
        only_if(f"algorithm.{section}.tail", f"algorithm.{section}.top_k", lambda top_k: top_k is not None, "a number")
        for section in ("sdpo", "distill")
    ),
    Rule(
        "algorithm.distill.teachers",
        lambda run: run.settings.objective.teacher == "experts" and not run.settings.expert_teachers,
        lambda run: (
            f"objective {run.settings.objective.name} needs checkpoints that score what the policy samples: "
            "+algorithm.distill.teachers.TASK=CHECKPOINT for each task, or for all of them "
            "+algorithm.distill.teachers.default=CHECKPOINT."
        ),
    ),
    only_if("algorithm.std_floor", "algorithm.norm_adv_by_std_in_grpo", bool, "true"),
    Rule(
        "algorithm.old_logp",
        lambda run: _as_sampled(run) and run.config.algorithm.rollout_correction.rollout_is is not None,
        "algorithm.rollout_correction.rollout_is weighs by the distance of pi_old from what was sampled, and here they "
        "are the same. Use one of the two.",
    ),
    _not_from_truncated_sampling("old_logp", "auto or recompute"),
    _not_from_truncated_sampling("refined_old_logp", "recompute"),
    _not_from_truncated_sampling("rollout_correction.rollout_is", "null"),
    Rule(
        # Beside old_logp=rollout it still saves the pass over refined answers.
        "algorithm.refined_old_logp",
        lambda run: (
            changed(run, "algorithm.refined_old_logp")
            and not reads(run.actor.policy_loss.loss_mode, PI_OLD)
            and not _as_sampled(run)
        ),
        f"is read only if {_LOSS_MODE} is {readers(PI_OLD)}. Remove it, or set that.",
    ),
    # Objectives without feedback accept `refine.*` too: recipe/ditto/ablations.sh sets it for all that it trains.
    Rule(
        "refine.include_draft",
        lambda run: run.settings.refine.include_draft and run.settings.objective.teacher == "feedback",
        lambda run: (
            f"objective {run.settings.objective.name} scores the draft itself, which a teacher that reads it in the "
            "prompt would only copy. Leave it false."
        ),
    ),
    Rule(
        _LOSS_MODE,
        lambda run: run.actor.policy_loss.loss_mode != "vanilla" and not run.settings.objective.clips,
        lambda run: (
            f"objective {run.settings.objective.name} has no clipped part, which this would replace. Remove it."
        ),
    ),
    Rule(
        "actor_rollout_ref.model.use_fused_kernels",
        lambda run: (
            _compares_logits(run)
            and not (
                run.model.use_fused_kernels and (run.model.fused_kernel_options or {}).get("impl_backend") == "chunked"
            )
        ),
        lambda run: (
            f"objective {run.settings.objective.name} compares distributions in the chunked head. Use "
            "use_fused_kernels=true with fused_kernel_options.impl_backend=chunked, or the objective's token form."
        ),
    ),
    Rule(
        "actor_rollout_ref.model.use_remove_padding",
        lambda run: _compares_logits(run) and not run.model.use_remove_padding,
        lambda run: (
            f"objective {run.settings.objective.name} compares tokens by their place in a packed batch: use true, or "
            "the objective's token form."
        ),
    ),
    *(_only_if_clipped(option) for option in ("clip_ratio_low", "clip_ratio_high", "clip_ratio_c")),
)


def _as_sampled(run: Any) -> bool:
    return bool(run.config.algorithm.old_logp == "rollout")


def _compares_logits(run: Any) -> bool:
    return bool(run.settings.objective.compares_logits)
