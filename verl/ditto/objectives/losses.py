"""The loss of an update: one weighted sum over the sampled tokens of a mini-batch, for verl's `set_loss_fn`.

A part's loss is a function of this file (or of yours): of the micro-batch, the part and the options, it returns the
part's term and metrics. The trainer has computed what every token weighs (`loss_weights.py`), so nothing is averaged
here, and the loss of a mini-batch in which every session failed is 0.

In the docstrings, A is the advantage, p = pi(token), rho = p / pi_old, and pi_T the teacher. KL and entropy terms are
averages, by the same `loss_agg_mode`, over the sampled tokens of all sequences that a part trains.

An objective is read before verl may be imported, so verl's functions are imported where they are called.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ditto.objectives.options import ObjectiveOptions, declare

if TYPE_CHECKING:
    from tensordict import TensorDict
    from torch import Tensor

    from ditto.objectives.spec import Objective, Part

# Columns that the trainer adds to verl's. Jagged; one value per response token unless said otherwise.
ADVANTAGES = "advantages"  # float32: of the token's sequence
LOSS_WEIGHTS = "loss_weights"  # float32: what the token weighs in its policy part; 0: none
ROWS = "row_terms"  # float64, three values per row: part, share and mean of `ditto.batch.sequence_record.RowLoss`
DISTILL_WEIGHTS = "distill_weights"  # float32: what the token weighs in the distillation; 0: none
TEACHER_PROMPTS = "teacher_prompts"  # int64: ids of the prompt in the feedback context, for a teacher that reads it
PLACES = "places"  # int64, one value per row: its number in the batch, where the update is observed (`actor_worker.py`)
TEACHERS = "teachers"  # int64, one value per row, where experts teach: the number of the row's teacher; -1: none
# What the engine adds to a micro-batch before the loss (`ditto/model/teaching.py`).
TEACHER_LOG_PROBS = "teacher_log_probs"  # float32: the teacher's log-prob of the response token
DIVERGENCE = "divergence"  # of the model's output, like its log_probs
# Metrics of verl's policy losses. All micro-batches report the same ones, because verl puts them together by place.
_CLIPPING = ("pg_clipfrac", "pg_clipfrac_lower", "ppo_kl")
_MAX_LOG_RATIO = 20.0  # verl's bound, so that exp stays finite


class MicroBatch:
    """The padded columns of a micro-batch: tensors of shape (rows, tokens), of which `log_prob` alone has gradients."""

    def __init__(self, config: Any, model_output: Mapping[str, Any], data: TensorDict, objective: Objective) -> None:
        from verl.workers.utils.padding import no_padding_2_padding

        self.config, self.objective = config, objective
        self.ranks = int(data["dp_size"])
        self.log_prob = no_padding_2_padding(model_output["log_probs"], data)
        self.entropy, self.divergence = (
            no_padding_2_padding(model_output[name], data) if model_output.get(name) is not None else None
            for name in ("entropy", DIVERGENCE)
        )
        self.part, self.share, self.mean = data[ROWS].values().view(-1, 3, 1).unbind(1)  # (rows, 1) each
        optional = ("old_log_probs", "ref_log_prob", DISTILL_WEIGHTS, TEACHER_LOG_PROBS)
        names = ["response_mask", ADVANTAGES, LOSS_WEIGHTS]
        self.columns = data.select(*names, *(name for name in optional if name in data)).to_padded_tensor()
        self.advantage = self.columns[ADVANTAGES]
        # Without the column this is the only update of the step: pi_old is the policy itself.
        self.old_log_prob = self.columns.get("old_log_probs", self.log_prob.detach())
        self.mask = self.columns["response_mask"].bool()

    @property
    def nothing(self) -> Tensor:
        """A term of 0 with a gradient of 0."""
        return self.log_prob.sum() * 0.0

    def rows_of(self, part: Part) -> Tensor:
        """The tokens that a policy part trains, bool."""
        return (self.part == self.objective.policy_parts.index(part)) & self.mask

    def weighted(self, values: Tensor, column: str = LOSS_WEIGHTS) -> Tensor:
        """The sum of values by a column of weights, times the ranks, because FSDP averages gradients."""
        weights = self.columns[column]
        return (values * weights).where(weights != 0, 0.0).sum() * self.ranks


Term = tuple["Tensor", dict[str, "Tensor | float"]]


def clipped(batch: MicroBatch, part: Part, options: ObjectiveOptions) -> Term:
    """-min(rho A, clip(rho, 1 - low, 1 + high) A), or what actor.policy_loss.loss_mode names instead.

    verl computes it, with our weights as its importance weights; its metrics are means over the part's tokens.
    """
    from verl.trainer.ppo.core_algos import get_policy_loss_fn

    mode, rows = batch.config.policy_loss.get("loss_mode", "vanilla"), batch.rows_of(part)
    if not rows.any():  # verl's metrics would be 0/0
        return batch.nothing, dict.fromkeys(_CLIPPING, 0.0)
    weights = batch.columns[LOSS_WEIGHTS] * rows
    if mode == "sapo":  # always averages over a row's tokens
        weights = weights * rows.sum(-1, keepdim=True)
    batch.config.global_batch_info.update(
        dp_size=batch.ranks, batch_num_tokens=1, global_batch_size=1, loss_scale_factor=1
    )
    value, numbers = get_policy_loss_fn(mode)(
        old_log_prob=batch.old_log_prob,
        log_prob=batch.log_prob,
        advantages=batch.advantage,
        response_mask=rows,
        loss_agg_mode="token-sum",
        config=batch.config,
        rollout_is_weights=weights,
    )
    share = (batch.share * rows).sum() * batch.ranks  # of the part's tokens of the mini-batch
    return value, {name: numbers.get(f"actor/{name}", 0.0) * share for name in _CLIPPING}


def plain(batch: MicroBatch, part: Part, options: ObjectiveOptions) -> Term:
    """-A log p: no ratio and no clipping, so pi_old plays no part. With A = 1, negative log-likelihood."""
    return batch.weighted(-batch.advantage * batch.log_prob * batch.rows_of(part)), {}


@declare(reads=("shaping_gamma",))
def shaped(batch: MicroBatch, part: Part, options: ObjectiveOptions) -> Term:
    """-A p / (p + gamma), Critique-GRPO's policy shaping with pi_old = 1: improbable tokens get a larger gradient."""
    # p / (p + gamma) = sigmoid(log p - log gamma), which stays exact where p underflows.
    values = -batch.advantage * (batch.log_prob - math.log(options.shaping_gamma)).sigmoid()
    return batch.weighted(values * batch.rows_of(part)), {}


@declare(teacher_gives="log_probs", reads=("ratio_clip",))
def distill_token(batch: MicroBatch, part: Part, options: ObjectiveOptions) -> Term:
    """sg[log p - log pi_T] log p at the sampled token: the gradient of KL(pi || pi_T), estimated by one sample."""
    teacher = batch.columns.get(TEACHER_LOG_PROBS, batch.log_prob.detach())
    distance = batch.log_prob - teacher
    return _distillation(batch, distance.detach() * batch.log_prob, distance.abs(), part, options)


@declare(teacher_gives="hidden_states", reads=("ratio_clip", "alpha", "top_k", "tail"))
def distill_logits(batch: MicroBatch, part: Part, options: ObjectiveOptions) -> Term:
    """The divergence of pi and pi_T over the vocabulary or its top k, which the chunked head has computed."""
    # There is none where no rank has a row with a teacher.
    values = batch.log_prob * 0.0 if batch.divergence is None else batch.divergence
    return _distillation(batch, values, values, part, options)


def _distillation(batch: MicroBatch, values: Tensor, distance: Tensor, part: Part, options: ObjectiveOptions) -> Term:
    """The term of a distillation; and its signal, the distance from the teacher.

    Both are multiplied by the detached ratio min(rho, ratio_clip).
    """
    if DISTILL_WEIGHTS not in batch.columns:  # no row of the step has a teacher
        return batch.nothing, {"signal": batch.nothing.detach()}
    log_ratio = (batch.log_prob.detach() - batch.old_log_prob).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)
    ratio = log_ratio.exp().clamp(max=options.comparison(part).ratio_clip)
    signal = batch.weighted((distance * ratio).detach(), DISTILL_WEIGHTS)
    return batch.weighted(values * ratio, DISTILL_WEIGHTS), {"signal": signal}


def objective_loss(
    config: Any,
    model_output: Mapping[str, Any],
    data: TensorDict,
    dp_group: Any = None,
    *,
    objective: Objective,
    options: ObjectiveOptions,
) -> tuple[Tensor, dict[str, Any]]:
    """The loss of one micro-batch with verl's columns and those above, and metrics, of every part too.

    The loss is times the number of ranks, because FSDP averages gradients. `config` is verl's ActorConfig.
    """
    from verl.utils.metric import AggregationType, Metric

    batch = MicroBatch(config, model_output, data, objective)
    metrics: dict[str, Any] = {}
    loss = batch.nothing  # a gradient of 0 where no row counts
    for part in objective.parts:
        value, numbers = part.loss(batch, part, options)
        loss = loss + value
        for name, measured in ({"loss": value} | numbers).items():
            metrics[f"actor/part/{part.name}/{name}"] = measured
    metrics["pg_loss"] = loss
    loss = loss + _regularisation(batch, metrics)
    return loss, {name: Metric(AggregationType.SUM, value) for name, value in metrics.items()}


def _regularisation(batch: MicroBatch, metrics: dict[str, Any]) -> Tensor:
    """KL and entropy terms, as means over all sampled tokens of valid sequences."""
    from verl.trainer.ppo.core_algos import kl_penalty

    config, weights, total = batch.config, batch.mean * batch.mask, batch.nothing
    # The entropy may be there for the trainer's metrics alone; a term of weight 0 would still cost a backward pass.
    if batch.entropy is not None and (config.calculate_entropy or config.entropy_coeff):
        entropy = (batch.entropy * weights).sum() * batch.ranks
        metrics["entropy_loss"] = entropy
        if config.entropy_coeff:
            total = total - config.entropy_coeff * entropy
    if config.use_kl_loss:
        kl = kl_penalty(batch.log_prob, batch.columns["ref_log_prob"], config.kl_loss_type)
        kl = (kl * weights).sum() * batch.ranks
        metrics["kl_loss"] = kl
        total = total + config.kl_loss_coef * kl
    return total
