"""The actor's log-probs of a part's sequences, pi_old: the innermost step of verl's chain of `_compute_old_log_prob`.

verl's trainer of separate_async wraps this method: for all parts after a step's first it puts the weights of the step's
beginning back, calls it, and restores the live ones, so that the importance ratios of later parts differ from 1 and are
clipped. Therefore this is a base class of the trainers, in the place of verl's own method, and not an override of it.
"""

from __future__ import annotations

from abc import ABC
from typing import Any

import torch
from verl.trainer.ppo.v1 import PPOTrainer

from ditto.batch.jagged import per_token, response_tokens, with_values
from ditto.batch.queue import KVBatchMeta, put_columns, tq
from ditto.batch.step_batch import Columns
from ditto.batch.step_parts import StepParts
from ditto.batch.style_signal import StyleSignal
from ditto.settings import Settings

# The columns that a forward pass needs. Workers fetch only these, without the traces and the rows of task files.
MODEL_COLUMNS = "input_ids position_ids prompts responses response_mask loss_mask multi_modal_inputs".split()


class OldLogProbs(PPOTrainer, ABC):
    """Computes pi_old of every sequence in the context in which it is trained."""

    settings: Settings
    parts: StepParts
    style: StyleSignal

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        rollout = self.config.actor_rollout_ref.rollout
        batch.extra_info.update(calculate_entropy=True, compute_loss=False, temperature=rollout.temperature)
        batch.fields = list(MODEL_COLUMNS)
        self.actor_rollout_wg.compute_log_prob(batch)
        names = ["entropy", "log_probs", "response_mask", "rollout_log_probs"]
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
        step, mask = self.parts.current, data["response_mask"]
        step.entropy = response_tokens(data["entropy"], mask).values()[mask.values().bool()]
        step.columns = Columns(mask, response_tokens(data["log_probs"], mask), data["rollout_log_probs"])
        self.style.mark(batch, step)
        old = step.columns.old_log_probs
        if self.settings.options.refined_old_logp == "rollout":
            refined = per_token(step.is_kind("refined_base"), mask)
            old = with_values(torch.where(refined, step.columns.rollout_log_probs.values(), old.values()), mask)
        put_columns(batch, old_log_probs=old)
        return batch
