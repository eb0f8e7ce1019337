"""The weight of each sampled token in the loss, so that each part of an objective is averaged over its own tokens.

The loss of a mini-batch is one weighted sum over the sampled tokens of all its sequences. `actor.loss_agg_mode` says
what one token of a part weighs. With T tokens and S sequences in what the part averages over, and n tokens in the row:

    token-mean               1 / T
    seq-mean-token-mean      1 / (S n)
    seq-mean-token-sum       1 / S
    seq-mean-token-sum-norm  1 / (S actor.loss_scale_factor)

times the part's weight. As the sum is over the whole mini-batch, it does not depend on the split into micro-batches or
on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence

SCALED = "seq-mean-token-sum-norm"  # the one that reads actor.loss_scale_factor
LOSS_AGG_MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", SCALED)


def row_weights(tokens: Sequence[int], members: Sequence[int], mode: str, scale: float = 1.0) -> dict[int, float]:
    """The weight of one sampled token of each row, in the average over `members`.

    Args:
        tokens: sampled tokens of every row of ONE mini-batch, over all ranks (>= 0).
        members: the rows that are averaged over; those without a token do not count.
        mode: one of LOSS_AGG_MODES.
        scale: verl's `actor.loss_scale_factor`, for seq-mean-token-sum-norm.
    """
    if mode not in LOSS_AGG_MODES:
        raise ValueError(f"actor.loss_agg_mode={mode!r}: use {', '.join(LOSS_AGG_MODES)}")
    rows = [i for i in members if tokens[i] > 0]
    if mode == "token-mean":
        total = sum(tokens[i] for i in rows)
        return dict.fromkeys(rows, 1.0 / total) if rows else {}
    if mode == "seq-mean-token-mean":
        return {i: 1.0 / (len(rows) * tokens[i]) for i in rows}
    divisor = len(rows) * (scale if mode == SCALED else 1.0)
    return {i: 1.0 / divisor for i in rows}
