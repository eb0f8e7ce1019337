"""Every objective against its formula: loss and every gradient of a whole update, to 1e-6 relative.

Ours: the trainer's columns through the forward step of verl's FSDP engine and our loss (`our_step.ours`). Theirs: plain
loops over sequences and tokens in float64, written from the formulas alone. Old log-probs are far from the current
ones, so a ratio or a clip where there should be none would show. `tiny_step.SEQUENCES` holds what can happen in a step;
test_update.py has the equations of grpo and ditto, and verl's worker with FSDP2.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from ditto.objectives.advantages import draft_mean, one, reward
from ditto.objectives.loss_weights import LOSS_AGG_MODES
from ditto.objectives.losses import plain
from ditto.objectives.spec import Objective, Part
from tests.ditto.our_step import assert_same_update, ours, settings_of, step_data
from tests.ditto.tiny_step import (
    EOS,
    SEQUENCES,
    Sequence_,
    _aggregate,
    _token,
    equations,
    log_probs,
    mini_batches,
    old_log_probs,
    perturbed,
    tiny_model,
)

pytestmark = pytest.mark.smoke

TOLERANCE = 1e-6
Rows = Sequence[Sequence_]
Old = Sequence[Sequence[float]]
Formula = Callable[[torch.nn.Module, Rows, Old, str], Tensor]
REFINED = {s.session: s.reward for s in SEQUENCES if s.kind == "refined_base"}
DRAFTS = {s.session: s.reward for s in SEQUENCES if s.kind == "draft"}


# ---- theirs -----------------------------------------------------------------------------------------------------


def sampled(model: torch.nn.Module, row: Sequence_) -> list[Tensor]:
    """log pi of the tokens that the policy sampled."""
    return [value for value, mask in zip(log_probs(model, row), row.mask, strict=True) if mask]


def clipped(model: torch.nn.Module, row: Sequence_, old: Sequence[float], advantage: float) -> list[Tensor]:
    """min(rho A, clip(rho) A) of the sampled tokens."""
    tokens = zip(log_probs(model, row), old, row.mask, strict=True)
    return [_token(new, before, advantage, None) for new, before, mask in tokens if mask]


def rewards_of(prompt: str, drafts: bool = True, refined: bool = True) -> list[float]:
    """The rewards of a prompt's episodes."""
    tables = [DRAFTS] * drafts + [REFINED] * refined
    return [reward for table in tables for session, reward in table.items() if session.startswith(f"{prompt}_")]


def normed(reward: float, rewards: Sequence[float], floor: float = 0.0, *, by_std: bool = True) -> float:
    """(r - mean) / (std + 1e-6), or r - mean; 0 without spread."""
    if len(rewards) < 2 or len(set(rewards)) == 1:
        return 0.0
    mean = sum(rewards) / len(rewards)
    std = math.sqrt(sum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))
    return (reward - mean) / (max(std, floor) + 1e-6 if by_std else 1.0)


def drafts_by_grpo(model: torch.nn.Module, rows: Rows, old: Old, mode: str, floor: float = 0.0) -> Tensor:
    terms = [
        clipped(model, row, old[i], normed(row.reward, rewards_of(row.prompt, refined=False), floor))
        for i, row in enumerate(rows)
        if row.kind == "draft"
    ]
    return -_aggregate(terms, mode)


def rltf_sd(
    model: torch.nn.Module, rows: Rows, old: Old, mode: str, *, weight: float, gamma: float, least: float
) -> Tensor:
    """One average over all: rho A in every context, A by its kind; improbable tokens of (x, y') have no advantage."""
    terms = []
    for i, row in enumerate(rows):
        if row.kind == "none":
            continue
        sessions = [s for s in DRAFTS if s.startswith(f"{row.prompt}_")]
        returns = {s: DRAFTS[s] + gamma * REFINED.get(s, 0.0) for s in sessions}
        second = rewards_of(row.prompt, drafts=False)
        advantage = {
            "draft": lambda row, r=returns: r[row.session] - sum(r.values()) / len(r),
            "refined_feedback": lambda row, r=second: row.reward - sum(r) / len(r),
            "refined_base": lambda row, s=sessions: weight * (row.reward - sum(DRAFTS[x] for x in s) / len(s)),
        }[row.kind](row)
        tokens = zip(log_probs(model, row), old[i], row.mask, strict=True)
        terms.append(
            [
                (new - before).exp() * advantage * (row.kind != "refined_base" or before >= least)
                for new, before, mask in tokens
                if mask
            ]
        )
    return -_aggregate(terms, mode)


def distillation_alone(model: torch.nn.Module, rows: Rows, _old: Old, mode: str) -> Tensor:
    """-2.5 agg of (r'_i - mean_j r_j) log pi(y'_i | x): the drafts are counted and not trained."""
    terms = []
    for row in rows:
        if row.kind == "refined_base":
            rewards = rewards_of(row.prompt, refined=False)
            advantage = row.reward - sum(rewards) / len(rewards)
            terms.append([advantage * value for value in sampled(model, row)])
    return -2.5 * _aggregate(terms, mode)


def reward_weighted(model: torch.nn.Module, rows: Rows, _old: Old, mode: str) -> Tensor:
    """-agg of r'_i log pi(y'_i | x, f_i) - 0.5 agg of log pi(y_i | x)."""
    weighted = [[row.reward * v for v in sampled(model, row)] for row in rows if row.kind == "refined_feedback"]
    likelihood = [sampled(model, row) for row in rows if row.kind == "draft"]
    return -_aggregate(weighted, mode) - 0.5 * _aggregate(likelihood, mode)


def joint(model: torch.nn.Module, rows: Rows, old: Old, mode: str, *, by_std: bool = True) -> Tensor:
    """Drafts and refined answers in one group, both trained in the base context."""
    terms = [
        clipped(model, row, old[i], normed(row.reward, rewards_of(row.prompt), by_std=by_std))
        for i, row in enumerate(rows)
        if row.kind in ("draft", "refined_base")
    ]
    return -_aggregate(terms, mode)


def refined_only(model: torch.nn.Module, rows: Rows, old: Old, mode: str) -> Tensor:
    """The same group; refined answers alone are trained."""
    terms = [
        clipped(model, row, old[i], normed(row.reward, rewards_of(row.prompt)))
        for i, row in enumerate(rows)
        if row.kind == "refined_base"
    ]
    return -_aggregate(terms, mode)


def ditto(model: torch.nn.Module, rows: Rows, old: Old, mode: str, *, feedback_coef: float = 1.0) -> Tensor:
    """The joint and the feedback group of the paper."""
    return equations(model, rows, old, objective="ditto", feedback_coef=feedback_coef, loss_agg_mode=mode)


def erl(accepted: Callable[[Sequence_], float]) -> Formula:
    """GRPO on drafts and on (x, f, y'), and -agg of a_i log pi(y'_i | x)."""

    def formula(model: torch.nn.Module, rows: Rows, old: Old, mode: str) -> Tensor:
        feedback = [
            clipped(model, row, old[i], normed(row.reward, rewards_of(row.prompt, drafts=False)))
            for i, row in enumerate(rows)
            if row.kind == "refined_feedback"
        ]
        imitated = [[accepted(row) * v for v in sampled(model, row)] for row in rows if row.kind == "refined_base"]
        return drafts_by_grpo(model, rows, old, mode) - _aggregate(feedback, mode) - _aggregate(imitated, mode)

    return formula


def critique_grpo(model: torch.nn.Module, rows: Rows, old: Old, mode: str, *, gamma: float = 0.1) -> Tensor:
    """One average over drafts and the best refined answer of each prompt; p / (p + gamma) in place of its ratio."""
    terms = []
    for i, row in enumerate(rows):
        refined = {s: r for s, r in REFINED.items() if s.startswith(f"{row.prompt}_")}
        best = [max(refined, key=lambda s: (refined[s], [-ord(c) for c in s]))] if refined else []
        group = rewards_of(row.prompt, refined=False) + [refined[s] for s in best]
        advantage = row.reward - sum(group) / len(group) if len(set(group)) > 1 else 0.0
        if row.kind == "draft":
            terms.append(clipped(model, row, old[i], advantage))
        elif row.kind == "refined_base" and row.session in best:
            p = [value.exp() for value in sampled(model, row)]
            terms.append([advantage * value / (value + gamma) for value in p])
    return -_aggregate(terms, mode)


# ---- the comparison ----------------------------------------------------------------------------------------------

DISTILL = Part("distill", ("refined_base",), advantage=draft_mean, loss=plain, weight=2.5)
REWARD_WEIGHTED = (
    Part("weighted", ("refined_feedback",), advantage=reward, loss=plain),
    Part("likelihood", ("draft",), advantage=one, loss=plain, weight=0.5),
)
RLTF = {"weight": 0.3, "gamma": 0.4, "min_log_prob": -3.0}
ALL = ("draft", "refined_base", "refined_feedback")
CASES: dict[str, tuple[str | Objective, dict[str, Any], tuple[str, ...], Formula]] = {
    "grpo": ("grpo", {}, ("draft",), drafts_by_grpo),
    "ditto": ("ditto", {"feedback_coef": 0.5}, ALL, partial(ditto, feedback_coef=0.5)),
    "grpo with a floor": (
        "grpo",
        {"std_floor": 0.3},
        ("draft",),
        lambda *arguments: drafts_by_grpo(*arguments, floor=0.3),
    ),
    "rltf_sd": ("rltf_sd", {"rltf": RLTF}, ALL, partial(rltf_sd, weight=0.3, gamma=0.4, least=-3.0)),
    "drafts untrained": (Objective("mine", (DISTILL,)), {}, ("refined_base",), distillation_alone),
    "no baseline": (Objective("mine", REWARD_WEIGHTED), {}, ("draft", "refined_feedback"), reward_weighted),
    "no feedback loss": ("ditto_no_feedback_loss", {}, ALL[:2], joint),
    "not divided by the spread": (
        "ditto_no_feedback_loss",
        {"norm_adv_by_std_in_grpo": False},
        ALL[:2],
        partial(joint, by_std=False),
    ),
    "refined only": ("ditto_refined_only", {}, ("refined_base",), refined_only),
    "erl": ("erl", {}, ALL, erl(lambda row: float(row.reward > DRAFTS[row.session]))),
    "critique_grpo": ("critique_grpo", {}, ALL[:2], critique_grpo),
    "critique_grpo, gamma": ("critique_grpo", {"shaping_gamma": 0.4}, ALL[:2], partial(critique_grpo, gamma=0.4)),
}


def rows_of(kinds: tuple[str, ...]) -> list[Sequence_]:
    """The tiny step's sequences of these kinds.

    A session that has none gets a placeholder, as from the agent loop: its draft's reward still counts.
    """
    rows = []
    for session in dict.fromkeys(s.session for s in SEQUENCES):
        of_session = [s for s in SEQUENCES if s.session == session]
        placeholder = Sequence_("none", of_session[0].prompt, session, session, 0.0, False, (EOS,), (EOS,), (0,))
        rows += [s for s in of_session if s.kind in kinds] or [placeholder]
    return rows


def step_of(kinds: tuple[str, ...]) -> tuple[list[Sequence_], list[list[float]]]:
    """The tiny step's sequences of these kinds, with old log-probs far from the current ones."""
    rows = rows_of(kinds)
    return rows, old_log_probs(tiny_model(), rows, perturbed)


# A part is averaged in the same way whatever its loss is, so two objectives with several parts try every average.
AVERAGED = [(case, "token-mean", 2, 3) for case in CASES] + [("ditto", "token-mean", 1, 1)]
AVERAGED += [(case, mode, 2, 3) for case in ("ditto", "rltf_sd") for mode in LOSS_AGG_MODES if mode != "token-mean"]


@pytest.mark.parametrize(("case", "mode", "ranks", "splits"), AVERAGED)
def test_update_equals_the_formula(
    case: str, mode: str, ranks: int, splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    objective, options, kinds, formula = CASES[case]
    rows, old = step_of(kinds)
    settings = settings_of(objective, **options)
    step, data = step_data(rows, old, settings, mode, ranks, monkeypatch)
    model, theirs = tiny_model(), tiny_model()
    for update, members in enumerate(mini_batches(rows)):
        loss, gradients = ours(model, step, data, mode, settings, ranks=ranks, splits=splits, update=update)
        theirs.zero_grad()
        expected = formula(theirs, [rows[i] for i in members], [old[i] for i in members], mode)
        assert_same_update(loss, gradients, expected, theirs, TOLERANCE)


@pytest.mark.parametrize(("objective", "kinds"), [("grpo", ("draft",)), ("erl", ALL), ("critique_grpo", ALL[:2])])
def test_skipping_idle_rows_changes_no_update(
    objective: str, kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompt c has no spread, one session failed: their rows cost no forward pass, and the gradient is the same."""
    rows, old = step_of(kinds)
    settings = settings_of(objective)
    updates, sizes = [], []
    for skip in (False, True):
        step, data = step_data(rows, old, settings, "token-mean", 1, monkeypatch, skip_idle=skip)
        sizes.append(sum(record.kind != "padding" for record in step.records))
        of_step = [
            ours(tiny_model(), step, data, "token-mean", settings, ranks=1, splits=2, update=update)
            for update in range(2)
        ]
        updates.append([(loss, torch.cat([g.flatten() for g in gradients.values()])) for loss, gradients in of_step])
    assert sizes[1] <= sizes[0] - 3
    for (loss, gradient), (other_loss, other) in zip(*updates, strict=True):
        assert other_loss == pytest.approx(loss, rel=1e-9, abs=1e-12)
        assert (other - gradient).norm() <= 1e-9 * gradient.norm()


def test_the_order_of_rows_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions arrive in any order; the update is the same."""
    rows, old = step_of(ALL)
    settings = settings_of("erl")
    updates = []
    for seed in (None, 1, 2):
        order = list(range(len(rows)))
        if seed is not None:
            # Prompts keep their order, which the trainer sorts by itself (`StepBatch.sort`).
            random.Random(seed).shuffle(order)
            order.sort(key=lambda i: rows[i].prompt)
        step, data = step_data(
            [rows[i] for i in order], [old[i] for i in order], settings, "token-mean", 1, monkeypatch
        )
        loss, gradients = ours(tiny_model(), step, data, "token-mean", settings, ranks=1, splits=2, update=0)
        updates.append((loss, torch.cat([g.flatten() for g in gradients.values()])))
    for loss, gradient in updates[1:]:
        assert loss == pytest.approx(updates[0][0], rel=1e-9)
        assert (gradient - updates[0][1]).norm() <= 1e-9 * gradient.norm()
