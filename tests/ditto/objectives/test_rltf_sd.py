"""RLTF-SD and the losses without clipping, against their formulas: loss and every gradient, to 1e-6 relative.

Ours: the trainer's columns through the forward step and the loss of verl's FSDP engine (`our_step.ours`). Theirs: plain
loops over sequences and tokens in float64, written from the formulas alone. Old log-probs are far from the current
ones, so a ratio or a clip where there should be none would show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from verl.workers.config import PolicyLossConfig

from ditto.objectives.spec import Objective, Part
from tests.ditto.our_step import ours, settings_of, step_data
from tests.ditto.tiny_step import (
    EOS,
    SEQUENCES,
    Sequence_,
    _advantage,
    _aggregate,
    _token,
    log_probs,
    mini_batches,
    old_log_probs,
    perturbed,
    tiny_model,
)

TOLERANCE = 1e-6
Formula = Callable[[torch.nn.Module, Sequence[Sequence_], Sequence[Sequence[float]], str], Tensor]


def sampled(model: torch.nn.Module, row: Sequence_) -> list[Tensor]:
    """log pi of the tokens that the policy sampled."""
    return [value for value, mask in zip(log_probs(model, row), row.mask, strict=True) if mask]


def rltf_sd(
    model: torch.nn.Module, rows: Sequence[Sequence_], old: Sequence[Sequence[float]], loss_agg_mode: str
) -> Tensor:
    """L = L_grpo(drafts) - agg of (r'_i - mean_j r_j) log pi(y'_i | x)."""
    drafts = [i for i, s in enumerate(rows) if s.kind == "draft"]
    clipped = []
    for i in drafts:
        advantage = _advantage(rows[i], [rows[j] for j in drafts])
        tokens = zip(log_probs(model, rows[i]), old[i], rows[i].mask, strict=True)
        clipped.append([_token(new, before, advantage, None) for new, before, mask in tokens if mask])
    distilled = []
    for row in rows:
        if row.kind == "refined_base":
            rewards = {s.episode: s.reward for s in rows if s.kind == "draft" and s.prompt == row.prompt}
            advantage = row.reward - sum(rewards.values()) / len(rewards)
            distilled.append([advantage * value for value in sampled(model, row)])
    return -_aggregate(clipped, loss_agg_mode) - _aggregate(distilled, loss_agg_mode)


def distillation_alone(
    model: torch.nn.Module, rows: Sequence[Sequence_], _old: Sequence[Sequence[float]], loss_agg_mode: str
) -> Tensor:
    """-2.5 agg of (r'_i - mean_j r_j) log pi(y'_i | x): the drafts are counted and not trained."""
    terms = []
    for row in rows:
        if row.kind == "refined_base":
            rewards = {s.episode: s.reward for s in SEQUENCES if s.kind == "draft" and s.prompt == row.prompt}
            advantage = row.reward - sum(rewards.values()) / len(rewards)
            terms.append([advantage * value for value in sampled(model, row)])
    return -2.5 * _aggregate(terms, loss_agg_mode)


def reward_weighted(
    model: torch.nn.Module, rows: Sequence[Sequence_], _old: Sequence[Sequence[float]], loss_agg_mode: str
) -> Tensor:
    """-agg of r'_i log pi(y'_i | x, f_i) - 0.5 agg of log pi(y_i | x)."""
    weighted = [[row.reward * v for v in sampled(model, row)] for row in rows if row.kind == "refined_feedback"]
    likelihood = [sampled(model, row) for row in rows if row.kind == "draft"]
    return -_aggregate(weighted, loss_agg_mode) - 0.5 * _aggregate(likelihood, loss_agg_mode)


DISTILL = Part("distill", ("refined_base",), "first_turn_mean", "none", "plain", weight=2.5)
REWARD_WEIGHTED = (
    Part("weighted", ("refined_feedback",), baseline="none", scale="none", loss="plain"),
    Part("likelihood", ("draft",), baseline="none", scale="none", loss="nll", weight=0.5),
)
CASES: dict[str, tuple[str | Objective, tuple[str, ...], Formula]] = {
    "rltf_sd": ("rltf_sd", ("draft", "refined_base"), rltf_sd),
    "drafts untrained": (Objective("mine", (DISTILL,)), ("refined_base",), distillation_alone),
    "no baseline": (Objective("mine", REWARD_WEIGHTED), ("draft", "refined_feedback"), reward_weighted),
}


def step_of(kinds: tuple[str, ...]) -> tuple[list[Sequence_], list[list[float]]]:
    """The tiny step's sequences of these kinds, with old log-probs far from the current ones.

    A session that has none gets a placeholder, as from the agent loop: its draft's reward still counts.
    """
    rows = []
    for session in dict.fromkeys(s.session for s in SEQUENCES):
        of_session = [s for s in SEQUENCES if s.session == session]
        placeholder = Sequence_("none", of_session[0].prompt, session, session, 0.0, False, (EOS,), (EOS,), (0,))
        rows += [s for s in of_session if s.kind in kinds] or [placeholder]
    return rows, old_log_probs(tiny_model(), rows, perturbed)


@pytest.mark.parametrize(("ranks", "splits"), [(1, 1), (2, 3)])
@pytest.mark.parametrize("loss_agg_mode", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
@pytest.mark.parametrize("case", CASES)
def test_update_equals_the_formula(
    case: str, loss_agg_mode: str, ranks: int, splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective, kinds, formula = CASES[case]
    rows, old = step_of(kinds)
    step, data = step_data(rows, old, settings_of(objective), loss_agg_mode, ranks, monkeypatch)
    model, theirs = tiny_model(), tiny_model()
    for update, members in enumerate(mini_batches(rows)):
        loss, gradients = ours(model, step, data, loss_agg_mode, ranks=ranks, splits=splits, update=update)
        theirs.zero_grad()
        expected = formula(theirs, [rows[i] for i in members], [old[i] for i in members], loss_agg_mode)
        expected.backward()
        assert loss == pytest.approx(expected.item(), rel=TOLERANCE, abs=TOLERANCE)
        for name, parameter in theirs.named_parameters():
            assert parameter.grad is not None
            error = (gradients[name] - parameter.grad).norm() / parameter.grad.norm()
            assert error <= TOLERANCE, (name, error)


def test_a_control_with_the_ratio_left_in_is_far_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training the same part with clipping gives another gradient, so the comparison above can fail."""
    clipped = Part("distill", ("refined_base",), baseline="first_turn_mean", scale="none", weight=2.5)
    rows, old = step_of(("refined_base",))
    norms = []
    for part in (DISTILL, clipped):
        step, data = step_data(rows, old, settings_of(Objective("mine", (part,))), "token-mean", 1, monkeypatch)
        _, gradients = ours(tiny_model(), step, data, "token-mean", ranks=1, splits=1, update=0)
        norms.append(torch.cat([g.flatten() for g in gradients.values()]))
    assert (norms[0] - norms[1]).norm() > 0.1 * norms[0].norm()


@pytest.mark.parametrize("loss_mode", ["gspo", "dppo_tv", "cispo", "gpg", "dro"])
def test_plain_parts_are_the_same_under_every_policy_loss(loss_mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, old = step_of(("refined_base",))
    settings = settings_of(Objective("mine", (DISTILL,)))
    step, data = step_data(rows, old, settings, "token-mean", 1, monkeypatch)
    of_mode = []
    for mode in ("vanilla", loss_mode):
        policy_loss = {"policy_loss": PolicyLossConfig(loss_mode=mode, dro_beta=0.1)}
        loss, gradients = ours(tiny_model(), step, data, "token-mean", ranks=1, splits=1, update=0, **policy_loss)
        of_mode.append((loss, torch.cat([g.flatten() for g in gradients.values()])))
    assert of_mode[0][0] == of_mode[1][0] and torch.equal(of_mode[0][1], of_mode[1][1])
