"""Where pi_old comes from: the log-probs that an update's importance ratios divide by (`algorithm.old_logp`).

    pass      a forward pass of the actor over all sequences, before the first update
    update    the one update itself: its log-probs, detached. The ratio is exactly 1, and no pass is needed
    rollout   the log-probs that the rollout engine sampled with; a pass is needed for refined_base alone, which was
              sampled in another context

`auto` takes `update` where that is the same as `pass`, and `pass` everywhere else.

The pass also measures the actor before the step: its entropy, its distance from the rollout engine and from the
reference. Without it, the first update measures the same on its own sequences (`verl_hooks/actor_worker.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from omegaconf import DictConfig
from tensordict import TensorDict
from verl.protocol import DataProto
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
from verl.workers.utils.padding import response_to_nested

from ditto.batch.jagged import per_token, row_lengths, with_values
from ditto.batch.step_batch import Columns
from ditto.settings import Settings

Source = Literal["pass", "update", "rollout"]


@dataclass(frozen=True)
class PiOld:
    """How a run gets pi_old.

    Attributes:
        source: as above.
        why: the reason, for the log.
        sampled: the kinds of sequence whose pi_old is the rollout engine's log-probs.
        entropy_in_update: an update gives the entropy at no cost.
    """

    source: Source
    why: str
    sampled: frozenset[str]
    entropy_in_update: bool

    @classmethod
    def chosen(cls, config: DictConfig, settings: Settings, dropout: Sequence[str]) -> PiOld:
        """Choose as the config says.

        Args:
            dropout: what the actor's model drops in training (`verl_hooks/dropout.py`); [] where it drops nothing.
        """
        model, options = config.actor_rollout_ref.model, settings.options
        sampled = {"refined_base"} if options.refined_old_logp == "rollout" else set()
        if options.old_logp == "rollout":
            sampled |= {"draft", "refined_feedback"}
            if "refined_old_logp" not in settings.objective.options:  # nothing divides by pi_old of refined_base
                sampled.add("refined_base")
        kernels = model.get("fused_kernel_options") or {}
        chunked = bool(model.get("use_fused_kernels")) and kernels.get("impl_backend") == "chunked"
        source: Source
        if options.old_logp != "auto":
            source = "rollout" if options.old_logp == "rollout" else "pass"
            why = f"algorithm.old_logp={options.old_logp}"
        else:
            reason = _needs_pass(config, settings, dropout, chunked)
            source, why = ("update", "one update follows") if reason is None else ("pass", reason)
        return cls(source, why, frozenset(sampled), chunked)


def _needs_pass(config: DictConfig, settings: Settings, dropout: Sequence[str], chunked: bool) -> str | None:
    """Why the log-probs of the update cannot be pi_old; None where they can."""
    actor, correction = config.actor_rollout_ref.actor, config.algorithm.get("rollout_correction")
    if config.data.train_batch_size > actor.ppo_mini_batch_size:  # the parts of separate_async are mini-batches too
        return "a step has several mini-batches"
    if actor.ppo_epochs > 1:
        return "a step has several epochs"
    if correction and correction.get("rollout_is"):
        return "algorithm.rollout_correction weighs by it"
    if settings.options.refined_old_logp == "rollout" and "refined_old_logp" in settings.objective.options:
        return "algorithm.refined_old_logp=rollout compares refined answers with it"
    if dropout:
        return f"the model has dropout ({', '.join(dropout)}), which a pass leaves out"
    if not chunked:
        return "only the chunked head gives the entropy in the update at no cost"
    return None


def correction_weights(
    columns: Columns, other_context: Sequence[bool], config: Any
) -> tuple[torch.Tensor, dict[str, Any]] | None:
    """verl's importance weights between actor and rollout engine (`algorithm.rollout_correction`).

    Args:
        other_context: whether each row was sampled in another context than the one it is trained in: its weights are 1,
            because its rollout log-probs belong to that other context.
        config: `algorithm.rollout_correction`.

    Returns:
        Weights of all response tokens, float32 of shape (all tokens,), and verl's metrics of them. None where no
        correction is configured, and where no token was sampled in the context in which it is trained.
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
