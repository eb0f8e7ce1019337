"""End a run, RL or SFT, whose steps are no longer finite.

verl skips the update of a step whose gradient is NaN or infinite, so a single bad batch does no harm. If the weights
themselves are lost, every later step is the same: the run would go on to its end, and its checkpoints would push the
good ones out. So no checkpoint is written at such a step, and `MOST` of them in a row end the run.

The loss and the gradient of the step whose update loses the weights are finite, say at a far too high learning rate. So
all ranks look at their weights before they write a checkpoint (`TrainedShards.are_finite`), and weights that are lost
end the run at once.
"""

from __future__ import annotations

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
    """Counts the steps that are not finite.

    Attributes:
        in_a_row: how many of the last steps are not finite; 0 after a finite one.
    """

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
        """End the run if it has had too many of these steps, or if its last step is one.

        Args:
            root: the folder of the checkpoints.

        Raises:
            NotFinite: names the newest checkpoint, which is older.
        """
        if self.in_a_row >= MOST or (self.in_a_row and last):
            found = f"the loss or its gradient is NaN or infinite, in {self.in_a_row} steps in a row"
            raise NotFinite(f"Step {step}: {found}. {_remedy(root)}")


def require_finite_weights(step: int, finite: bool, root: Path) -> None:
    """End the run instead of writing a checkpoint of weights that are lost.

    Args:
        finite: the trained weights of all ranks are.
        root: the folder of the checkpoints.

    Raises:
        NotFinite: names the newest checkpoint, which is older.
    """
    if not finite:
        found = "its update has made the weights NaN, infinite or immense, so they are not saved"
        raise NotFinite(f"Step {step}: {found}. {_remedy(root)}")


def _remedy(root: Path) -> str:
    if steps := saved_steps(root):
        left = f"The newest checkpoint, {root / f'global_step_{steps[-1]}'}, is older. Start a new run from it"
    else:
        left = "No earlier checkpoint exists. Start again"
    return (
        f"{left} with a lower learning rate (optim.lr) or a longer warm-up. If it happens at once, look for NaN in the "
        "model's weights."
    )
