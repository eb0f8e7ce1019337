"""verl's own aggregation of `weight * loss` is the sum of the parts' losses, each over its own tokens.

Promise under test: the balance of the parts is their weights alone and does not depend on their token counts;
each part is aggregated by `loss_agg_mode` over the whole mini-batch and all ranks, never per micro-batch.
"""

import random
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ditto.objectives.loss_weights import LOSS_AGG_MODES, counted_sequences, sequence_weights

HORIZON = 16  # verl's loss_scale_factor


@dataclass(frozen=True)
class Sequence:
    """One row of a mini-batch: its part (None: invalid or padding) and the loss of each counted and uncounted token."""

    part: str | None
    losses: tuple[float, ...]
    mask: tuple[int, ...]


def of_parts(rows: list[Sequence], coefficients: dict[str, float], mode: str) -> float:
    """Sum over parts of coefficient * (the part's loss over its own sequences and tokens), by plain loops."""
    total = 0.0
    for part, coefficient in coefficients.items():
        sums, counts = [], []
        for row in rows:
            if row.part == part and sum(row.mask):
                sums.append(sum(x for x, m in zip(row.losses, row.mask, strict=True) if m))
                counts.append(sum(row.mask))
        if not sums:
            continue
        per_mode = {
            "token-mean": sum(sums) / sum(counts),
            "seq-mean-token-sum": sum(sums) / len(sums),
            "seq-mean-token-sum-norm": sum(sums) / len(sums) / HORIZON,
            "seq-mean-token-mean": sum(s / n for s, n in zip(sums, counts, strict=True)) / len(sums),
        }
        total += coefficient * per_mode[mode]
    return total


def of_verl(rows: list[Sequence], weights: list[float], mode: str, ranks: int, splits: list[int]) -> float:
    """verl's agg_loss over micro-batches and ranks: summed over a rank's micro-batches, averaged over ranks."""
    from verl.trainer.ppo.core_algos import agg_loss

    tokens = sum(sum(row.mask) for row in rows)
    per_rank = len(rows) // ranks
    total = 0.0
    for rank in range(ranks):
        chunk = range(rank * per_rank, (rank + 1) * per_rank)
        cuts = sorted({0, per_rank, *(s % (per_rank + 1) for s in splits)})
        for start, end in zip(cuts, cuts[1:], strict=False):
            members = [chunk[i] for i in range(start, end)]
            total += agg_loss(
                loss_mat=_padded([rows[i].losses for i in members], torch.float64)
                * torch.tensor([weights[i] for i in members], dtype=torch.float64)[:, None],
                loss_mask=_padded([rows[i].mask for i in members], torch.bool),
                loss_agg_mode=mode,
                dp_size=ranks,
                batch_num_tokens=tokens,
                global_batch_size=counted_sequences([sum(row.mask) for row in rows]),
                loss_scale_factor=HORIZON,
            ).item()
    return total / ranks


def _padded(rows: list[tuple], dtype: torch.dtype) -> Tensor:
    out = torch.zeros(len(rows), max(len(row) for row in rows), dtype=dtype)
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.tensor(row, dtype=dtype)
    return out


def weights_of(rows: list[Sequence], coefficients: dict[str, float], mode: str) -> list[float]:
    return sequence_weights([r.part for r in rows], [sum(r.mask) for r in rows], coefficients, mode)


@st.composite
def mini_batches(draw: st.DrawFn) -> tuple[list[Sequence], int]:
    """A mini-batch of 1 or 2 ranks with at least one counted token."""
    ranks = draw(st.sampled_from([1, 2]))
    rows = []
    for _ in range(draw(st.integers(1, 5)) * ranks):
        length = draw(st.integers(1, HORIZON))
        mask = draw(st.lists(st.integers(0, 1), min_size=length, max_size=length))
        losses = draw(st.lists(st.floats(-5, 5), min_size=length, max_size=length))
        part = draw(st.sampled_from(["joint", "feedback", None]))
        rows.append(Sequence(part, tuple(losses), tuple(mask if part else [0] * length)))
    if not any(sum(row.mask) for row in rows):
        rows[0] = Sequence("joint", (1.5,), (1,))
    return rows, ranks


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
@settings(deadline=None, max_examples=60)
@given(mini_batches(), st.lists(st.integers(0, 5), max_size=3), st.sampled_from([0.0, 0.5, 1.0, 3.0]))
def test_verl_aggregates_each_part_over_its_own_tokens(
    mode: str, batch: tuple[list[Sequence], int], splits: list[int], coefficient: float
) -> None:
    rows, ranks = batch
    coefficients = {"joint": 1.0, "feedback": coefficient}
    weights = weights_of(rows, coefficients, mode)
    expected = of_parts(rows, coefficients, mode)
    assert of_verl(rows, weights, mode, ranks, splits) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
def test_identity_on_a_fixed_batch_of_two_ranks_and_three_micro_batches(mode: str) -> None:
    chance = random.Random(1)
    rows = []
    for part, length in [("joint", 7), ("joint", 3), ("feedback", 5), (None, 2), ("feedback", 1), ("joint", 9)] * 2:
        mask = [1, *(chance.randint(0, 1) for _ in range(length - 1))] if part else [0] * length
        rows.append(Sequence(part, tuple(chance.gauss(0, 1) for _ in range(length)), tuple(mask)))
    coefficients = {"joint": 1.0, "feedback": 0.5}
    weights = weights_of(rows, coefficients, mode)
    values = {of_verl(rows, weights, mode, ranks, splits) for ranks in (1, 2) for splits in ([], [2, 4])}
    for value in values:
        assert value == pytest.approx(of_parts(rows, coefficients, mode), rel=1e-12)


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
def test_one_part_that_holds_everything_weighs_one(mode: str) -> None:
    assert sequence_weights(["joint"] * 3, [4, 1, 7], {"joint": 1.0}, mode) == [1.0] * 3


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
def test_invalid_rows_and_rows_without_tokens_weigh_nothing(mode: str) -> None:
    weights = sequence_weights(["joint", None, "joint", None], [4, 0, 0, 3], {"joint": 1.0}, mode)
    assert weights[1:] == [0.0, 0.0, 0.0]
    assert weights[0] > 0


def test_token_mean_balances_by_tokens_and_sequence_means_by_sequences() -> None:
    parts, tokens, coefficients = ["joint", "joint", "feedback"], [6, 2, 4], {"joint": 1.0, "feedback": 0.5}
    assert sequence_weights(parts, tokens, coefficients, "token-mean") == [12 / 8, 12 / 8, 0.5 * 12 / 4]
    assert sequence_weights(parts, tokens, coefficients, "seq-mean-token-mean") == [3 / 2, 3 / 2, 0.5 * 3 / 1]


def test_the_balance_does_not_depend_on_how_long_refined_answers_are() -> None:
    """A constant loss of 1 per token gives 1 + feedback_coef, however long the feedback sequences are."""
    for length in (1, 10, HORIZON):
        rows = [Sequence("joint", (1.0,) * 4, (1,) * 4), Sequence("feedback", (1.0,) * length, (1,) * length)]
        weights = weights_of(rows, {"joint": 1.0, "feedback": 0.5}, "token-mean")
        assert of_verl(rows, weights, "token-mean", 1, []) == pytest.approx(1.5, rel=1e-12)


def test_a_mode_without_a_per_part_form_is_refused() -> None:
    with pytest.raises(ValueError, match="token-sum.*token-mean"):
        sequence_weights(["joint"], [1], {"joint": 1.0}, "token-sum")


def test_sum_norm_without_a_scale_factor_is_refused() -> None:
    """verl then divides by the longest response of each micro-batch: the loss would depend on the split."""
    from ditto.config_checks import check_config
    from ditto.launching.compose import load_config
    from ditto.settings import BadConfig, Settings

    base = ["data.train_files=[x]", "data.val_files=[x]", "trainer.project_name=t"]
    mode = "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm"
    config = load_config([*base, mode, "actor_rollout_ref.actor.loss_scale_factor=1024"])
    check_config(config, Settings.from_config(config))
    config = load_config([*base, mode])
    with pytest.raises(BadConfig, match="loss_scale_factor"):
        check_config(config, Settings.from_config(config))
