"""On-policy (reverse) distillation: the policy samples, and experts score every token that it sampled.

Papers: Agarwal et al. 2024, "On-Policy Distillation of Language Models", https://arxiv.org/abs/2306.13649; Gu et al.
2024, "MiniLLM", https://arxiv.org/abs/2306.08543. The teacher pi_T of a row is a frozen checkpoint: the one that
`algorithm.distill.teachers` names for the row's task. Student and teacher read the same ids: the prompt, the student's
own turns, and what others said between them.

    on_policy_distillation          agg_t w_t sg[log pi(y_t) - log pi_T(y_t)] log pi(y_t)
    on_policy_distillation_logits   agg_t w_t D(pi(. | x, y_<t), pi_T(. | x, y_<t))
    w_t                             min(pi / pi_old, algorithm.distill.ratio_clip), detached

The first is the gradient of KL(pi || pi_T) at each token, estimated by the token that was sampled; a later token's
divergence is not charged to an earlier one. D is that of SDPO (`sdpo.py`) with `algorithm.distill.alpha` = 1, the
reverse KL, as default.

Limits: rewards are measured and not trained on, so the student cannot get better than its teachers. Where the student
never goes, they give no learning signal. Teachers need the student's tokenizer.
"""

from ditto.objectives.losses import distill_logits, distill_token
from ditto.objectives.spec import Objective, Part

_TOKEN, _LOGITS = (
    Part("distill", ("draft",), loss=loss, teacher="experts") for loss in (distill_token, distill_logits)
)

OBJECTIVES = (
    Objective("on_policy_distillation", (_TOKEN,)),
    Objective("on_policy_distillation_logits", (_LOGITS,)),
)
