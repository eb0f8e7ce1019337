"""What happened to a run, and when: it was resumed, saved a checkpoint, lost its judge, raised an alarm, broke off."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from soul.errors import SoulError
from soul.files.json_object import read_object

OUTAGE = 0.05  # share of a step's sessions that lost a judge, from which on it is an event
FAILURE = "failure.json"
_CHECKPOINT = re.compile(r"global_step_(\d+)")
_LOST = "judge/failure_share"
_ALARM = "alarm/"


class BadFailure(SoulError):
    """failure.json cannot be read."""


def checkpoints(folder: Path) -> list[int]:
    """The steps of the checkpoints in a run's folder."""
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return []
    return sorted(int(match.group(1)) for name in names if (match := _CHECKPOINT.fullmatch(name)))


def events(folder: Path, run: Mapping[str, Any], metrics: Mapping[int, Mapping[str, float]]) -> list[dict[str, Any]]:
    """The events in the order of their steps.

    Args:
        run: run.json, or {}.
        metrics: step -> its numbers.
    """
    happened = [*_resumed(run), *_saved(folder), *_measured(metrics), *_broken_off(folder, run, metrics)]
    return sorted(happened, key=lambda event: event["step"])


def _resumed(run: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for one in run.get("resumed") or ():
        if isinstance(one, Mapping) and isinstance(one.get("step"), int | float):
            yield {"step": one["step"], "kind": "resume", "text": f"resumed after step {one['step']}", **_time(one)}


def _broken_off(
    folder: Path, run: Mapping[str, Any], metrics: Mapping[int, Mapping[str, float]]
) -> Iterator[dict[str, Any]]:
    """Why the watchdog ended the run, after its last step; where it was resumed since, at that step."""
    try:
        failure = read_object(folder / FAILURE, BadFailure, "It can be removed.")
    except (OSError, BadFailure):  # nearly all runs have none
        return
    since = [one for one in _resumed(run) if one.get("time", 0.0) > _time(failure).get("time", 0.0)]
    step = since[0]["step"] if since else max(metrics, default=0)
    yield {"step": step, "kind": "outage", "text": f"the run ended: {failure.get('cause')}", **_time(failure)}


def _time(one: Mapping[str, Any]) -> dict[str, float]:
    return {"time": one["time"]} if isinstance(one.get("time"), int | float) else {}


def _saved(folder: Path) -> Iterator[dict[str, Any]]:
    for step in checkpoints(folder):
        yield {"step": step, "kind": "checkpoint", "text": f"checkpoint global_step_{step}"}


def _measured(metrics: Mapping[int, Mapping[str, float]]) -> Iterator[dict[str, Any]]:
    before: Mapping[str, float] = {}
    for step, numbers in sorted(metrics.items()):
        if (lost := numbers.get(_LOST, 0.0)) >= OUTAGE:
            yield {"step": step, "kind": "outage", "text": f"a judge failed in {lost:.0%} of the sessions"}
        for name, raised in numbers.items():
            if name.startswith(_ALARM) and raised and not before.get(name):
                yield {"step": step, "kind": "alarm", "text": name.removeprefix(_ALARM)}
        before = numbers
