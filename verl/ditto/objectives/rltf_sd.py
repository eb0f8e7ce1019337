"""RLTF-SD: imitate refined answers by how much they beat the average draft, beside GRPO on the drafts.

Paper: Song et al. 2026, "Expanding the Capabilities of Reinforcement Learning via Text Feedback",
https://arxiv.org/abs/2602.02482, RLTF-SD without importance weights and with the first-turn baseline.

    A'_i      = r'_i - mean_j r_j                           r': refined answer, r_j: the N drafts of the prompt
    L_distill = - agg_t A'_i log pi(y'_t | x, y'_<t)        neither a ratio nor clipping nor a division by the spread
    L         = L_grpo(drafts) + L_distill

The baseline is the mean of the drafts. With the mean of the refined answers every A' would vanish as soon as feedback
makes all of them right, although the policy without feedback is still wrong.

Limits: A negative A' pushes a refined answer's probability down without a bound, as the loss has no clipping. A' is in
units of the reward, so rewards of another range need another learning rate. The paper adds a multi-turn term that
trains (x, f, y') too; here the second term is GRPO on the drafts alone.
"""

from ditto.objectives.advantages import draft_mean
from ditto.objectives.losses import plain
from ditto.objectives.spec import Objective, Part

OBJECTIVES = (
    Objective(
        "rltf_sd",
        (
            Part("draft", ("draft",)),
            Part("distill", ("refined_base",), advantage=draft_mean, loss=plain),
        ),
    ),
)
