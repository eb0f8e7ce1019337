"""RLTF-SD: policy gradient on both turns, and imitation of refined answers by how much they beat the average draft.

Paper: Song et al. 2026, "Expanding the Capabilities of Reinforcement Learning via Text Feedback",
https://arxiv.org/abs/2602.02482; constants and details as in the authors' code (Jiahao-Zhangg/rltf, commit e341647).

    R_i       = r_i + gamma r'_i                      r: draft, r': its refined answer; only r_i where there is none
    L_draft   = - rho_t (R_i - mean_j R_j)            rho: pi / pi_old in the sequence's own context, never clipped
    L_second  = - rho_t (r'_i - mean_j r'_j)          on (x, f, y')
    L_distill = - rho_t (r'_i - mean_j r_j)           on (x, y'), tokens with log pi_old >= rltf.min_log_prob alone
    L         = agg over all tokens of L_draft + L_second + rltf.weight * L_distill

Advantages are not divided by the spread, and the three terms are one average over all tokens, as theirs are one sum.
The baseline of the imitation is the mean of the drafts: with that of the refined answers every advantage would vanish
as soon as feedback makes all of them right, although the policy without feedback is still wrong.

Limits: A negative advantage lowers a refined answer's probability without a bound; the mask of improbable tokens is the
only safeguard. Advantages are in units of the reward, so rewards of another range need another learning rate. The
authors play a second turn only after a wrong first one: refine.when=failed. For mathematics they raise the weight from
0 to 0.1 during training; here it is constant. Their commit never passes `use_first_turn_baseline` on, so as released it
subtracts the mean of the second turn; here it is the first turn's, as in the paper and in their experiments' settings.
"""

from ditto.objectives.advantages import draft_mean, draft_return, group_mean
from ditto.objectives.losses import unclipped, unclipped_likely
from ditto.objectives.spec import Kind, Objective, Part

_ALL: tuple[Kind, ...] = ("draft", "refined_base", "refined_feedback")

OBJECTIVES = (
    Objective(
        "rltf_sd",
        (
            Part("draft", ("draft",), advantage=draft_return, loss=unclipped, average_over=_ALL),
            Part("second", ("refined_feedback",), advantage=group_mean, loss=unclipped, average_over=_ALL),
            Part(
                "distill",
                ("refined_base",),
                advantage=draft_mean,
                loss=unclipped_likely,
                average_over=_ALL,
                weight=lambda options: options.rltf.weight,
            ),
        ),
    ),
)
