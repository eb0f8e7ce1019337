"""Critique-GRPO: the drafts and the best refined answer of a prompt in one group; improbable refined tokens count more.

Paper: Zhang et al. 2025, "Critique-GRPO", https://arxiv.org/abs/2506.03106, version 6.

    A_i     = r_i - mean_G                    G = the drafts and the best refined answer; no division by the spread
    drafts    - min(rho_t A_i, clip(rho_t) A_i)
    refined   - A_i p_t / (p_t + gamma)       p_t = pi(y'_t | x, y'_<t), gamma = algorithm.shaping_gamma = 0.1
    L       = one average over both

The shaping takes the place of a ratio to the policy under feedback (pi_old counts as 1). Its gradient is largest for
tokens with a probability near gamma, which a plain policy gradient hardly moves.

Limits: One refined answer a prompt is trained; the others cost a rollout and a verdict and are only compared. The
authors' script leaves out the clipping of drafts; here it stays, because the prompts of a step are split over several
updates. To leave it out, set actor.clip_ratio_low and clip_ratio_high far from 0.
"""

from ditto.objectives.advantages import group_mean
from ditto.objectives.losses import shaped
from ditto.objectives.spec import Kind, Objective, Part

_BOTH: tuple[Kind, ...] = ("draft", "refined_base")

OBJECTIVES = (
    Objective(
        "critique_grpo",
        (
            Part("draft", ("draft",), advantage=group_mean, group=_BOTH, average_over=_BOTH),
            Part("refined", ("refined_base",), advantage=group_mean, group=_BOTH, average_over=_BOTH, loss=shaped),
        ),
        refined="best",
    ),
)
