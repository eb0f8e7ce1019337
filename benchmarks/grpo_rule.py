"""What both sides of benchmarks/grpo_vs_trl.py share. Plain Python: TRL's interpreter reads it too."""

from __future__ import annotations

from collections.abc import Sequence

LEARNING_RATE = 1e-6


def reward(answer: Sequence[int]) -> float:
    """How many of the answer's tokens are even numbers: its spread is far above what either side adds to it."""
    return float(sum(token % 2 == 0 for token in answer))
