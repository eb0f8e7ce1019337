"""Jagged columns: one value per token, rows of different lengths, stored as one flat tensor and the rows' offsets.

The trainer works on the flat values. Unbinding a jagged tensor makes one view per row, so unbinding inside a loop over
rows takes time quadratic in the batch (29 s at 512 sessions). Padding takes the longest row's memory for every row.
"""

from collections.abc import Sequence

import torch


def jagged(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    """A jagged tensor of rows, each of shape (tokens,)."""
    return torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)


def with_values(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A jagged tensor of the same rows as `like`, with other values (shape (all tokens,))."""
    lengths = row_lengths(like)  # without them torch pads to all tokens instead of the longest row
    low, high = int(lengths.min()), int(lengths.max())
    return torch.nested.nested_tensor_from_jagged(values, like.offsets(), min_seqlen=low, max_seqlen=high)


def concatenated(columns: Sequence[torch.Tensor]) -> torch.Tensor:
    """One jagged tensor with the rows of all of them."""
    lengths = torch.cat([row_lengths(column) for column in columns])
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    values = torch.cat([column.values() for column in columns])
    low, high = int(lengths.min()), int(lengths.max())
    return torch.nested.nested_tensor_from_jagged(values, offsets, min_seqlen=low, max_seqlen=high)


def row_lengths(column: torch.Tensor) -> torch.Tensor:
    """Tokens of each row, int64 of shape (rows,)."""
    lengths: torch.Tensor = column.offsets().diff()
    return lengths


def response_tokens(column: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """A model's outputs for the response tokens alone.

    Args:
        column: jagged, one value per token of prompt and response; the output at a token is about the next token.
        mask: jagged, one value per response token.

    Returns:
        Jagged, with the rows of `mask`: the model's output about each response token, at the token before it.
    """
    lengths, starts = row_lengths(mask), mask.offsets()[:-1]
    shift = column.offsets()[1:] - lengths - 1 - starts  # from an index into `mask` to the index into `column`
    indices = torch.arange(int(mask.offsets()[-1]), device=shift.device) + shift.repeat_interleave(lengths)
    return with_values(column.values()[indices], mask)


def per_token(row_values: Sequence[float] | Sequence[bool], like: torch.Tensor) -> torch.Tensor:
    """Each row's value at each of its tokens: float32 or bool of shape (all tokens,)."""
    values = torch.tensor(row_values, dtype=torch.bool if isinstance(row_values[0], bool) else torch.float32)
    return values.repeat_interleave(row_lengths(like))
