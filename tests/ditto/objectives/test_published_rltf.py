"""RLTF-SD against numbers that its authors' code gave.

They are of `compute_advantages` and `assemble_training_data` of Jiahao-Zhangg/rltf (commit e341647, with tinker 0.38)
with the settings of `experiments/reasoning/knights_knaves_sd.py`: gamma 0.1, rl_coef 0.1, rl_reweight_mask, and
use_first_turn_baseline, which their trainer does not pass on. Its loss is the sum of -A pi / pi_old over all tokens.
"""

import pytest
import torch

import ditto

# session: rewards of draft and refined answer; "a2" was right at once, and has no second turn
SESSIONS = {"a0": (0.0, 1.0), "a1": (0.25, 0.5), "a2": (1.0, None), "b0": (0.5, 0.75), "b1": (0.5, 0.25)}
# kind, session, log pi_old in the context that is trained, the authors' advantage of each token
PUBLISHED = [
    ("draft", "a0", [-2.4908, -0.3783], [-0.36666667, -0.36666667]),
    ("refined_feedback", "a0", [-2.7224, -2.4598, -2.7603, -0.3499], [0.25, 0.25, 0.25, 0.25]),
    ("draft", "a1", [-1.8193, -1.6937, -0.2172], [-0.16666666, -0.16666666, -0.16666666]),
    ("refined_feedback", "a1", [-1.978, -2.145, -1.738, -2.9428], [-0.25, -0.25, -0.25, -0.25]),
    ("draft", "a2", [-0.7844, -0.1221, -2.3551, -2.9255], [0.5333333, 0.5333333, 0.5333333, 0.5333333]),
    ("draft", "b0", [-0.271, -1.582], [0.025, 0.025]),
    ("refined_feedback", "b0", [-2.0382, -0.7916, -1.1718, -0.4984], [0.25, 0.25, 0.25, 0.25]),
    ("draft", "b1", [-2.2296, -2.9091, -0.1826], [-0.025, -0.025, -0.025]),
    ("refined_feedback", "b1", [-1.3154, -2.9604, -1.7456, -1.077], [-0.25, -0.25, -0.25, -0.25]),
    ("refined_base", "a0", [-1.4795, -6.6413, -0.2994, -8.9477], [0.05833333, 0.0, 0.05833333, 0.0]),
    ("refined_base", "a1", [-5.8514, -0.5097, -8.281, -6.0279], [0.0, 0.00833333, 0.0, 0.0]),
    ("refined_base", "b0", [-2.3725, -0.3975, -4.3957, -7.1682], [0.025, 0.025, 0.025, 0.0]),
    ("refined_base", "b1", [-0.4473, -6.594, -7.9163, -8.1084], [-0.025, 0.0, 0.0, 0.0]),
]


@pytest.mark.parametrize("moved", [0.0, 0.4], ids=["first update", "later update"])
def test_every_token_weighs_what_it_weighs_in_the_authors_code(moved: float) -> None:
    sequences = [ditto.Sequence(kind, session[0], session, *SESSIONS[session]) for kind, session, _, _ in PUBLISHED]
    pad = [[0.0] * (4 - len(old)) for _, _, old, _ in PUBLISHED]
    old, theirs = (
        torch.tensor([row[column] + zeros for row, zeros in zip(PUBLISHED, pad, strict=True)], dtype=torch.float64)
        for column in (2, 3)
    )
    mask, new = old != 0, (old + moved).requires_grad_()

    loss, metrics = ditto.loss("rltf_sd", sequences, new, mask, old_log_probs=old)
    loss.backward()

    # The gradient of -A pi / pi_old by log pi; ours is their sum divided by the number of tokens.
    expected = -theirs * torch.exp(torch.tensor(moved, dtype=torch.float64))
    torch.testing.assert_close(new.grad * mask.sum(), expected, rtol=1e-6, atol=1e-7)
    assert metrics["distill/masked"] == pytest.approx(9 / 16)
