"""Read metrics.jsonl of a training run: one JSON object a step, `{"step": 7, "ditto/reward_draft": 0.4, ...}`.

A run replaces the whole file after each step (`ditto.run.run_folder`), so that it can be read at any time.
"""

import hashlib
import json
from pathlib import Path

from soul.errors import SoulError

NAME = "metrics.jsonl"


class BadMetrics(SoulError):
    """A line of metrics.jsonl cannot be read."""


def metric_lines(path: Path) -> dict[int, str]:
    """Step -> its line, in the file's order; of repeated steps the last line. {} without a file.

    Raises:
        BadMetrics: a line is not a JSON object with a step.
    """
    return _lines_by_step(path.read_bytes(), path) if path.exists() else {}


def read_metrics(path: Path) -> dict[int, dict[str, float]]:
    """Step -> its numbers; {} without a file. Raises as `metric_lines`."""
    return read_with_hash(path)[0]


def read_with_hash(path: Path) -> tuple[dict[int, dict[str, float]], str]:
    """The numbers of `read_metrics`, and the SHA-256 of exactly that content, which a run may replace at any time."""
    content = path.read_bytes() if path.exists() else b""
    numbers = {step: json.loads(line) for step, line in _lines_by_step(content, path).items()}
    return numbers, hashlib.sha256(content).hexdigest()


def _lines_by_step(content: bytes, path: Path) -> dict[int, str]:
    lines: dict[int, str] = {}
    for number, line in enumerate(content.splitlines(), 1):
        try:
            lines[int(json.loads(line)["step"])] = line.decode()
        except (ValueError, KeyError, TypeError) as error:
            raise BadMetrics(
                f"{path}, line {number}: this is no line of metrics ({error}). Remove the line, or move the file "
                "away; training does not need it."
            ) from None
    return lines
