"""The options of an export."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ExportOptions:
    """Options of the exports.

    Attributes:
        out: the folder for files; None for one in the run's folder.
        step: training step of the evaluated checkpoint, for the x axis of curves.
        project: of Weights & Biases, unless WANDB_PROJECT names one.
        samples: the most samples to put into the table of Weights & Biases.
    """

    out: Path | None = None
    step: int | None = None
    project: str = "soul"
    samples: int = 1000
