"""End a run, RL or SFT, whose steps are no longer finite.

verl skips the update of a step whose gradient is NaN or infinite, so a single bad batch does no harm. If the weights
themselves are lost, every later step is the same, and its checkpoints would push the good ones out. So no checkpoint is
written at such a step, and `MOST` of them in a row end the run. The step whose update loses the weights has a finite
loss, so all ranks also look at their weights before they write a checkpoint (`TrainedShards.are_finite`).
"""

import logging
import math
from collections.abc import Mapping
from pathlib import Path

from ditto.run.checkpoint import saved_steps
from soul.errors import RunFailed

logger = logging.getLogger(__name__)
MOST = 3  # steps in a row


class NotFinite(RunFailed):
    """The steps of a run are NaN or infinite."""


def are_finite(metrics: Mapping[str, float], *names: str) -> bool | None:
    """True if these numbers of a step are finite; None if it has none of them, as a step without an update."""
    values = [metrics[name] for name in names if name in metrics]
    return all(map(math.isfinite, values)) if values else None


class FiniteSteps:
    """Counts the steps that are not finite: `in_a_row` of the last ones; 0 after a finite one."""

    def __init__(self) -> None:
        self.in_a_row = 0

    def note(self, step: int, finite: bool | None) -> None:
        """Count a trained step, and warn if it is not finite; None: unknown."""
        if finite is None:
            return
        self.in_a_row = 0 if finite else self.in_a_row + 1
        if not finite:
            logger.warning(
                "Step %d: the loss or its gradient is not finite. Its update is skipped, and no checkpoint is written "
                "(%d such steps in a row; %d end the run)",
                *(step, self.in_a_row, MOST),
            )

    def check(self, step: int, last: bool, root: Path) -> None:
        """End the run if it has had too many of these steps, or if its last step is one. `root`: its checkpoints."""
        if self.in_a_row >= MOST or (self.in_a_row and last):
            raise _not_finite(
                f"{step}: the loss or its gradient is NaN or infinite, {self.in_a_row} steps in a row", root
            )


def require_finite_weights(step: int, finite: bool, root: Path) -> None:
    """End the run instead of writing a checkpoint, unless the trained weights of all ranks are finite."""
    if not finite:
        lost = "its update has made the weights NaN, infinite or immense, so they are not saved"
        raise _not_finite(f"{step}: {lost}", root)


def _not_finite(found: str, root: Path) -> NotFinite:
    left = "No earlier checkpoint exists. Start again"
    if steps := saved_steps(root):
        left = f"The newest checkpoint, {root / f'global_step_{steps[-1]}'}, is older. Start a new run from it"
    return NotFinite(
        f"Step {found}. {left} with a lower learning rate (optim.lr) or a longer warm-up. If it happens at once, look "
        "for NaN in the model's weights."
    )
