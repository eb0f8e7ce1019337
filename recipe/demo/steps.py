"""The steps of a demo's run, read from its metrics.jsonl."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from soul.errors import SoulError

DRAFT, REFINED, SECONDS = "ditto/reward_draft", "ditto/reward_refined", "timing_s/step"
HELD_BACK = "val-core/hitom/reward/mean@1"


class BadMetrics(SoulError):
    """A file is not a metrics.jsonl."""


@dataclass(frozen=True)
class Step:
    """One training step.

    Attributes:
        draft, refined: mean rewards; `refined` is None if no draft was refined.
        heldback: sampled accuracy on the held-back stories after the step; None if it was not measured.
        seconds: how long the step took, without that measurement.
    """

    number: int
    draft: float
    refined: float | None
    heldback: float | None = None
    seconds: float = 0.0


def read_steps(path: str | Path) -> list[Step]:
    """The steps of a metrics.jsonl that have a draft reward, in order; of repeated steps (a resumed run) the last one.

    Raises:
        BadMetrics: a line is not a JSON object.
    """
    by_step: dict[int, dict[str, float]] = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        try:
            record = dict(json.loads(line)) if line.strip() else {}
        except (ValueError, TypeError) as error:
            raise BadMetrics(
                f"{path}: line {number} is not a JSON object ({error}). Name a run's metrics.jsonl."
            ) from None
        if "step" in record:  # a validation has a line of its own
            by_step.setdefault(int(record["step"]), {}).update(record)
    steps = [_step(number, record) for number, record in sorted(by_step.items())]
    return [step for step in steps if step is not None]


def _step(number: int, record: Mapping[str, float]) -> Step | None:
    def finite(key: str) -> float | None:
        value = record.get(key)
        return value if value is not None and math.isfinite(value) else None

    draft = finite(DRAFT)
    return None if draft is None else Step(number, draft, finite(REFINED), finite(HELD_BACK), finite(SECONDS) or 0.0)
