"""The small files of a training run: its settings, metrics, failure, events and checkpoints."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from soul.errors import SoulError, one_line
from soul.files.json_object import read_object
from soul.files.metrics_file import NAME as METRICS
from soul.files.metrics_file import read_metrics

RUN_FILE, FAILURE = "run.json", "failure.json"
OUTAGE = 0.05  # share of a step's sessions that lost a judge, from which on it is an event
_CHECKPOINT = re.compile(r"global_step_(\d+)")
_LOST, _ALARM = "judge/failure_share", "alarm/"


class BadRunFile(SoulError):
    """run.json or failure.json cannot be read."""


class TrainingFiles(NamedTuple):
    """What the files say.

    Attributes:
        run, failure: run.json and failure.json; {} without a readable one.
        metrics: step -> its numbers, in the order of the steps.
        problems: what cannot be read.
        resumed: step and time of each resume; `started`: when the run started for the last time, 0 if unknown.
    """

    folder: Path
    run: dict[str, Any]
    failure: dict[str, Any]
    metrics: dict[int, dict[str, float]]
    problems: list[str]

    @classmethod
    def read(cls, folder: Path) -> TrainingFiles:
        """Read them."""
        problems: list[str] = []
        found: dict[str, Any] = {}
        for name, remedy in {RUN_FILE: "The next start of the training writes it again.", FAILURE: ""}.items():
            try:
                found[name] = read_object(folder / name, BadRunFile, remedy)
            except FileNotFoundError:
                continue
            except (SoulError, OSError) as error:
                problems.append(one_line(error))
        metrics: dict[int, dict[str, float]] = {}
        try:
            metrics = dict(sorted(read_metrics(folder / METRICS).items()))
        except SoulError as error:
            problems.append(one_line(error))
        return cls(folder, found.get(RUN_FILE, {}), found.get(FAILURE, {}), metrics, problems)

    @property
    def resumed(self) -> list[tuple[int, float]]:
        known = [one for one in self.run.get("resumed") or () if isinstance(one, Mapping) and number(one.get("step"))]
        return [(one["step"], number(one.get("time")) or 0.0) for one in known]

    @property
    def started(self) -> float:
        return max([number(self.run.get("started")) or 0.0, *(time for _, time in self.resumed)])

    def series(self) -> dict[str, Any]:
        """{"steps", "series": metric -> its values, None where a step has none}."""
        names = sorted({name for numbers in self.metrics.values() for name in numbers} - {"step"})
        series = {name: [number(numbers.get(name)) for numbers in self.metrics.values()] for name in names}
        return {"steps": list(self.metrics), "series": series}

    def events(self) -> list[dict[str, Any]]:
        """{"step", "kind", "text"} of resumes, checkpoints, outages, alarms, and of the run's end, by step."""
        found = [(step, "resume", f"resumed after step {step}") for step, _ in self.resumed]
        found += [(step, "checkpoint", f"checkpoint global_step_{step}") for step in checkpoints(self.folder)]
        before: Mapping[str, float] = {}
        for step, numbers in self.metrics.items():
            if (lost := numbers.get(_LOST, 0.0)) >= OUTAGE:
                found.append((step, "outage", f"a judge failed in {lost:.0%} of the sessions"))
            raised = [name for name in numbers if name.startswith(_ALARM) and numbers[name] and not before.get(name)]
            found += [(step, "alarm", name.removeprefix(_ALARM)) for name in raised]
            before = numbers
        if self.failure:  # after the last step; if the run was resumed since, at that step
            since = [step for step, time in self.resumed if time > (number(self.failure.get("time")) or 0.0)]
            step = since[0] if since else max(self.metrics, default=0)
            found.append((step, "outage", f"the run ended: {self.failure.get('cause')}"))
        ordered = sorted(found, key=lambda event: event[0])
        return [{"step": step, "kind": kind, "text": text} for step, kind, text in ordered]


def number(value: Any) -> float | None:
    """The value, if it is a finite number."""
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def checkpoints(folder: Path) -> list[int]:
    """The steps of the checkpoints in a run's folder."""
    matches = map(_CHECKPOINT.fullmatch, os.listdir(folder) if folder.is_dir() else ())
    return sorted(int(match.group(1)) for match in matches if match)


def described(names: Iterable[str]) -> dict[str, str]:
    """Metric -> its meaning in docs/training.md, from which metric_texts.json is made; of known metrics."""
    texts = json.loads((Path(__file__).parent / "metric_texts.json").read_text(encoding="utf-8"))
    known = [(re.compile(re.sub("<[a-z]+>", ".+", name)), text) for name, text in reversed(texts.items())]
    return {name: text for name in names for pattern, text in known if pattern.fullmatch(name)}
