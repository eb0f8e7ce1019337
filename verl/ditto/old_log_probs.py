"""pi_old, the log-probs that an update's importance ratios divide by (`algorithm.old_logp`).

    pass      a forward pass of the actor over all sequences, before the first update
    update    the one update itself: its log-probs, detached. The ratio is exactly 1, and no pass is needed
    rollout   the log-probs that the rollout engine sampled with; a pass is needed for refined_base alone, which was
              sampled in another context

`auto` takes `update` where that is the same as `pass`, and `pass` everywhere else. The pass also measures the actor
before the step: its entropy, its distance from the rollout engine and from the reference. Without it, the first update
measures the same on its own sequences (`verl_hooks/actor_worker.py`).

`OldLogProbs` is the innermost step of verl's chain of `_compute_old_log_prob`. verl's trainer of separate_async wraps
this method: for all parts after a step's first it puts the weights of the step's beginning back, calls it, and restores
the live ones, so that the importance ratios of later parts differ from 1 and are clipped. Therefore this is a base
class of the trainers, in the place of verl's own method, and not an override of it.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from omegaconf import DictConfig
from verl.trainer.ppo.v1 import PPOTrainer

from ditto.batch.jagged import per_token, response_tokens, with_values
from ditto.batch.queue import KVBatchMeta, fetch, put_columns
from ditto.batch.step_batch import Columns, StepBatch
from ditto.batch.step_parts import StepParts
from ditto.objectives.losses import PLACES
from ditto.settings import Settings
from ditto.verl_hooks.actor_worker import places

# The columns that a forward pass needs. Workers fetch only these, without the traces and the rows of task files.
MODEL_COLUMNS = "input_ids position_ids prompts responses response_mask loss_mask multi_modal_inputs".split()


@dataclass(frozen=True)
class PiOld:
    """The way in which a run gets pi_old.

    Attributes:
        source: as above.
        why: the reason, for the log.
        sampled: the kinds of sequence whose pi_old is the rollout engine's log-probs.
        entropy_in_update: an update gives the entropy at no cost: the chunked head does.
    """

    source: Literal["pass", "update", "rollout"]
    why: str
    sampled: frozenset[str]
    entropy_in_update: bool

    @classmethod
    def chosen(cls, config: DictConfig, settings: Settings, dropout: Sequence[str]) -> PiOld:
        """Choose as the config says.

        Args:
            dropout: what the actor's model drops in training (`verl_hooks/dropout.py`); [] where it drops nothing.
        """
        option, chunked = settings.options.old_logp, bool(config.actor_rollout_ref.model.get("use_fused_kernels"))
        if option == "rollout":
            sampled = {"draft", "refined_feedback"}
            if not settings.objective.compares_refined_with_old:  # nothing divides by pi_old of refined_base
                sampled.add("refined_base")
            return cls("rollout", "algorithm.old_logp=rollout", frozenset(sampled), chunked)
        reason = "algorithm.old_logp=recompute"
        if option == "auto":
            reason = _reason_for_pass(config, dropout, chunked) or ""
        return cls("pass" if reason else "update", reason or "one update follows", frozenset(), chunked)


def _reason_for_pass(config: DictConfig, dropout: Sequence[str], chunked: bool) -> str | None:
    """The reason why the log-probs of the update cannot be pi_old; None where they can."""
    actor, correction = config.actor_rollout_ref.actor, config.algorithm.get("rollout_correction")
    if config.data.train_batch_size > actor.ppo_mini_batch_size:  # the parts of separate_async are mini-batches too
        return "a step has several mini-batches"
    if actor.ppo_epochs > 1:
        return "a step has several epochs"
    if correction and correction.get("rollout_is"):
        return "algorithm.rollout_correction weighs by it"
    if dropout:
        return f"the model has dropout ({', '.join(dropout)}), which a pass leaves out"
    if not chunked:
        return "only the chunked head gives the entropy in the update at no cost"
    return None


class OldLogProbs(PPOTrainer, ABC):
    """Computes pi_old of every sequence in the context in which it is trained, where an update needs it."""

    settings: Settings
    parts: StepParts
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
            put_columns(batch, old_log_probs=step.columns.old_log_probs)
            return batch
        data = fetch(batch, "response_mask", "rollout_log_probs")
        sampled = data["rollout_log_probs"]
        step.columns = Columns(data["response_mask"], sampled, sampled)
        step.measured = [False] * len(batch)
        if self.parts.begins:  # the update of a later part tells nothing of the weights before the step
            put_columns(batch, **{PLACES: places(len(batch))})
        if self.pi_old.source == "rollout":
            self._measure_refined(batch, step)
            old = torch.where(
                per_token(step.is_kind(*self.pi_old.sampled), step.columns.mask),
                sampled.values(),
                step.columns.old_log_probs.values(),
            )
            put_columns(batch, old_log_probs=with_values(old, step.columns.mask))
        return batch

    def _measure_refined(self, batch: KVBatchMeta, step: StepBatch) -> None:
        """Compute the log-probs of the refined answers in the base context, in which nothing was sampled."""
        rows = [row for row, is_base in enumerate(step.is_kind("refined_base")) if is_base]
        if not rows or "refined_base" in self.pi_old.sampled:
            return
        others = [row for row in range(len(batch)) if row not in set(rows)]
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


def measure_by_update(workers: Any, pi_old: PiOld, parts: StepParts, batch: KVBatchMeta) -> None:
    """Take from the step's first update what a pass before it would have measured.

    Args:
        workers: the group of the actor's ranks, which have just updated.
        batch: of the part that they have trained.
    """
    step = parts.current
    if step.measured is None or not parts.begins:
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
