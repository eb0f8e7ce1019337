"""A training sequence as token ids, and what happens to one that is longer than the limit: dropped, cut, or an error.

The corpus's counts show what happened. `truncate` removes whole trained turns from the end until the rest fits. If not
even the first trained turn fits, that turn is cut at the limit. Nothing is cut from the beginning: a trained token
keeps the context it was written in.
"""

from dataclasses import dataclass
from typing import Literal

from soul.errors import SoulError

Overlong = Literal["drop", "truncate", "error"]


@dataclass(frozen=True)
class EncodedSequence:
    """A training sequence.

    Attributes:
        ids: the token ids that the model reads.
        spans: the trained tokens, as half-open ranges, ascending.
        starts: where its documents begin; a conversation is one. Attention and positions start again there.
    """

    ids: list[int]
    spans: list[tuple[int, int]]
    starts: tuple[int, ...] = (0,)

    @property
    def trained(self) -> int:
        """Number of trained tokens."""
        return sum(stop - start for start, stop in self.spans)


class TooLong(SoulError):
    """A sequence is longer than the limit, or the limit longer than the model's context."""


def shorten(sequence: EncodedSequence, limit: int, policy: Overlong) -> EncodedSequence | None:
    """Fit a sequence into the limit; None if it is dropped."""
    if len(sequence.ids) <= limit:
        return sequence
    if policy == "error":
        raise TooLong(
            f"a sequence of {len(sequence.ids):,} tokens exceeds max_prompt_length + max_response_length = {limit:,}. "
            "Raise them, or set data.overlong to drop or truncate."
        )
    if policy == "drop":
        return None
    whole = [span for span in sequence.spans if span[1] <= limit]
    if whole:
        return EncodedSequence(sequence.ids[: whole[-1][1]], whole)
    start = sequence.spans[0][0]
    return EncodedSequence(sequence.ids[:limit], [(start, limit)]) if start < limit else None


def check_context(limit: int, context: int | None) -> None:
    """Check that the model has enough positions (`context`; None: unknown) for sequences of `limit` tokens."""
    if context is not None and limit > context:
        raise TooLong(
            f"data.max_prompt_length + data.max_response_length = {limit:,} tokens, but the model has a context of "
            f"{context:,}. Lower data.max_prompt_length, or use a model with a longer context."
        )
