"""ERL: GRPO on drafts and on refined answers, and supervised imitation of the refined answers that did well.

Paper: "Experiential Reinforcement Learning" 2026, https://arxiv.org/abs/2602.13949.

    L = L_grpo((x, y_i)) + feedback_coef * L_grpo((x, f_i, y'_i)) - agg_t a_i log pi(y'_t | x, y'_<t)

The last term is likelihood, not policy gradient: no ratio, no clipping, no negative weight. a_i is 1 if the answer beat
its own draft (r'_i > r_i), else 0. The paper's rewards are 0 or 1, and it imitates in proportion to them; rewards of
human simulators are graded. Rejected answers weigh 0 and count in the average, as in the authors' script, so few
acceptances mean small steps.

Limits: In ERL the policy writes the reflection itself and is rewarded for it; here the judge's critique takes its
place, and no memory of reflections is kept. Imitation has no negative examples, so a wrong answer is never pushed down
by it.
"""

from ditto.objectives.advantages import accepted
from ditto.objectives.losses import plain
from ditto.objectives.spec import Objective, Part

OBJECTIVES = (
    Objective(
        "erl",
        (
            Part("draft", ("draft",)),
            Part("feedback", ("refined_feedback",), weight=lambda options: options.feedback_coef),
            Part("imitation", ("refined_base",), advantage=accepted, loss=plain),
        ),
    ),
)
