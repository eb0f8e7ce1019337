"""Which policy losses work with weights per sequence: every loss that verl registers is tried, and a user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
from verl.workers.config import FSDPActorConfig, PolicyLossConfig

from ditto.config_checks.policy_losses import (
    AVERAGES_ROWS,
    PI_OLD,
    READ_BY_LOSS,
    SUPPORTED,
    UNSUPPORTED,
    follows_weights,
    wrong_policy_loss,
)
from ditto.launching.compose import load_config

OWN_LOSSES = """
from verl.trainer.ppo.core_algos import agg_loss, register_policy_loss


@register_policy_loss("weighs_its_tokens")
def right(old_log_prob, log_prob, advantages, response_mask, loss_agg_mode, config, rollout_is_weights=None):
    losses = -(log_prob - old_log_prob).exp() * advantages * rollout_is_weights
    return agg_loss(losses, response_mask, loss_agg_mode, **config.global_batch_info), {}


@register_policy_loss("forgets_the_weights")
def wrong(old_log_prob, log_prob, advantages, response_mask, loss_agg_mode, config, rollout_is_weights=None):
    losses = -(log_prob - old_log_prob).exp() * advantages
    return agg_loss(losses, response_mask, loss_agg_mode, **config.global_batch_info), {}
"""


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
    ours = {"weighs_its_tokens", "forgets_the_weights"}
    assert set(POLICY_LOSS_REGISTRY) - ours == {*SUPPORTED, *UNSUPPORTED, AVERAGES_ROWS}


def value_of(loss_mode: str, *, shift: float = 0.0, **options: Any) -> float:
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
        old_log_prob=new - change + shift,
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
        PI_OLD: {"shift": 0.2},
    }
    assert changes.keys() == {option for options in READ_BY_LOSS.values() for option in options}
    usual = value_of(loss_mode)
    assert {name for name, change in changes.items() if value_of(loss_mode, **change) != usual} == set(
        READ_BY_LOSS[loss_mode]
    )


def test_a_loss_of_the_users_own_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_losses.py").write_text(OWN_LOSSES)
    monkeypatch.syspath_prepend(tmp_path)

    config = load_config(["data.train_files=[a]", "data.val_files=[b]"])

    def refusal(name: str, library: str = "own_losses") -> str | None:
        config.actor_rollout_ref.actor.policy_loss.loss_mode = name
        config.actor_rollout_ref.model.external_lib = ["ditto.model.install", library]
        return wrong_policy_loss(config)

    try:
        assert refusal("weighs_its_tokens") is None
        assert "rollout_is_weights" in (refusal("forgets_the_weights") or "")
        assert "register_policy_loss('weighs_nothing')" in (refusal("weighs_nothing") or "")
        assert "cannot be imported" in (refusal("weighs_its_tokens", "no_such_module") or "")
        assert "statistic of the micro-batch" in (refusal("kl_cov") or "")
        assert refusal("sapo") is None
    finally:
        for name in ("weighs_its_tokens", "forgets_the_weights"):
            POLICY_LOSS_REGISTRY.pop(name, None)
