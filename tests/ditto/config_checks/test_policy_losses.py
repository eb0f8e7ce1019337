"""The policy losses of verl that a run may choose work with weights per token."""

import random
from typing import Any, get_args

import pytest
import torch
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY
from verl.workers.config import FSDPActorConfig, PolicyLossConfig

from ditto.config_checks.keys import RL_KEYS

LOSSES = get_args(RL_KEYS["actor_rollout_ref.actor.policy_loss.loss_mode"].type)


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


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_can_be_chosen_follows_the_weights(name: str) -> None:
    policy_loss = PolicyLossConfig(loss_mode=name)
    config = FSDPActorConfig(strategy="fsdp2", rollout_n=1, use_dynamic_bsz=True, policy_loss=policy_loss)
    assert follows_weights(POLICY_LOSS_REGISTRY[name], config)
