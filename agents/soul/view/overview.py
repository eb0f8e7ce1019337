"""All numbers of a run: its settings, metrics, curves, events and calls."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from soul.errors import SoulError, one_line
from soul.files.json_object import read_object
from soul.files.metrics_file import NAME, read_metrics
from soul.view.curves import curves
from soul.view.events import events

RUN_FILE = "run.json"
_CALLS = """
SELECT f.step, f.split, c.role, c.task, sum(calls) AS calls, sum(failed) AS failed, sum(prompt_tokens) AS prompt_tokens,
    sum(completion_tokens) AS completion_tokens, sum(cost_usd) AS cost_usd, sum(seconds) AS seconds
FROM calls c JOIN files f ON f.id = c.file_id WHERE NOT f.live
GROUP BY f.step, f.split, c.role, c.task ORDER BY f.step
"""
_PROBLEMS = "SELECT problem FROM files WHERE problem IS NOT NULL ORDER BY id"


class BadRunFile(SoulError):
    """run.json cannot be read."""


def sessions_part(connection: sqlite3.Connection) -> dict[str, Any]:
    """The part of the overview that comes from the index: {"curves", "calls", "problems"}."""
    calls = connection.execute(_CALLS)
    names = [column[0] for column in calls.description]
    return {
        "curves": curves(connection),
        "calls": [dict(zip(names, row, strict=True)) for row in calls],
        "problems": [problem for (problem,) in connection.execute(_PROBLEMS)],
    }


def files_part(folder: Path) -> dict[str, Any]:
    """The part that comes from the other files: {"run", "metrics", "events", "problems"}."""
    problems: list[str] = []
    run = read_run_file(folder, problems)
    try:
        metrics = read_metrics(folder / NAME)
    except SoulError as error:
        metrics, problems = {}, [*problems, one_line(error)]
    return {
        "run": run,
        "metrics": _series(metrics),
        "events": events(folder, run, metrics),
        "problems": problems,
    }


def read_run_file(folder: Path, problems: list[str]) -> dict[str, Any]:
    """run.json; {} without one, or where it cannot be read, which is then added to `problems`."""
    try:
        return read_object(folder / RUN_FILE, BadRunFile, "The next start of the training writes it again.")
    except FileNotFoundError:
        return {}
    except (SoulError, OSError) as error:
        problems.append(one_line(error))
        return {}


def _series(metrics: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """{"steps": [...], "series": {name: [value of each step, or None]}}."""
    steps = sorted(metrics)
    names = sorted({name for numbers in metrics.values() for name in numbers} - {"step"})
    return {"steps": steps, "series": {name: [_number(metrics[step].get(name)) for step in steps] for name in names}}


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None
