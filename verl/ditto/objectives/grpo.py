"""GRPO: the drafts of a prompt against each other; no feedback is asked for and no refined episode is played.

Paper: Shao et al. 2024, DeepSeekMath, https://arxiv.org/abs/2402.03300, section 4.1 (outcome supervision).

    A_i   = (r_i - mean_j r_j) / (std_j r_j + 1e-6)          over the drafts of the prompt
    rho_t = pi(y_t | x, y_<t) / pi_old(y_t | x, y_<t)
    L     = - agg_t min(rho_t A_i, clip(rho_t, 1 - low, 1 + high) A_i)

agg is `actor.loss_agg_mode`. The paper's KL term is `actor.use_kl_loss`, off by default.

Limits: a prompt whose drafts all have the same reward has no learning signal; one session per prompt never has.
"""

from ditto.objectives.spec import Objective, Part

OBJECTIVES = (Objective("grpo", (Part("joint", ("draft",)),)),)
