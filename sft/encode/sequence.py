"""A training sequence as token ids. Independent of any tokenizer, so that readers of the store need none."""

from __future__ import annotations

from dataclasses import dataclass


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
