"""What an update adds to the objectives: KL, entropy, failed sessions, correction; against the equations, to 1e-6.

Ours: `our_step.ours`, the trainer's columns through the forward step of verl's FSDP engine and our loss. Theirs:
`tiny_step.equations`, written from the equations alone, in float64. test_worker_runs.py takes real steps of verl's
TrainingWorker with FSDP2 in float32.
"""

import math

import pytest
import torch

from ditto.objectives.losses import DISTILL_WEIGHTS, LOSS_WEIGHTS
from tests.ditto import tiny_step
from tests.ditto.our_step import assert_same_update, nested, ours, settings_of, step_data
from tests.ditto.tiny_step import (
    ENTROPY_COEF,
    KL_COEF,
    SEQUENCES,
    Counts,
    equations,
    mini_batches,
    old_log_probs,
    perturbed,
    sequences,
    tiny_model,
)

TOLERANCE = 1e-6


def test_the_clips_of_the_comparison_are_active() -> None:
    rows, counts = sequences("ditto"), Counts()
    old = old_log_probs(tiny_model(), rows, perturbed)
    equations(tiny_model(), rows, old, objective="ditto", feedback_coef=1.0, loss_agg_mode="token-mean", counts=counts)
    assert counts.low > 0 and counts.high > 0 and counts.dual > 0


@pytest.mark.parametrize(
    ("loss_agg_mode", "ranks", "splits"),
    [("token-mean", 1, 1), ("seq-mean-token-mean", 2, 3), ("seq-mean-token-sum", 2, 3)],
)
def test_kl_and_entropy_terms_are_means_over_the_sequences_that_count(
    loss_agg_mode: str, ranks: int, splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding and failed sessions are rows of the mini-batch too, and verl alone would divide by them."""
    rows = sequences("ditto")
    old = old_log_probs(tiny_model(), rows, perturbed)
    settings = settings_of("ditto", 0.5)
    step, data = step_data(rows, old, settings, loss_agg_mode, ranks, monkeypatch)
    assert step.layout is not None
    data["ref_log_prob"] = nested([row - 0.25 for row in data["old_log_probs"].unbind()])
    terms = {"use_kl_loss": True, "kl_loss_type": "k1", "kl_loss_coef": KL_COEF, "entropy_coeff": ENTROPY_COEF}
    model, theirs = tiny_model(), tiny_model()
    for update, members in enumerate(mini_batches(rows)):
        loss, gradients = ours(
            model, step, data, loss_agg_mode, settings, ranks=ranks, splits=splits, update=update, **terms
        )
        theirs.zero_grad()
        expected_loss = equations(
            theirs,
            [rows[i] for i in members],
            [old[i] for i in members],
            objective="ditto",
            feedback_coef=0.5,
            loss_agg_mode=loss_agg_mode,
            reference=lambda i, t, members=members: old[members[i]][t] - 0.25,
        )
        assert sum(rows[i].valid for i in members) < step.layout.rows
        assert_same_update(loss, gradients, expected_loss, theirs, TOLERANCE)


@pytest.mark.parametrize("loss_agg_mode", ["token-mean", "seq-mean-token-mean"])
def test_mini_batch_whose_sessions_all_failed_has_a_finite_loss(
    loss_agg_mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts a and b are fine; every session of c and d lost its judge. Their update must not be NaN."""
    rows = [s for s in SEQUENCES if s.prompt in "ab"]
    rows += [
        tiny_step.Sequence_("none", p, f"{p}_0", f"{p}_0", 0.0, False, (tiny_step.EOS,), (tiny_step.EOS,), (0,))
        for p in "cd"
    ]
    old = old_log_probs(tiny_model(), rows, None)
    settings = settings_of("ditto", 1.0)
    step, data = step_data(rows, old, settings, loss_agg_mode, 1, monkeypatch)
    loss, gradients = ours(
        tiny_model(), step, data, loss_agg_mode, settings, ranks=1, splits=1, update=1, entropy_coeff=ENTROPY_COEF
    )
    assert loss == 0.0
    assert all(torch.equal(g, torch.zeros_like(g)) for g in gradients.values())


@pytest.mark.parametrize(
    ("objective", "column"),
    [("ditto", LOSS_WEIGHTS), ("sdpo_token_grpo", LOSS_WEIGHTS), ("sdpo_token_grpo", DISTILL_WEIGHTS)],
)
def test_rollout_correction_is_one_for_refined_sequences_in_the_base_context(
    objective: str, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their rollout log-probs belong to another context; the others get verl's truncated importance weights."""
    rows = sequences(objective)
    old = old_log_probs(tiny_model(), rows, None)
    settings, taught = settings_of(objective, 0.5), [(7, 5)] * len(rows)
    step, plain = step_data(rows, old, settings, "token-mean", 1, monkeypatch, teacher_prompts=taught)
    assert plain[column].values().any()
    correction = {"rollout_correction": {"rollout_is": "token", "rollout_is_threshold": 2.0}}
    for shift, factor in ((0.3, math.exp(0.3)), (1.0, 2.0)):  # the second is above the threshold
        _, corrected = step_data(
            rows,
            old,
            settings,
            "token-mean",
            1,
            monkeypatch,
            algorithm=correction,
            rollout_shift=shift,
            teacher_prompts=taught,
        )
        for record, before, after in zip(step.records, plain[column].unbind(), corrected[column].unbind(), strict=True):
            expected_weights = before * (1.0 if record.kind == "refined_base" else factor)
            torch.testing.assert_close(after.double(), expected_weights.double(), rtol=1e-6, atol=0)


def test_a_step_in_which_every_session_failed_passes_with_rollout_correction(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = [s for s in sequences("ditto") if not s.valid]
    old = [[0.0] * len(s.response_ids) for s in failed]
    correction = {"rollout_correction": {"rollout_is": "token", "rollout_is_threshold": 2.0}}
    settings = settings_of("ditto", 1.0)
    _, data = step_data(failed, old, settings, "token-mean", 1, monkeypatch, algorithm=correction)
    assert not data[LOSS_WEIGHTS].values().any()
