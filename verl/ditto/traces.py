"""The run folder: one JSON line per session, one JSON line of metrics per step.

    <run>/traces/step_000007.jsonl    sessions of training step 7: messages, verdicts, feedback, advantages, timings
    <run>/traces/val_000005.jsonl     sessions of the validation after step 5
    <run>/metrics.jsonl               {"step": 7, "ditto/reward_draft": 0.4, ...}

A step's file is written in one go and replaced, so a step that is repeated after a crash is there once.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a text file as a whole: it is there complete, or as it was before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(path.suffix + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


class RunFolder:
    """Writes what a run leaves for people to read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write_traces(self, split: str, step: int, sessions: Iterable[Mapping[str, Any]], part: int = 0) -> None:
        """The sessions of a step; split is "step" or "val".

        An asynchronous step may train in several parts; each has a file of its own (`step_000007.1.jsonl`).
        """
        name = f"{split}_{step:06d}" + (f".{part}" if part else "")
        lines = (json.dumps(session, ensure_ascii=False) for session in sessions)
        write_lines(self.folder / "traces" / f"{name}.jsonl", lines)

    def log_metrics(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Add numbers to the step's line. Lines of later steps go: they belong to what a resumed run does again."""
        path = self.folder / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        steps = {int(json.loads(line)["step"]): line for line in lines}
        known = json.loads(steps[step]) if step in steps else {"step": step}
        numbers = {key: number for key, value in metrics.items() if (number := _number(value)) is not None}
        earlier = [line for number, line in steps.items() if number < step]
        write_lines(path, [*earlier, json.dumps(known | numbers)])


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
