"""Which policy losses work with weights per sequence: every loss that verl registers is tried, and a user's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
from verl.workers.config import FSDPActorConfig, PolicyLossConfig

from ditto.config_checks.policy_losses import AVERAGES_ROWS, SUPPORTED, UNSUPPORTED, follows_weights, wrong_policy_loss
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
