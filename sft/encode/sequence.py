"""A training sequence as token ids. Knows no tokenizer: what reads sequences needs none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class EncodedSequence:
    """A training sequence.

    Attributes:
        ids: what the model reads.
        spans: the trained tokens, as half-open ranges, ascending.
    """

    ids: list[int]
    spans: list[tuple[int, int]]

    @property
    def trained(self) -> int:
        """How many tokens are trained."""
        return sum(stop - start for start, stop in self.spans)
