"""The weighted sum over tokens is the sum of the parts' losses, each averaged over its own tokens or sequences.

Promise under test: the balance of the parts is their weights alone and does not depend on their token counts; each part
is averaged by `loss_agg_mode` over the whole mini-batch, never per micro-batch.
"""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ditto.objectives.loss_weights import LOSS_AGG_MODES, row_weights

HORIZON = 16  # verl's loss_scale_factor


@dataclass(frozen=True)
class Sequence:
    """One row of a mini-batch: its part (None: invalid or padding) and the losses of its sampled tokens."""

    part: str | None
    losses: tuple[float, ...]


def of_parts(rows: list[Sequence], mode: str) -> dict[str, float]:
    """Each part's loss over its own sequences and tokens, by plain loops."""
    values = {}
    for part in ("joint", "feedback"):
        members = [row.losses for row in rows if row.part == part and row.losses]
        sums, counts = [sum(losses) for losses in members], [len(losses) for losses in members]
        if members:
            values[part] = {
                "token-mean": sum(sums) / sum(counts),
                "seq-mean-token-sum": sum(sums) / len(sums),
                "seq-mean-token-sum-norm": sum(sums) / len(sums) / HORIZON,
                "seq-mean-token-mean": sum(s / n for s, n in zip(sums, counts, strict=True)) / len(sums),
            }[mode]
    return values


def weighted_sums(rows: list[Sequence], mode: str) -> dict[str, float]:
    tokens = [len(row.losses) for row in rows]
    values = {}
    for part in ("joint", "feedback"):
        weights = row_weights(tokens, [i for i, row in enumerate(rows) if row.part == part], mode, HORIZON)
        if weights:
            values[part] = sum(weight * sum(rows[i].losses) for i, weight in weights.items())
    return values


MINI_BATCHES = st.lists(
    st.builds(
        Sequence,
        st.sampled_from(["joint", "feedback", None]),
        st.lists(st.floats(-5, 5), max_size=HORIZON).map(tuple),
    ),
    min_size=1,
    max_size=10,
)


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
@settings(deadline=None, max_examples=60)
@given(MINI_BATCHES)
def test_each_part_is_averaged_over_its_own_tokens(mode: str, rows: list[Sequence]) -> None:
    assert weighted_sums(rows, mode) == pytest.approx(of_parts(rows, mode), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("mode", LOSS_AGG_MODES)
def test_rows_without_tokens_weigh_nothing(mode: str) -> None:
    assert row_weights([4, 0, 0], [0, 1], mode).keys() == {0}
    assert row_weights([0, 0], [0, 1], mode) == {}


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="token-sum.*token-mean"):
        row_weights([1], [0], "token-sum")


def test_sum_norm_without_a_scale_factor_is_refused() -> None:
    from ditto.config_checks.rl_rules import check_config
    from ditto.launching.compose import load_config
    from ditto.settings import BadConfig, Settings

    base = ["data.train_files=[x]", "data.val_files=[x]", "trainer.project_name=t"]
    mode = "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-sum-norm"
    config = load_config([*base, mode, "actor_rollout_ref.actor.loss_scale_factor=1024"])
    check_config(config, Settings.from_config(config))
    config = load_config([*base, mode])
    with pytest.raises(BadConfig, match="loss_scale_factor"):
        check_config(config, Settings.from_config(config))
