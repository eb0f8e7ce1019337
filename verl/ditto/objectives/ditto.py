"""DITTO: learn from drafts and refined answers in one group, and from the feedback context in a group of its own.

Paper: DITTO, equations 5 to 10. With y_i a draft and y'_i its refined answer:

    A_i  = (r_i - mean_G) / (std_G + 1e-6)     G = all drafts and refined answers of the prompt (up to 2N rewards)
    A'_i = (r'_i - mean_F) / (std_F + 1e-6)    F = the refined answers alone
    L    = L_joint(A; (x, y_i) and (x, y'_i)) + feedback_coef * L_feedback(A'; (x, f_i, y'_i))

Both terms are clipped as in GRPO. The joint term trains y' without the feedback in the prompt (the distillation); the
feedback term trains the policy to use feedback.

Two ablations of the paper leave parts out:
    ditto_no_feedback_loss   the joint term alone: the policy is never trained to use feedback
    ditto_refined_only       (x, y'_i) alone, in the group G: drafts count in mean and spread, and are not trained

Limits: y' was sampled under (x, f), but its pi_old in the joint term is computed under x. Ratios then start at 1: low
variance at the price of a bias. A session gives three sequences, so an update costs about three times that of GRPO.
"""

from ditto.objectives.spec import Objective, Part

_JOINT = Part("joint", ("draft", "refined_base"))
_FEEDBACK = Part("feedback", ("refined_feedback",), weight=lambda options: options.feedback_coef)

OBJECTIVES = (
    Objective("ditto", (_JOINT, _FEEDBACK)),
    Objective("ditto_no_feedback_loss", (_JOINT,)),
    Objective("ditto_refined_only", (Part("refined", ("refined_base",), group=("draft", "refined_base")),)),
)
