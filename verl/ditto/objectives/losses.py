"""The loss of an update: one weighted sum over the sampled tokens of a mini-batch, for verl's `set_loss_fn`.

The trainer has computed what every token weighs (`loss_weights.py`), so nothing is averaged here, and the loss of a
mini-batch in which every session failed is 0. verl computes the clipped terms by `actor.policy_loss.loss_mode`, with
our weights as its importance weights; `terms.py` has the others.

KL and entropy terms are averages, by the same `loss_agg_mode`, over the sampled tokens of all sequences that a part
trains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.trainer.ppo.core_algos import get_policy_loss_fn, kl_penalty
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import no_padding_2_padding

from ditto.objectives import terms
from ditto.objectives.options import ObjectiveOptions
from ditto.objectives.spec import Objective

# Columns that the trainer adds to verl's. Jagged; one value a response token unless said otherwise.
ADVANTAGES = "advantages"  # float32: of the token's sequence
LOSS_WEIGHTS = "loss_weights"  # float32: what the token weighs in its policy part; 0: none
ROWS = "row_terms"  # float64, three values a row: `ditto.batch.loss_plan.RowTerms`
DISTILL_WEIGHTS = "distill_weights"  # float32: what the token weighs in the distillation; 0: none
STYLE = "style_tokens"  # float32: 1 for a style token (`ditto.batch.style_signal`); beside DISTILL_WEIGHTS
TEACHER_PROMPTS = "teacher_prompts"  # int64: ids of the prompt in the feedback context, for a teacher that reads it
PLACES = "places"  # int64, one value a row: its number in the batch, where the update is observed (`update_outputs.py`)
TEACHERS = "teachers"  # int64, one value a row, where experts teach: the number of the row's teacher; -1: none
# Metrics of verl's policy losses. All micro-batches report the same ones, because verl puts them together by place.
_CLIPPING = ("pg_clipfrac", "pg_clipfrac_lower", "ppo_kl")
# What the engine adds to a micro-batch before the loss (`ditto/model/teaching.py`).
TEACHER_LOG_PROBS = "teacher_log_probs"  # float32: the teacher's log-prob of the response token
DIVERGENCE = "divergence"  # of the model's output, like its log_probs


def objective_loss(
    config: Any,
    model_output: Mapping[str, Any],
    data: TensorDict,
    dp_group: Any = None,
    *,
    objective: Objective,
    options: ObjectiveOptions,
) -> tuple[Tensor, dict[str, Any]]:
    """The loss of one micro-batch.

    Args:
        config: verl's ActorConfig.
        model_output: what the engine returns, with `log_probs` of all tokens, and DIVERGENCE for "distill_logits".
        data: a micro-batch with verl's columns and those above.

    Returns:
        The loss, times the number of ranks because FSDP averages gradients; and metrics, of every part too.
    """
    micro_batch = _MicroBatch(config, model_output, data, objective)
    metrics: dict[str, Any] = {}
    loss = micro_batch.log_prob.sum() * 0.0  # a gradient of 0 where no row counts
    for number, part in enumerate(objective.policy_parts):
        rows = micro_batch.part_rows(number)
        if part.loss == "clipped":
            value, numbers = micro_batch.clipped(rows)
        else:
            advantage, log_prob = micro_batch.columns[ADVANTAGES], micro_batch.log_prob
            if part.loss == "plain":
                values = terms.plain(log_prob, advantage)
            else:
                values = terms.shaped(log_prob, advantage, options.shaping_gamma)
            value, numbers = micro_batch.weighted(values * rows, LOSS_WEIGHTS), {}
        loss = loss + value
        for name, measured in ({"loss": value} | numbers).items():
            metrics[f"actor/part/{part.name}/{name}"] = measured
    if objective.distillation is not None:
        ratio_clip = options.comparison(objective.distillation).ratio_clip
        value, numbers = micro_batch.distillation(objective.distillation.loss, ratio_clip)
        loss = loss + value
        for name, measured in ({"loss": value} | numbers).items():
            metrics[f"actor/part/{objective.distillation.name}/{name}"] = measured
    metrics["pg_loss"] = loss
    loss = loss + micro_batch.regularisation(metrics)
    return loss, {name: Metric(AggregationType.SUM, value) for name, value in metrics.items()}


class _MicroBatch:
    """The padded columns of a micro-batch, and its terms. Every term is a sum over tokens times the ranks."""

    def __init__(self, config: Any, model_output: Mapping[str, Any], data: TensorDict, objective: Objective) -> None:
        self.config = config
        self.ranks = int(data["dp_size"])
        self.log_prob = no_padding_2_padding(model_output["log_probs"], data)
        self.entropy, self.divergence = (
            no_padding_2_padding(model_output[name], data) if model_output.get(name) is not None else None
            for name in ("entropy", DIVERGENCE)
        )
        self.part, self.share, self.mean = data[ROWS].values().view(-1, 3, 1).unbind(1)  # (rows, 1) each
        optional = ("old_log_probs", "ref_log_prob", DISTILL_WEIGHTS, STYLE, TEACHER_LOG_PROBS)
        names = ["response_mask", ADVANTAGES, LOSS_WEIGHTS]
        self.columns = data.select(*names, *(name for name in optional if name in data)).to_padded_tensor()
        # Without the column this is the only update of the step: pi_old is the policy itself.
        self.old_log_prob = self.columns.get("old_log_probs", self.log_prob.detach())
        self.mask = self.columns["response_mask"].bool()

    def part_rows(self, number: int) -> Tensor:
        """The tokens that the policy part of this number trains, bool of shape (rows, tokens)."""
        return (self.part == number) & self.mask

    def weighted(self, values: Tensor, weights: str) -> Tensor:
        """The sum of values by a column of weights."""
        weighted = torch.where(self.columns[weights] != 0, values * self.columns[weights], 0.0)
        return weighted.sum() * self.ranks

    def clipped(self, rows: Tensor) -> tuple[Tensor, dict[str, Any]]:
        """verl's policy loss over these tokens, and its metrics as means over the part's tokens of the mini-batch."""
        mode = self.config.policy_loss.get("loss_mode", "vanilla")
        if not rows.any():  # verl's metrics would be 0/0
            return self.log_prob.sum() * 0.0, dict.fromkeys(_CLIPPING, 0.0)
        weights = self.columns[LOSS_WEIGHTS] * rows
        if mode == "sapo":  # always averages over a row's tokens
            weights = weights * rows.sum(-1, keepdim=True)
        self.config.global_batch_info.update(
            dp_size=self.ranks, batch_num_tokens=1, global_batch_size=1, loss_scale_factor=1
        )
        value, numbers = get_policy_loss_fn(mode)(
            old_log_prob=self.old_log_prob,
            log_prob=self.log_prob,
            advantages=self.columns[ADVANTAGES],
            response_mask=rows,
            loss_agg_mode="token-sum",
            config=self.config,
            rollout_is_weights=weights,
        )
        share = (self.share * rows).sum() * self.ranks  # of the part's tokens of the mini-batch
        return value, {name: numbers.get(f"actor/{name}", 0.0) * share for name in _CLIPPING}

    def distillation(self, loss: str, ratio_clip: float) -> tuple[Tensor, dict[str, Tensor]]:
        """The distillation's term; and its signal, the distance from the teacher, over all and over style tokens."""
        if DISTILL_WEIGHTS not in self.columns:  # no row of the step has a teacher
            nothing = self.log_prob.sum() * 0.0
            return nothing, {"signal": nothing.detach(), "style_signal": nothing.detach()}
        if loss == "distill_logits":
            # None where no rank has a row with a teacher
            values = distance = self.log_prob * 0.0 if self.divergence is None else self.divergence
        else:
            teacher = self.columns[TEACHER_LOG_PROBS]
            values, distance = terms.distill_token(self.log_prob, teacher), (self.log_prob - teacher).abs()
        ratio = terms.bounded_ratio(self.log_prob, self.old_log_prob, ratio_clip)
        signal = (distance * ratio).detach()
        numbers = {"signal": self.weighted(signal, DISTILL_WEIGHTS)}
        if STYLE in self.columns:
            numbers["style_signal"] = self.weighted(signal * self.columns[STYLE], DISTILL_WEIGHTS)
        return self.weighted(values * ratio, DISTILL_WEIGHTS), numbers

    def regularisation(self, metrics: dict[str, Any]) -> Tensor:
        """KL and entropy terms, as means over all sampled tokens of valid sequences."""
        weights = self.mean * self.mask
        total = self.log_prob.sum() * 0.0
        # It may be there for the trainer's metrics alone; a term of weight 0 would still cost a backward pass.
        if self.entropy is not None and (self.config.calculate_entropy or self.config.entropy_coeff):
            entropy = (self.entropy * weights).sum() * self.ranks
            metrics["entropy_loss"] = entropy
            if self.config.entropy_coeff:
                total = total - self.config.entropy_coeff * entropy
        if self.config.use_kl_loss:
            kl = kl_penalty(self.log_prob, self.columns["ref_log_prob"], self.config.kl_loss_type)
            kl = (kl * weights).sum() * self.ranks
            metrics["kl_loss"] = kl
            total = total + self.config.kl_loss_coef * kl
        return total
