"""One whole DITTO update against the equations: loss and every gradient, to 1e-6 relative.

Ours: `our_step.ours`, the trainer's columns through the forward step and the loss of verl's FSDP engine. Theirs:
`tiny_step.equations`, written from the equations alone, in float64. A last test takes a real step of verl's
TrainingWorker with FSDP2 in float32.
"""

import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.ditto import one_update, tiny_step
from tests.ditto.our_step import ACTOR, nested, ours, settings_of, step_data
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
CHANGES = {"ratio=1": None, "ratio!=1": perturbed}


# ---- theirs -----------------------------------------------------------------------------------------------------


@cache
def expected(
    objective: str, feedback_coef: float, loss_agg_mode: str, change: str
) -> tuple[list[list[float]], list[tuple[float, dict[str, Tensor]]], Counts]:
    """Old log-probs, and loss and gradients of each mini-batch, by the equations."""
    model, rows, counts = tiny_model(), sequences(objective), Counts()
    old = old_log_probs(model, rows, CHANGES[change])
    updates = []
    for members in mini_batches(rows):
        model.zero_grad()
        loss = equations(
            model,
            [rows[i] for i in members],
            [old[i] for i in members],
            objective=objective,
            feedback_coef=feedback_coef,
            loss_agg_mode=loss_agg_mode,
            counts=counts,
        )
        loss.backward()
        updates.append((loss.item(), {name: p.grad.clone() for name, p in model.named_parameters()}))
    return old, updates, counts


def relative_error(value: Tensor, reference: Tensor) -> float:
    return ((value - reference).norm() / reference.norm()).item()


# ---- tests ------------------------------------------------------------------------------------------------------


def test_the_step_holds_every_case() -> None:
    kinds = {s.kind for s in SEQUENCES}
    assert kinds == {"draft", "refined_base", "refined_feedback", "none"}
    assert any("101" in "".join(map(str, s.mask)).replace("00", "0").replace("00", "0") for s in SEQUENCES)
    seats: dict[tuple[str, str], int] = {}
    for s in SEQUENCES:
        seats[s.episode, s.kind] = seats.get((s.episode, s.kind), 0) + 1
    assert max(seats.values()) == 2


def test_the_clips_are_active() -> None:
    _, _, counts = expected("ditto", 1.0, "token-mean", "ratio!=1")
    assert counts.low > 0 and counts.high > 0 and counts.dual > 0
    _, _, counts = expected("ditto", 1.0, "token-mean", "ratio=1")
    assert counts == Counts(0, 0, 0)


CASES = [("ditto", 1.0), ("ditto", 0.5), ("grpo", 1.0)]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("loss_agg_mode", ["token-mean", "seq-mean-token-mean"])
@pytest.mark.parametrize(("objective", "feedback_coef"), CASES)
def test_update_equals_the_equations(
    objective: str,
    feedback_coef: float,
    loss_agg_mode: str,
    splits: int,
    ranks: int,
    change: str,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    old, references, _ = expected(objective, feedback_coef, loss_agg_mode, change)
    settings = settings_of(objective, feedback_coef)
    step, data = step_data(sequences(objective), old, settings, loss_agg_mode, ranks, monkeypatch)
    assert step.layout is not None and step.layout.updates == len(references) == 2
    model = tiny_model()
    worst = 0.0
    for update, (reference_loss, reference_gradients) in enumerate(references):
        loss, gradients = ours(model, step, data, loss_agg_mode, ranks=ranks, splits=splits, update=update)
        # At ratio 1 advantages of a group cancel, and the loss is 0 while its terms are of size 1.
        scale = abs(reference_loss) if abs(reference_loss) > 1e-3 else 1.0
        worst = max(worst, abs(loss - reference_loss) / scale)
        for name, reference in reference_gradients.items():
            worst = max(worst, relative_error(gradients[name], reference))
    record_property("worst_relative_error", worst)
    assert worst <= TOLERANCE


@pytest.mark.parametrize(("ranks", "splits"), [(1, 1), (2, 3)])
@pytest.mark.parametrize("loss_agg_mode", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
def test_kl_and_entropy_terms_are_means_over_the_sequences_that_count(
    loss_agg_mode: str, ranks: int, splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding and failed sessions are rows of the mini-batch too, and verl alone would divide by them."""
    rows = sequences("ditto")
    old = old_log_probs(tiny_model(), rows, perturbed)
    step, data = step_data(rows, old, settings_of("ditto", 0.5), loss_agg_mode, ranks, monkeypatch)
    assert step.layout is not None
    data["ref_log_prob"] = nested([row - 0.25 for row in data["old_log_probs"].unbind()])
    terms = {"use_kl_loss": True, "kl_loss_type": "k1", "kl_loss_coef": KL_COEF, "entropy_coeff": ENTROPY_COEF}
    model, theirs = tiny_model(), tiny_model()
    for update, members in enumerate(mini_batches(rows)):
        loss, gradients = ours(model, step, data, loss_agg_mode, ranks=ranks, splits=splits, update=update, **terms)
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
        expected_loss.backward()
        assert sum(rows[i].valid for i in members) < step.layout.rows
        assert loss == pytest.approx(expected_loss.item(), rel=TOLERANCE)
        for name, parameter in theirs.named_parameters():
            assert relative_error(gradients[name], parameter.grad) <= TOLERANCE, name


def test_two_parts_in_one_mini_batch_differ_from_one_joint_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control: without the weights the gradient is far from the equations, so the comparison can fail."""
    old, references, _ = expected("ditto", 1.0, "token-mean", "ratio=1")
    step, data = step_data(sequences("ditto"), old, settings_of("ditto", 1.0), "token-mean", 1, monkeypatch)
    data["rollout_is_weights"] = torch.ones_like(data["rollout_is_weights"])
    _, gradients = ours(tiny_model(), step, data, "token-mean", ranks=1, splits=1, update=0)
    reference = references[0][1]
    assert max(relative_error(gradients[name], reference[name]) for name in reference) > 0.1


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
    step, data = step_data(rows, old, settings_of("ditto", 1.0), loss_agg_mode, 1, monkeypatch)
    terms = {"entropy_coeff": ENTROPY_COEF}  # the token that is counted to avoid 0/0 has an entropy
    loss, gradients = ours(tiny_model(), step, data, loss_agg_mode, ranks=1, splits=1, update=1, **terms)
    assert loss == 0.0
    assert all(torch.equal(g, torch.zeros_like(g)) for g in gradients.values())


def test_rollout_correction_is_one_for_refined_sequences_in_the_base_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their rollout log-probs belong to another context; the others get verl's truncated importance weights."""
    rows = sequences("ditto")
    old = old_log_probs(tiny_model(), rows, None)
    settings = settings_of("ditto", 0.5)
    step, plain = step_data(rows, old, settings, "token-mean", 1, monkeypatch)
    correction = {"rollout_correction": {"rollout_is": "token", "rollout_is_threshold": 2.0}}
    for shift, factor in ((0.3, math.exp(0.3)), (1.0, 2.0)):  # the second is above the threshold
        _, corrected = step_data(
            rows, old, settings, "token-mean", 1, monkeypatch, algorithm=correction, rollout_shift=shift
        )
        for record, before, after in zip(
            step.records, plain["rollout_is_weights"].unbind(), corrected["rollout_is_weights"].unbind(), strict=True
        ):
            expected_weights = before * (1.0 if record.kind == "refined_base" else factor)
            torch.testing.assert_close(after.double(), expected_weights.double(), rtol=1e-6, atol=0)


def test_a_step_in_which_every_session_failed_passes_with_rollout_correction(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = [s for s in sequences("ditto") if not s.valid]
    old = [[0.0] * len(s.response_ids) for s in failed]
    correction = {"rollout_correction": {"rollout_is": "token", "rollout_is_threshold": 2.0}}
    settings = settings_of("ditto", 1.0)
    _, data = step_data(failed, old, settings, "token-mean", 1, monkeypatch, algorithm=correction)
    assert not data["rollout_is_weights"].values().any()
    assert data["response_mask"].values().sum() == 1  # verl divides by it


# ---- verl's TrainingWorker and FSDP2 -----------------------------------------------------------------------------

LR, WEIGHT_DECAY, BETAS, EPS, MAX_NORM = 0.5, 0.01, (0.9, 0.999), 1.0, 0.5


def adamw(weights: dict[str, Tensor], gradients: dict[str, Tensor], state: dict[str, Any], t: int) -> float:
    """Gradient clipping and one AdamW update in float64, in place; returns the norm before clipping."""
    norm = sum(float((g**2).sum()) for g in gradients.values()) ** 0.5
    scale = min(1.0, MAX_NORM / (norm + 1e-6))
    for name, weight in weights.items():
        g = gradients[name] * scale
        m, v = state.get(name, (torch.zeros_like(g), torch.zeros_like(g)))
        m, v = BETAS[0] * m + (1 - BETAS[0]) * g, BETAS[1] * v + (1 - BETAS[1]) * g**2
        state[name] = m, v
        step = (m / (1 - BETAS[0] ** t)) / ((v / (1 - BETAS[1] ** t)).sqrt() + EPS)
        weight.mul_(1 - LR * WEIGHT_DECAY).sub_(LR * step)
    return norm


@pytest.mark.parametrize("world_size", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_training_worker_takes_the_same_step_in_float32(
    world_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two updates of verl's TrainingWorker with FSDP2 over gloo: gradient norms and weights.

    The second update is off-policy (its old log-probs are from before the first), so ratios are not 1. Tolerances: the
    engine computes in float32 (unit round-off 6e-8), and a weight of size 1 that moves by about 1e-2 is stored to 1e-7,
    so its movement is known to about 1e-5: 1e-4 for the movement and 1e-5 for the gradient norm leave room. AdamW's
    epsilon is 1, because with 1e-8 the first step is the gradient's sign, which float32 does not know near 0.
    """
    rows = sequences("ditto")
    model = tiny_model().float().double()  # float32 weights, exactly
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    model.float().save_pretrained(tmp_path / "model")
    model.double()
    old = old_log_probs(model, rows, None)
    step, data = step_data(rows, old, settings_of("ditto", 0.5), "token-mean", world_size, monkeypatch)
    assert step.layout is not None
    columns = {key: list(value.unbind()) for key, value in data.items()}
    for key in ("old_log_probs", "advantages", "rollout_is_weights"):
        columns[key] = [row.float() for row in columns[key]]
    torch.save({"columns": columns, "rows": step.layout.rows}, tmp_path / "data.pt")
    optimizer = {"lr": LR, "weight_decay": WEIGHT_DECAY, "betas": BETAS, "clip_grad": MAX_NORM, "eps": EPS}
    (tmp_path / "job.json").write_text(json.dumps({"actor": ACTOR, "optimizer": optimizer}))
    run_workers(tmp_path, world_size, monkeypatch)
    got = torch.load(tmp_path / "result.pt")

    norms, state = [], {}
    for t, members in enumerate(mini_batches(rows), start=1):
        model.zero_grad()
        equations(
            model,
            [rows[i] for i in members],
            [old[i] for i in members],
            objective="ditto",
            feedback_coef=0.5,
            loss_agg_mode="token-mean",
        ).backward()
        with torch.no_grad():
            parameters = dict(model.named_parameters())
            norms.append(adamw(parameters, {n: p.grad for n, p in parameters.items()}, state, t))
    assert got["grad_norm"] == pytest.approx(norms, rel=1e-5)
    errors = {
        name: relative_error(got["weights"][name].double() - start[name], p.detach() - start[name])
        for name, p in model.named_parameters()
    }
    print("grad norms", got["grad_norm"], norms, "worst movement", max(errors.values()))
    assert max(errors.values()) < 1e-4


def run_workers(folder: Path, world_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank runs in this process, which saves importing verl once more; two run in processes of their own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(world_size), "LOCAL_RANK": "0"}
    if world_size == 1:
        for name, value in {**rendezvous, "RANK": "0"}.items():
            monkeypatch.setenv(name, value)
        one_update.main(folder)
        return
    processes = [
        subprocess.Popen(
            [sys.executable, one_update.__file__, str(folder)],
            env={**os.environ, **rendezvous, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world_size)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * world_size, "\n".join(outputs)[-4000:]
