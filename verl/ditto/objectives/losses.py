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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ditto.objectives.options import ObjectiveOptions, declare

if TYPE_CHECKING:
    from tensordict import TensorDict
    from torch import Tensor

    from ditto.objectives.spec import Objective, Part

# Columns that the trainer adds to verl's. Jagged; one value per response token unless said otherwise.
OLD_LOG_PROBS = "old_log_probs"  # float32: log pi_old of the token
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
_MAX_LOG_RATIO = 20.0


@dataclass
class MicroBatch:
    """The padded columns of a micro-batch, tensors of shape (rows, tokens), of which `log_prob` alone has gradients.

    Attributes:
        config: verl's ActorConfig, or as much of it as the losses read.
        columns: by the names above, and `old_log_probs`; without it this is the only update of the step.
        part, share, mean: (rows, 1), of `ditto.batch.sequence_record.RowLoss`.
        mask: bool, the sampled tokens.
        ranks: among which the mini-batch is split.
    """

    config: Any
    objective: Objective
    log_prob: Tensor
    columns: Mapping[str, Tensor]
    part: Tensor
    share: Tensor
    mean: Tensor
    mask: Tensor
    entropy: Tensor | None = None
    divergence: Tensor | None = None
    ranks: int = 1

    @classmethod
    def of_verl(
        cls, config: Any, model_output: Mapping[str, Any], data: TensorDict, objective: Objective
    ) -> MicroBatch:
        """Pad the columns that verl's engine gives."""
        from verl.workers.utils.padding import no_padding_2_padding

        entropy, divergence = (
            no_padding_2_padding(model_output[name], data) if model_output.get(name) is not None else None
            for name in ("entropy", DIVERGENCE)
        )
        optional = (OLD_LOG_PROBS, "ref_log_prob", DISTILL_WEIGHTS, TEACHER_LOG_PROBS)
        names = ["response_mask", ADVANTAGES, LOSS_WEIGHTS, *(name for name in optional if name in data)]
        columns = data.select(*names).to_padded_tensor()
        part, share, mean = data[ROWS].values().view(-1, 3, 1).unbind(1)
        return cls(
            config,
            objective,
            no_padding_2_padding(model_output["log_probs"], data),
            columns,
            part,
            share,
            mean,
            columns["response_mask"].bool(),
            entropy,
            divergence,
            int(data["dp_size"]),
        )

    @property
    def advantage(self) -> Tensor:
        """A."""
        return self.columns[ADVANTAGES]

    @property
    def old(self) -> Tensor:
        """log pi_old."""
        return self.columns.get(OLD_LOG_PROBS, self.log_prob.detach())

    @property
    def log_ratio(self) -> Tensor:
        """log rho, bounded as verl bounds it, so that exp stays finite."""
        return (self.log_prob - self.old).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO)

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


@declare(divides=True)
def clipped(batch: MicroBatch, part: Part, options: ObjectiveOptions) -> Term:
    """-min(rho A, clip(rho, 1 - low, 1 + high) A), or verl's `gspo` or `cispo` (actor.policy_loss.loss_mode).

    Where A < 0, a token's term is at most -c A (dual clip: Ye et al. 2020, https://arxiv.org/abs/1912.09729). Metrics
    are means over the part's tokens, with verl's names.
    """
    mode, rows = batch.config.policy_loss.get("loss_mode", "vanilla"), batch.rows_of(part)
    if mode != "vanilla":
        return _verls(mode, batch, rows)
    config, advantage, log_ratio = batch.config, batch.advantage, batch.log_ratio
    low, high = (
        config.clip_ratio if bound is None else bound for bound in (config.clip_ratio_low, config.clip_ratio_high)
    )
    ratio = log_ratio.exp()
    free, bound = -advantage * ratio, -advantage * ratio.clamp(1 - low, 1 + high)
    values, most = free.maximum(bound), -advantage * config.clip_ratio_c
    numbers = (bound > free, (values > most) & (advantage < 0), -log_ratio.detach())
    share = batch.share * rows * batch.ranks  # of the part's tokens of the mini-batch
    value = batch.weighted(values.minimum(most).where(advantage < 0, values) * rows)
    return value, {name: (number * share).sum() for name, number in zip(_CLIPPING, numbers, strict=True)}


def _verls(mode: str, batch: MicroBatch, rows: Tensor) -> Term:
    """Another policy loss of verl, with our weights as its importance weights."""
    from verl.trainer.ppo.core_algos import get_policy_loss_fn

    if not rows.any():  # verl's metrics would be 0/0
        return batch.nothing, dict.fromkeys(_CLIPPING, 0.0)
    weights = batch.columns[LOSS_WEIGHTS] * rows
    config = batch.config
    config.global_batch_info.update(dp_size=batch.ranks, batch_num_tokens=1, global_batch_size=1, loss_scale_factor=1)
    value, numbers = get_policy_loss_fn(mode)(
        old_log_prob=batch.old,
        log_prob=batch.log_prob,
        advantages=batch.advantage,
        response_mask=rows,
        loss_agg_mode="token-sum",
        config=config,
        rollout_is_weights=weights,
    )
    share = (batch.share * rows).sum() * batch.ranks
    return value, {name: numbers.get(f"actor/{name}", 0.0) * share for name in _CLIPPING}


@declare(divides=True)
def unclipped(batch: MicroBatch, part: Part, options: ObjectiveOptions) -> Term:
    """-rho A: importance sampling alone."""
    return batch.weighted(-batch.advantage * batch.log_ratio.exp() * batch.rows_of(part)), {}


@declare(divides=True, reads=("rltf.min_log_prob",))
def unclipped_likely(batch: MicroBatch, part: Part, options: ObjectiveOptions) -> Term:
    """-rho A of the tokens with log pi_old >= `rltf.min_log_prob`; and `masked`, the share of the others."""
    rows = batch.rows_of(part)
    likely = rows & (batch.old >= options.rltf.min_log_prob)
    masked = (batch.share * (rows & ~likely)).sum() * batch.ranks
    return batch.weighted(-batch.advantage * batch.log_ratio.exp() * likely), {"masked": masked}


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
    ratio = batch.log_ratio.detach().exp().clamp(max=options.comparison(part).ratio_clip)
    signal = batch.weighted((distance * ratio).detach(), DISTILL_WEIGHTS)
    return batch.weighted(values * ratio, DISTILL_WEIGHTS), {"signal": signal}


def sum_of_parts(batch: MicroBatch, options: ObjectiveOptions) -> tuple[Tensor, dict[str, Any]]:
    """The loss of a micro-batch without KL and entropy terms, and the metrics of every part."""
    metrics: dict[str, Any] = {}
    loss = batch.nothing  # a gradient of 0 where no row counts
    for part in batch.objective.parts:
        value, numbers = part.loss(batch, part, options)
        loss = loss + value
        for name, measured in ({"loss": value} | numbers).items():
            metrics[f"actor/part/{part.name}/{name}"] = measured
    return loss, metrics


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

    batch = MicroBatch.of_verl(config, model_output, data, objective)
    loss, metrics = sum_of_parts(batch, options)
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
