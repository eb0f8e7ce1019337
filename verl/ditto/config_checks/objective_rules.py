"""Rules for the options of objectives: none is accepted and ignored, and none contradicts another."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

from ditto.config_checks.rules import Rule
from ditto.launching.compose import default_config
from ditto.objectives import OBJECTIVES
from ditto.objectives.options import ObjectiveOptions

_ACTOR = "actor_rollout_ref.actor"
_DEFAULTS: dict[str, Any] = OmegaConf.to_object(OmegaConf.create(ObjectiveOptions().model_dump()))


def _default(option: str) -> Any:
    return OmegaConf.select(OmegaConf.create(_DEFAULTS), option)


def _changed(run: Any, option: str) -> bool:
    return bool(OmegaConf.select(run.config.algorithm, option) != _default(option))


def _unread(option: str) -> Rule:
    """A rule: an option has its default unless the objective reads it."""
    readers = ", ".join(name for name, objective in OBJECTIVES.items() if option in objective.options)
    return Rule(
        f"algorithm.{option}",
        lambda run: _changed(run, option) and option not in run.settings.objective.options,
        lambda run: (
            f"objective {run.settings.objective.name} does not read this option; {readers} do. Leave it at its "
            f"default, {_default(option)}, or choose another algorithm.objective."
        ),
    )


def _only_if(option: str, other: str, applies: Any, when: str) -> Rule:
    """A rule: an option has its default unless another one has a value that makes it matter."""
    return Rule(
        f"algorithm.{option}",
        lambda run: _changed(run, option) and not applies(OmegaConf.select(run.config.algorithm, other)),
        f"is read only if algorithm.{other} is {when}. Remove it, or set that.",
    )


def _only_if_clipped(key: str) -> Rule:
    """A rule: a clip range has its default unless a part is clipped."""
    return Rule(
        f"{_ACTOR}.{key}",
        lambda run: (
            run.actor[key] != default_config("gpu").actor_rollout_ref.actor[key]
            and not any(part.loss == "clipped" for part in run.settings.objective.parts)
        ),
        lambda run: f"objective {run.settings.objective.name} has no clipped part. Remove it.",
    )


OPTIONS = sorted({option for objective in OBJECTIVES.values() for option in objective.options})

OBJECTIVE_RULES: tuple[Rule, ...] = (
    *(_unread(option) for option in OPTIONS),
    _only_if("erl.threshold", "erl.accept", lambda accept: accept == "threshold", "threshold"),
    _only_if("sdpo.teacher_rate", "sdpo.teacher", lambda teacher: teacher == "ema", "ema"),
    _only_if("sdpo.tail", "sdpo.top_k", lambda top_k: top_k is not None, "a number"),
    _only_if("distill.tail", "distill.top_k", lambda top_k: top_k is not None, "a number"),
    Rule(
        "algorithm.distill.teachers",
        lambda run: run.settings.objective.teacher == "experts" and not run.settings.expert_teachers,
        lambda run: (
            f"objective {run.settings.objective.name} needs checkpoints that score what the policy samples: "
            "+algorithm.distill.teachers.TASK=CHECKPOINT for each task, or for all of them "
            "+algorithm.distill.teachers.default=CHECKPOINT."
        ),
    ),
    _only_if("std_floor", "norm_adv_by_std_in_grpo", bool, "true"),
    Rule(
        "algorithm.old_logp",
        lambda run: _as_sampled(run) and run.config.algorithm.rollout_correction.rollout_is is not None,
        "algorithm.rollout_correction.rollout_is weighs by the distance of pi_old from what was sampled, and here they "
        "are the same. Use one of the two.",
    ),
    Rule(
        "algorithm.old_logp",
        lambda run: _as_sampled(run) and (run.rollout.top_p < 1 or run.rollout.top_k > 0),
        "with actor_rollout_ref.rollout.top_p or top_k the sampled log-probs are normalized over the remaining tokens "
        "only, so every ratio would be wrong. Use auto or recompute.",
    ),
    Rule(
        "refine.include_draft",
        lambda run: run.settings.refine.include_draft and run.settings.objective.teacher == "feedback",
        lambda run: (
            f"objective {run.settings.objective.name} scores the draft itself, which a teacher that reads it in the "
            "prompt would only copy. Leave it false."
        ),
    ),
    Rule(
        f"{_ACTOR}.policy_loss.loss_mode",
        lambda run: (
            run.actor.policy_loss.loss_mode != "vanilla"
            and not any(part.loss == "clipped" for part in run.settings.objective.parts)
        ),
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
    *(_only_if_clipped(key) for key in ("clip_ratio_low", "clip_ratio_high", "clip_ratio_c")),
)


def _as_sampled(run: Any) -> bool:
    return bool(run.config.algorithm.old_logp == "rollout")


def _compares_logits(run: Any) -> bool:
    return any(part.loss == "distill_logits" for part in run.settings.objective.parts)
