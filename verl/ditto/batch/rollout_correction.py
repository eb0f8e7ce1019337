"""verl's importance weights between actor and rollout engine, for the sequences where both saw the same context."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict
from verl.protocol import DataProto
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.workers.utils.padding import response_to_nested

from ditto.batch.jagged import per_token, row_lengths, with_values
from ditto.batch.step_batch import Columns


def correction_weights(
    columns: Columns, other_context: Sequence[bool], config: Any
) -> tuple[torch.Tensor, dict[str, Any]] | None:
    """Weights of all response tokens, float32 of shape (all tokens,), and verl's metrics of them.

    Args:
        other_context: whether each row was sampled in another context than the one it is trained in: its weights are 1,
            because its rollout log-probs belong to that other context.
        config: `algorithm.rollout_correction`.

    Returns:
        None where no correction is configured, and where no token was sampled in the context in which it is trained.
    """
    mask, old = columns.mask, columns.old_log_probs
    if not config or not config.get("rollout_is"):
        return None
    own = mask.values().bool() & ~per_token(other_context, mask)
    if not own.any():
        return None
    padded = {
        "old_log_probs": old.to_padded_tensor(0.0),
        "rollout_log_probs": columns.rollout_log_probs.to_padded_tensor(0.0),
        # verl averages over this mask, so rows of another context must not be in it.
        "response_mask": with_values(own.to(mask.values().dtype), mask).to_padded_tensor(0),
    }
    corrected, metrics = compute_rollout_correction_and_add_to_batch(
        DataProto(batch=TensorDict(padded, batch_size=len(row_lengths(mask)))), config
    )
    weights = response_to_nested(corrected.batch["rollout_is_weights"], mask).values()
    return torch.where(own, weights, 1.0), metrics
