"""The loss of any objective on padded tensors, for a trainer of your own. It needs torch and pydantic, no verl.

    import ditto

    sequences = [
        ditto.Sequence("draft", prompt="7", session="7-0", draft_reward=0.2, refined_reward=0.9),
        ditto.Sequence("refined_base", prompt="7", session="7-0", draft_reward=0.2, refined_reward=0.9),
        ditto.Sequence("refined_feedback", prompt="7", session="7-0", draft_reward=0.2, refined_reward=0.9),
        ...                                              # the other sessions of the prompt, and the other prompts
    ]
    loss, metrics = ditto.loss("ditto", sequences, log_probs, mask)
    loss.backward()

It is the trainer's own computation: `plan_losses` says what a token of each sequence weighs, and the functions of
`objectives/losses.py` add up the terms. KL and entropy terms are your trainer's.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Rows
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ditto.batch.loss_plan import plan_losses
from ditto.batch.sequence_record import RowLoss, SequenceRecord
from ditto.model.divergences import token_divergence
from ditto.objectives import objective as objective_of
from ditto.objectives.losses import (
    ADVANTAGES,
    DISTILL_WEIGHTS,
    LOSS_WEIGHTS,
    OLD_LOG_PROBS,
    TEACHER_LOG_PROBS,
    MicroBatch,
    sum_of_parts,
)
from ditto.objectives.options import ComparisonOptions, ObjectiveOptions
from ditto.objectives.spec import Kind, Objective
from soul.errors import SoulError

# Options of a distillation that the caller carries out: whose weights teach, and (`ditto.divergence`) what is compared.
_CALLERS = {f"{section}.{name}" for section in ("sdpo", "distill") for name in ("alpha", "top_k", "tail")} | {
    *("sdpo.teacher", "sdpo.teacher_rate", "distill.teachers")
}


class BadBatch(SoulError):
    """The tensors, the sequences or the options do not fit together."""


@dataclass(frozen=True)
class Sequence:
    """A sequence that is trained, in one context.

    Attributes:
        kind: "draft" (the draft without feedback), "refined_base" (the refined answer without the feedback in its
            prompt), or "refined_feedback" (the refined answer with it).
        prompt: the group; sequences of the same prompt are compared.
        session: a draft and its refined answer; unique among all prompts.
        draft_reward, refined_reward: of the session; None: no verdict. A sequence without its reward is left out of
            every mean.
        taught: a teacher scores it; False for a draft without feedback. It matters to a distillation alone.
    """

    kind: Kind
    prompt: str
    session: str
    draft_reward: float | None
    refined_reward: float | None = None
    taught: bool = True


@dataclass(frozen=True)
class Clipping:
    """The bounds of the clipped loss, with verl's names; the defaults are the recipe's."""

    clip_ratio_low: float = 0.2
    clip_ratio_high: float = 0.28
    clip_ratio_c: float = 10.0
    policy_loss: Mapping[str, Any] = field(default_factory=dict, init=False, repr=False)  # the clipped loss alone


def loss(
    objective: str | Objective,
    sequences: Rows[Sequence],
    log_probs: Tensor,
    mask: Tensor,
    *,
    rows: Rows[int] | None = None,
    old_log_probs: Tensor | None = None,
    teacher_log_probs: Tensor | None = None,
    divergence: Tensor | None = None,
    options: Mapping[str, Any] | None = None,
    clipping: Clipping = Clipping(),
    loss_agg_mode: str = "token-mean",
    loss_scale_factor: float = 1.0,
) -> tuple[Tensor, dict[str, float]]:
    """The loss of one optimizer update, or of some of its rows.

    Args:
        objective: the name of one (docs/objectives.md), or one of your own.
        sequences: all that belong to the update.
        log_probs: (rows, tokens), log pi of each response token, with gradients.
        mask: bool, (sequences, tokens), True for tokens that the policy sampled, of all sequences.
        rows: which sequences the other tensors hold; None: all. The losses of micro-batches that share no row add up
            to the loss of the update, and so do their gradients and metrics.
        old_log_probs: (rows, tokens), log pi_old in the same context; None: this is the first update after sampling.
        teacher_log_probs: (rows, tokens), log pi_T, for `sdpo_token` and `on_policy_distillation`.
        divergence: (rows, tokens), from `ditto.divergence`, for the objectives that compare logits.
        options: those of `algorithm` that the objective reads: {"std_floor": 0.5, "sdpo": {"weight": 0.3}}.
        loss_agg_mode, loss_scale_factor: verl's (`objectives/loss_weights.py`).

    Returns:
        The loss, a scalar with gradients; and metrics of each part, `<part>/loss` and `<part>/pg_clipfrac` among them.

    Raises:
        BadBatch: shapes or rows that do not fit, or an option that the objective does not read.
        UnknownObjective: with the nearest names.
    """
    chosen = objective_of(objective) if isinstance(objective, str) else objective
    checked = _options(chosen, options or {})
    numbers = list(range(len(sequences)) if rows is None else rows)
    given = {"log_probs": log_probs, "old_log_probs": old_log_probs, "divergence": divergence}
    given["teacher_log_probs"] = teacher_log_probs
    _check(chosen, len(sequences), mask, numbers, given)
    lengths = mask.sum(-1).tolist()
    records = [_record(each, int(tokens)) for each, tokens in zip(sequences, lengths, strict=True)]
    planned = plan_losses(records, [0] * len(records), chosen, checked, loss_agg_mode, loss_scale_factor)
    batch = _micro_batch(chosen, clipping, [planned[row].loss for row in numbers], mask[numbers], given)
    value, metrics = sum_of_parts(batch, checked)
    return value, {name.removeprefix("actor/part/"): float(torch.as_tensor(n).detach()) for name, n in metrics.items()}


def divergence(
    logits: Tensor, teacher_logits: Tensor, options: Mapping[str, Any] | None = None, *, temperature: float = 1.0
) -> Tensor:
    """The divergence of the policy from its teacher at each token, for `sdpo_logits` and the like.

    Args:
        logits: (rows, tokens, vocabulary), with gradients.
        teacher_logits: the same shape.
        options: `alpha`, `top_k` and `tail` of `algorithm.sdpo`, whose defaults they have.

    Returns:
        (rows, tokens), in nats.
    """
    chosen = ComparisonOptions(**(options or {}))
    student, teacher = ((each / temperature).log_softmax(-1) for each in (logits, teacher_logits.detach()))
    return token_divergence(student, teacher, chosen.alpha, chosen.top_k, chosen.tail)


def _options(objective: Objective, options: Mapping[str, Any]) -> ObjectiveOptions:
    """The options, checked: each must be one that the objective reads."""
    named = [
        f"{name}.{inner}" if isinstance(value, Mapping) else name
        for name, value in options.items()
        for inner in (value if isinstance(value, Mapping) else (name,))
    ]
    read = objective.options - _CALLERS
    if unread := [name for name in named if name not in read]:
        raise BadBatch(
            f"options: the loss of {objective.name} does not read {', '.join(unread)}. "
            f"It reads {', '.join(sorted(read)) or 'none'}."
        )
    return ObjectiveOptions(**options)


def _check(
    objective: Objective, sequences: int, mask: Tensor, rows: Rows[int], given: Mapping[str, Tensor | None]
) -> None:
    """Refuse tensors that do not fit, and those that the objective needs or cannot use."""
    if mask.dim() != 2 or len(mask) != sequences:
        raise BadBatch(f"mask: expected shape ({sequences}, tokens), one row for each sequence, not {(*mask.shape,)}")
    if len(set(rows)) != len(rows) or not set(rows) <= set(range(sequences)):
        raise BadBatch(f"rows: expected different numbers from 0 to {sequences - 1}, not {list(rows)}")
    shape = (len(rows), mask.shape[1])
    for name, tensor in given.items():
        if tensor is not None and tensor.shape != shape:
            raise BadBatch(f"{name}: expected shape {shape} (rows, tokens), not {(*tensor.shape,)}")
    needs = {part.teacher_gives for part in objective.parts}
    for name, needed in (("teacher_log_probs", "log_probs"), ("divergence", "hidden_states")):
        if (given[name] is None) == (needed in needs):
            raise BadBatch(f"{name}: {objective.name} {'needs' if needed in needs else 'does not read'} it")


def _record(sequence: Sequence, tokens: int) -> SequenceRecord:
    """The sequence as the trainer's plan reads it."""
    reward = sequence.draft_reward if sequence.kind == "draft" else sequence.refined_reward
    return SequenceRecord(
        kind=sequence.kind,
        prompt=sequence.prompt,
        session=sequence.session,
        valid=reward is not None,
        tokens=tokens,
        draft_reward=sequence.draft_reward,
        refined_reward=sequence.refined_reward,
        teacher_prompt=(0,) if sequence.taught and sequence.kind == "draft" else (),  # stands for its ids
    )


def _micro_batch(
    objective: Objective, clipping: Clipping, losses: Rows[RowLoss], mask: Tensor, given: Mapping[str, Tensor | None]
) -> MicroBatch:
    """The columns of these rows as the trainer's engine would give them."""
    log_probs = given["log_probs"]
    assert log_probs is not None

    def column(values: list[float], like: Tensor = log_probs) -> Tensor:
        return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]

    columns = {
        ADVANTAGES: column([each.advantage for each in losses]) * mask,
        LOSS_WEIGHTS: column([each.weight for each in losses]) * mask,
        DISTILL_WEIGHTS: column([each.distill_weight for each in losses]) * mask,
        OLD_LOG_PROBS: given["old_log_probs"],
        TEACHER_LOG_PROBS: given["teacher_log_probs"],
    }
    if objective.distillation is None:
        del columns[DISTILL_WEIGHTS]
    return MicroBatch(
        clipping,
        objective,
        log_probs,
        {name: values for name, values in columns.items() if values is not None},
        column([each.part for each in losses]),
        column([each.share for each in losses]),
        column([each.mean for each in losses]),
        mask.bool(),
        divergence=given["divergence"],
    )
