"""SDPO: the policy without feedback imitates the policy with feedback on its own drafts.

Paper: "Reinforcement Learning via Self-Distillation" 2026, https://arxiv.org/abs/2601.20802. The teacher pi_T is the
policy itself in the feedback context (x, f, y); it scores the tokens of the draft y that the student sampled under x.

    sdpo_token    agg_t w_t sg[log pi(y_t | x) - log pi_T(y_t | x, f)] log pi(y_t | x)
    sdpo_logits   agg_t w_t D(pi(. | x, y_<t), pi_T(. | x, f, y_<t))
    sdpo_*_grpo   (1 - sdpo.weight) L_grpo + sdpo.weight L_sdpo
    w_t           min(pi / pi_old, algorithm.sdpo.ratio_clip), detached

D (`algorithm.sdpo.alpha`): 0 is the forward KL(pi_T || pi), 1 the reverse KL(pi || pi_T), and between them the
generalised Jensen-Shannon divergence with mixture m = (1 - alpha) pi + alpha pi_T. It runs over the student's `top_k`
tokens; `tail` adds one bucket with the rest of both distributions, otherwise both are normalised over the top k.

`algorithm.sdpo.teacher` names the teacher's weights: live (those being trained), ema (after each update they move by
`teacher_rate` towards the live ones), base (those the run started with). It is a copy of the trained parameters alone,
so with LoRA no second model is loaded.

Limits: Drafts without feedback have no learning signal. Only a critique reaches the teacher, never another answer:
rewards of human simulators are graded, so there is no success threshold to pick a demonstration by. The pure forms
never see the reward, and are reported to be unstable; watch ditto/response_tokens_draft and actor/entropy.
"""

from ditto.objectives.losses import distill_logits, distill_token
from ditto.objectives.spec import Objective, Part

_REWARD = Part("reward", ("draft",), weight=lambda options: 1 - options.sdpo.weight)
_TOKEN, _LOGITS = (Part("distill", ("draft",), loss=loss) for loss in (distill_token, distill_logits))
_SHARE_OF_TOKEN, _SHARE_OF_LOGITS = (
    Part("distill", ("draft",), loss=loss, weight=lambda options: options.sdpo.weight)
    for loss in (distill_token, distill_logits)
)

OBJECTIVES = (
    Objective("sdpo_token", (_TOKEN,)),
    Objective("sdpo_logits", (_LOGITS,)),
    Objective("sdpo_token_grpo", (_REWARD, _SHARE_OF_TOKEN)),
    Objective("sdpo_logits_grpo", (_REWARD, _SHARE_OF_LOGITS)),
)
