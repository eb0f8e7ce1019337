"""What a step spends on groups and sequences that teach nothing, and what it saves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class GroupCounts:
    """Counts of a step, or of a part of it; a group is all sessions of a prompt.

    Attributes:
        idle: groups of the batch from which the objective learns nothing.
        dropped: groups that were replaced (`ditto/rollout/group_filter.py`).
        tokens_dropped: tokens that the policy sampled for replaced groups.
        skipped: sequences without a forward pass; None without `algorithm.skip_idle`.
        tokens_skipped, tokens: of these sequences, and of all sequences before them, prompts included.
        groups: groups of the batch.
    """

    idle: int = 0
    dropped: int = 0
    tokens_dropped: int = 0
    skipped: int | None = None
    tokens_skipped: int = 0
    tokens: int = 0
    groups: int = 0

    @classmethod
    def total(cls, parts: Iterable[GroupCounts]) -> GroupCounts:
        """The counts of all parts of a step."""
        each = list(parts)
        skipped = [part.skipped for part in each if part.skipped is not None]
        return cls(
            groups=sum(part.groups for part in each),
            idle=sum(part.idle for part in each),
            dropped=sum(part.dropped for part in each),
            tokens_dropped=sum(part.tokens_dropped for part in each),
            skipped=sum(skipped) if skipped else None,
            tokens_skipped=sum(part.tokens_skipped for part in each),
            tokens=sum(part.tokens for part in each),
        )

    def metrics(self) -> dict[str, float]:
        """The counts as metrics of the step."""
        numbers = {
            "ditto/groups": float(self.groups),
            "ditto/groups_idle": float(self.idle),
            "ditto/groups_dropped": float(self.dropped),
            "ditto/tokens_dropped": float(self.tokens_dropped),
        }
        if self.skipped is not None:
            numbers["ditto/sequences_skipped"] = float(self.skipped)
            numbers["ditto/share_tokens_skipped"] = self.tokens_skipped / self.tokens if self.tokens else 0.0
        return numbers


def skipped_of(lengths: Sequence[int], kept: Sequence[int]) -> dict[str, int]:
    """The counts of `StepBatch.skip_idle`.

    Args:
        lengths: tokens of every row before it, prompts included.
        kept: the rows that stay.
    """
    tokens = sum(lengths)
    return {
        "skipped": len(lengths) - len(kept),
        "tokens_skipped": tokens - sum(lengths[row] for row in kept),
        "tokens": tokens,
    }
