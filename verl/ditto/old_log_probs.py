"""The actor's log-probs of a part's sequences, pi_old: the innermost step of verl's chain of `_compute_old_log_prob`.

verl's trainer of separate_async wraps this method: for all parts after a step's first it puts the weights of the step's
beginning back, calls it, and restores the live ones, so that the importance ratios of later parts differ from 1 and are
clipped. Therefore this is a base class of the trainers, in the place of verl's own method, and not an override of it.

Where `batch/pi_old.py` says that no pass is needed, these values come from the update itself.
"""

from __future__ import annotations

from abc import ABC
from typing import Any

import torch
from verl.trainer.ppo.v1 import PPOTrainer

from ditto.batch.jagged import per_token, response_tokens, with_values
from ditto.batch.pi_old import PiOld
from ditto.batch.queue import KVBatchMeta, fetch, put_columns
from ditto.batch.step_batch import Columns, StepBatch
from ditto.batch.step_parts import StepParts
from ditto.batch.style_signal import StyleSignal
from ditto.objectives.losses import PLACES
from ditto.settings import Settings
from ditto.verl_hooks.actor_worker import places

# The columns that a forward pass needs. Workers fetch only these, without the traces and the rows of task files.
MODEL_COLUMNS = "input_ids position_ids prompts responses response_mask loss_mask multi_modal_inputs".split()


class OldLogProbs(PPOTrainer, ABC):
    """Computes pi_old of every sequence in the context in which it is trained, where an update needs it."""

    settings: Settings
    parts: StepParts
    style: StyleSignal
    pi_old: PiOld

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        step = self.parts.current
        batch.fields = list(MODEL_COLUMNS)
        if self.pi_old.source == "pass" or not any(record.valid for record in step.records):
            self._forward(batch)
            data = fetch(batch, "log_probs", "entropy", "response_mask", "rollout_log_probs")
            mask = data["response_mask"]
            step.entropy = response_tokens(data["entropy"], mask).values()[mask.values().bool()]
            step.columns = Columns(mask, response_tokens(data["log_probs"], mask), data["rollout_log_probs"])
            self._put_pi_old(batch, step)
        else:
            data = fetch(batch, "response_mask", "rollout_log_probs")
            sampled = data["rollout_log_probs"]
            step.columns = Columns(data["response_mask"], sampled, sampled)
            step.measured = [False] * len(batch)
            if len(self.parts.batches) == 1:  # the update of a later part tells nothing of the weights before the step
                put_columns(batch, **{PLACES: places(len(batch))})
            if self.pi_old.source == "rollout":
                self._measure_refined(batch, step)
                self._put_pi_old(batch, step)
        self.style.mark(batch, step)
        return batch

    def _measure_refined(self, batch: KVBatchMeta, step: StepBatch) -> None:
        """Compute the log-probs of the refined answers in the base context, in which nothing was sampled."""
        rows = [row for row, is_base in enumerate(step.is_kind("refined_base")) if is_base]
        if not rows or "refined_base" in self.pi_old.sampled:
            return
        refined = set(rows)
        others = [row for row in range(len(batch)) if row not in refined]
        missing = -len(rows) % (max(self.actor_rollout_wg._dispatch_info["actor"]) + 1)  # for ranks of the same size
        computed = batch.select_keys([batch.keys[row] for row in [*rows, *others[:missing]]])
        computed.fields, computed.extra_info = list(MODEL_COLUMNS), dict(batch.extra_info)
        self._forward(computed)
        data = fetch(batch.select_keys([batch.keys[row] for row in rows]), "log_probs", "response_mask")
        step.measure(rows, response_tokens(data["log_probs"], data["response_mask"]))

    def _forward(self, batch: KVBatchMeta) -> None:
        temperature = self.config.actor_rollout_ref.rollout.temperature
        batch.extra_info.update(calculate_entropy=True, compute_loss=False, temperature=temperature)
        self.actor_rollout_wg.compute_log_prob(batch)

    def _put_pi_old(self, batch: KVBatchMeta, step: StepBatch) -> None:
        assert step.columns is not None
        columns, mask = step.columns, step.columns.mask
        sampled = per_token(step.is_kind(*self.pi_old.sampled), mask)
        old = torch.where(sampled, columns.rollout_log_probs.values(), columns.old_log_probs.values())
        put_columns(batch, old_log_probs=with_values(old, mask))


def measure_by_update(workers: Any, pi_old: PiOld, parts: StepParts, batch: KVBatchMeta) -> None:
    """Take from the step's first update what a pass before it would have measured.

    Args:
        workers: the group of the actor's ranks, which have just updated.
        batch: of the part that they have trained.
    """
    step = parts.current
    if step.measured is None or len(parts.batches) > 1:
        return
    fields, batch.fields = batch.fields, [PLACES]
    workers.update_outputs(batch)
    batch.fields = fields
    first = step.first_mini_batch()
    rows = batch.select_keys([batch.keys[row] for row in first])
    data = fetch(rows, "log_probs", "response_mask", *(["entropy"] if pi_old.entropy_in_update else []))
    mask = data["response_mask"]
    step.measure(first, response_tokens(data["log_probs"], mask))
    if pi_old.entropy_in_update:
        step.entropy = response_tokens(data["entropy"], mask).values()[mask.values().bool()]
