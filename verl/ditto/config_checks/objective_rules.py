"""Rules for the options of objectives: none is accepted and ignored, and none contradicts another."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from ditto.config_checks.rules import Problem
from ditto.objectives import AGENT_VERSIONS, OBJECTIVES
from ditto.objectives.options import ObjectiveOptions

if TYPE_CHECKING:
    from ditto.config_checks.rl_rules import RLRun

_ACTOR, _MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.model"
_LOSS_MODE = f"{_ACTOR}.policy_loss.loss_mode"
_SAMPLED = ("rollout", "token", "sequence")  # values that take log-probs from the rollout engine
OPTIONS = sorted({option for objective in OBJECTIVES.values() for option in objective.options})


def objective_rules(run: RLRun) -> Iterator[Problem]:
    """Rules for the objective and its options."""
    yield from _option_rules(run)
    yield from _old_logp_rules(run)
    objective, algorithm = run.settings.objective, run.config.algorithm
    # grpo and ditto stand in the config files, so beside agent_version they need not be the user's words.
    if algorithm.agent_version is not None and algorithm.objective not in AGENT_VERSIONS.values():
        yield Problem(
            "algorithm.agent_version",
            f"would train {objective.name} in place of algorithm.objective={algorithm.objective}. Remove one of the "
            "two.",
        )
    if objective.teacher == "experts" and not run.settings.expert_teachers:
        yield Problem(
            "algorithm.distill.teachers",
            f"objective {objective.name} needs checkpoints that score what the policy samples: "
            "algorithm.distill.teachers.TASK=CHECKPOINT for each task, or for all of them "
            "algorithm.distill.teachers.default=CHECKPOINT.",
        )
    # Objectives without feedback accept `refine.*` too: recipe/ditto/ablations.sh sets it for all that it trains.
    if run.settings.refine.include_draft and objective.teacher == "feedback":
        yield Problem(
            "refine.include_draft",
            f"objective {objective.name} scores the draft itself, which a teacher that reads it in the prompt would "
            "only copy. Leave it false.",
        )
    if not objective.clips:
        options = ("policy_loss.loss_mode", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c")
        for key in (f"{_ACTOR}.{option}" for option in options):
            if run.changed(key):
                yield Problem(key, f"objective {objective.name} has no clipped part. Remove it.")
    if objective.compares_logits:
        kernels = run.model.fused_kernel_options or {}
        if not run.model.use_fused_kernels or kernels.get("impl_backend") != "chunked":
            yield Problem(
                f"{_MODEL}.use_fused_kernels",
                f"objective {objective.name} compares distributions in the chunked head. Use use_fused_kernels=true "
                "with fused_kernel_options.impl_backend=chunked, or the objective's token form.",
            )
        if not run.model.use_remove_padding:
            yield Problem(
                f"{_MODEL}.use_remove_padding",
                f"objective {objective.name} compares tokens by their place in a packed batch: use true, or the "
                "objective's token form.",
            )


def _option_rules(run: RLRun) -> Iterator[Problem]:
    """An option has its default unless the objective reads it."""
    defaults = ObjectiveOptions()
    for option in OPTIONS:
        usual = attrgetter(option)(defaults)
        if option not in run.settings.objective.options and attrgetter(option)(run.settings.options) != usual:
            readers_of = ", ".join(name for name, objective in OBJECTIVES.items() if option in objective.options)
            yield Problem(
                f"algorithm.{option}",
                f"objective {run.settings.objective.name} does not read this option; {readers_of} do. Leave it at its "
                f"default, {usual}, or choose another algorithm.objective.",
            )


def _old_logp_rules(run: RLRun) -> Iterator[Problem]:
    """Nothing is divided by log-probs that say something else than the policy's."""
    options, weights = run.settings.options, run.config.algorithm.rollout_correction.rollout_is
    as_sampled = options.old_logp == "rollout"
    if as_sampled and weights is not None:
        yield Problem(
            "algorithm.old_logp",
            "algorithm.rollout_correction.rollout_is weighs by the distance of pi_old from what was sampled, and here "
            "they are the same. Use one of the two.",
        )
    if run.rollout.top_p < 1 or run.rollout.top_k > 0:
        for option, value, instead in (
            ("old_logp", options.old_logp, "auto or recompute"),
            ("rollout_correction.rollout_is", weights, "null"),
        ):
            if value in _SAMPLED:
                yield Problem(
                    f"algorithm.{option}",
                    "with actor_rollout_ref.rollout.top_p or top_k the sampled log-probs are normalized over the "
                    f"remaining tokens only, so every ratio to them would be wrong. Use {instead}.",
                )
