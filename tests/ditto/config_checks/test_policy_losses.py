"""Which policy losses work with weights per sequence: every loss that verl registers is tried, and a user's own."""

import random
from typing import Any

import pytest
import torch
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
from verl.workers.config import FSDPActorConfig, PolicyLossConfig

from ditto.config_checks.rl_rules import (
    AVERAGES_ROWS,
    READ_BY_LOSS,
    SUPPORTED,
    UNSUPPORTED,
)


def follows_weights(loss: Any, config: Any) -> bool:
    """Check whether a policy loss multiplies each token by its weight and adds up, as `objectives/losses.py` calls it.

    In a small batch each row repeats one token, so the loss of a row follows from the loss of a row with one token. The
    loss of the batch must be the weighted sum over all tokens.

    Args:
        loss: as registered with verl.
        config: verl's ActorConfig; its `global_batch_info` is overwritten.
    """
    rng = random.Random(0)
    lengths, weights = (3, 1, 5, 4, 2), (0.5, 2.0, 1.0, 0.0, 3.0)
    old = [-rng.uniform(0.1, 4.0) for _ in lengths]
    new = [value + rng.uniform(-0.5, 0.5) for value in old]
    advantages = [-2.0, 2.0, 3.0, 1.0, -1.0]
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    config.global_batch_info.update(dp_size=1, batch_num_tokens=1, global_batch_size=1, loss_scale_factor=1)

    def loss_of(rows: list[int], counted: Any, weight: list[float]) -> float:
        def column(values: Any) -> Any:
            return torch.tensor([values[row] for row in rows], dtype=torch.float64)[:, None] * counted

        value, _ = loss(
            old_log_prob=column(old),
            log_prob=column(new),
            advantages=column(advantages),
            response_mask=counted,
            loss_agg_mode="token-sum",
            config=config,
            rollout_is_weights=column(weight),
        )
        return float(value)

    batch = loss_of(list(range(len(lengths))), mask, list(weights))
    one = torch.ones(1, 1, dtype=torch.bool)
    expected = sum(
        weight * n * loss_of([row], one, [1.0] * len(lengths))
        for row, (n, weight) in enumerate(zip(lengths, weights, strict=True))
    )
    return abs(batch - expected) < 1e-6 * max(1.0, abs(expected))


def test_exactly_the_supported_losses_follow_the_weights() -> None:
    right = set()
    for name, loss in POLICY_LOSS_REGISTRY.items():
        config = FSDPActorConfig(
            strategy="fsdp2",
            rollout_n=1,
            use_dynamic_bsz=True,
            policy_loss=PolicyLossConfig(loss_mode=name, dro_beta=0.1),
        )
        if follows_weights(loss, config):
            right.add(name)
    assert right == set(SUPPORTED)


def test_every_loss_of_verl_is_known() -> None:
    assert set(POLICY_LOSS_REGISTRY) == {*SUPPORTED, *UNSUPPORTED, AVERAGES_ROWS}


def value_of(loss_mode: str, **options: Any) -> float:
    """The loss of rows of one token, with ratios below, inside and above every bound, and advantages of both signs."""
    policy_loss = PolicyLossConfig(loss_mode=loss_mode, dro_beta=options.pop("dro_beta", 0.1))
    terms = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 3.0, "tau_pos": 1.0, "tau_neg": 1.05}
    config = FSDPActorConfig(
        strategy="fsdp2", rollout_n=1, use_dynamic_bsz=True, policy_loss=policy_loss, **(terms | options)
    )
    config.global_batch_info.update(dp_size=1, batch_num_tokens=1, global_batch_size=1, loss_scale_factor=1)
    change = torch.tensor([-0.8, -0.3, -0.15, 0.05, 0.23, 0.3, 0.6, 2.5], dtype=torch.float64).repeat(2)[:, None]
    new = torch.full_like(change, -1.0)
    value, _ = POLICY_LOSS_REGISTRY[loss_mode](
        old_log_prob=new - change,
        log_prob=new,
        advantages=torch.tensor([1.0, -1.0], dtype=torch.float64).repeat_interleave(8)[:, None],
        response_mask=torch.ones(16, 1, dtype=torch.bool),
        loss_agg_mode="token-sum",
        config=config,
        rollout_is_weights=torch.linspace(0.5, 1.5, 16, dtype=torch.float64)[:, None],
    )
    return float(value)


@pytest.mark.parametrize("loss_mode", [*SUPPORTED, AVERAGES_ROWS])
def test_a_loss_reads_exactly_the_options_of_the_table(loss_mode: str) -> None:
    changes = {
        "clip_ratio_low": {"clip_ratio_low": 0.01},
        "clip_ratio_high": {"clip_ratio_high": 0.01},
        "clip_ratio_c": {"clip_ratio_c": 1.1},
        "tau_pos": {"tau_pos": 0.5},
        "tau_neg": {"tau_neg": 0.5},
        "policy_loss.dro_beta": {"dro_beta": 0.7},
    }
    assert changes.keys() == {option for options in READ_BY_LOSS.values() for option in options}
    usual = value_of(loss_mode)
    assert {name for name, change in changes.items() if value_of(loss_mode, **change) != usual} == set(
        READ_BY_LOSS[loss_mode]
    )
