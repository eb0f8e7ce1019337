"""How much each sequence weighs in the loss, so that each part of an objective is aggregated over its own tokens.

verl aggregates one sum over all sequences of a mini-batch and divides it by one number: the tokens of the mini-batch
(`token-mean`) or its sequences that have any (`seq-mean-*`; see `losses.py`). An objective with several
parts divides each part by its own number. So a sequence of a part weighs

    weight of the part * (what verl divides by) / (the same count over the part's valid sequences)

and verl's own loss, multiplied by these weights per sequence, is sum over parts of (weight of the part) * L_part: for
every split into micro-batches and over any number of ranks. For one part that holds everything the weights are 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_BY_TOKENS = ("token-mean",)
_BY_SEQUENCES = ("seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")
LOSS_AGG_MODES = _BY_TOKENS + _BY_SEQUENCES


def sequence_weights(
    parts: Sequence[str | None], tokens: Sequence[int], part_weights: Mapping[str, float], loss_agg_mode: str
) -> list[float]:
    """Weights of the sequences of ONE mini-batch, over all ranks.

    Args:
        parts: the part each sequence belongs to; None for invalid sequences and padding, which weigh 0.
        tokens: how many tokens of each sequence verl counts (the sum of its mask; >= 0).
        part_weights: the weight of each part's loss term.
        loss_agg_mode: verl's `actor.loss_agg_mode`, one of LOSS_AGG_MODES.

    Raises:
        ValueError: an aggregation mode that has no per-part form.
    """
    if loss_agg_mode not in LOSS_AGG_MODES:
        raise ValueError(f"actor.loss_agg_mode={loss_agg_mode!r}: use {', '.join(LOSS_AGG_MODES)}")
    by_tokens = loss_agg_mode in _BY_TOKENS
    total = sum(tokens) if by_tokens else counted_sequences(tokens)
    counts: dict[str, int] = {}
    for part, n in zip(parts, tokens, strict=True):
        if part is not None and n > 0:
            counts[part] = counts.get(part, 0) + (n if by_tokens else 1)
    return [
        part_weights[part] * total / counts[part] if part is not None and n > 0 else 0.0
        for part, n in zip(parts, tokens, strict=True)
    ]


def counted_sequences(tokens: Sequence[int]) -> int:
    """How many sequences of a mini-batch have a token that is counted."""
    return sum(n > 0 for n in tokens)
