"""A training run as the figures see it: the numbers of its steps, and a hash that identifies them.

Runs are named on the command line as `NAME=FOLDER,FOLDER`: several folders of one name are seeds.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from soul.cli.arguments import existing_folder
from soul.errors import BadSettings, SoulError
from soul.files.metrics_file import NAME, read_with_hash

DRAFT, REFINED, GAP = "reward_draft", "reward_refined", "gap"
_TASK = re.compile(r"ditto/task/([^/]+)/sessions|ditto/secondary/([^/]+)/.+|val(?:-core)?/([^/]+)/.+")


class NotARun(SoulError):
    """A folder is not that of a training run, or the run has no step yet."""


@dataclass(frozen=True)
class TrainingRun:
    """A finished or running training.

    Attributes:
        name: the name that the user gives it; runs of one name are seeds.
        steps: step -> its numbers; step 0 is the validation before training.
        sha256: of metrics.jsonl.
    """

    name: str
    folder: Path
    steps: Mapping[int, Mapping[str, float]]
    sha256: str

    @classmethod
    def load(cls, name: str, folder: Path) -> TrainingRun:
        """Read a run's folder. Raises NotARun if it has no metrics of a step, BadMetrics if a line cannot be read."""
        steps, sha256 = read_with_hash(folder / NAME)
        if not any(f"ditto/{DRAFT}" in numbers for numbers in steps.values()):
            raise NotARun(
                f"--runs {name}: {folder} has no {NAME} with a step of training. Name the folder that holds traces/ "
                f"and {NAME}; pass evaluations with --evals."
            )
        return cls(name, folder, dict(sorted(steps.items())), sha256)

    @cached_property
    def keys(self) -> frozenset[str]:
        """All metrics that any step has."""
        return frozenset().union(*self.steps.values())

    @cached_property
    def tasks(self) -> list[str]:
        """The tasks that it trains or validates on, by name; empty if its metrics name none."""
        matches = (match for key in self.keys if (match := _TASK.fullmatch(key)))
        return sorted({name for match in matches for name in match.groups() if name})

    def key(self, task: str, metric: str) -> str:
        """The full name of a metric of one task: with a single task, it is that of all sessions."""
        own = f"ditto/task/{task}/{metric}"
        return own if own in self.keys or self.tasks not in ([task], []) else f"ditto/{metric}"

    def values(self, key: str) -> dict[int, float]:
        """Step -> the metric, for the steps that have it."""
        return {step: numbers[key] for step, numbers in self.steps.items() if key in numbers}


Runs = Mapping[str, Sequence[TrainingRun]]  # name -> its seeds


def tasks_of(runs: Runs) -> list[str]:
    """The tasks of all runs; one nameless task where their metrics name none."""
    return sorted({task for seeds in runs.values() for run in seeds for task in run.tasks}) or [""]


class Named(NamedTuple):
    """A name and its folders."""

    name: str
    paths: tuple[Path, ...]


def named_folders(text: str) -> Named:
    """The type of an argument NAME=FOLDER,FOLDER."""
    name, equals, paths = text.partition("=")
    if not (name.strip() and equals and paths.strip(",")):
        form = "NAME=FOLDER or NAME=FOLDER,FOLDER, such as ditto=outputs/a,outputs/b"
        raise ArgumentTypeError(f"{text!r}: write {form}")
    return Named(name.strip(), tuple(existing_folder(part) for part in paths.split(",") if part))


def file_name(name: str) -> str:
    """A name, or that of a task, as a part of a file's name."""
    return re.sub(r"[^\w-]+", "_", name)


def by_name(option: str, given: Sequence[Named]) -> dict[str, tuple[Path, ...]]:
    """Name -> its folders.

    Raises:
        BadSettings: a name or a folder is given twice.
    """
    chosen: dict[str, tuple[Path, ...]] = {}
    places: dict[Path, str] = {}
    for name, folders in given:
        if name in chosen:
            raise BadSettings(f"{option}: {name!r} is given twice. Give seeds to one name: {name}=DIR,DIR.")
        chosen[name] = folders
        for folder in folders:
            if other := places.get(folder.resolve()):
                raise BadSettings(f"{option}: {folder} is given twice, for {other!r} and {name!r}. Name each run once.")
            places[folder.resolve()] = name
    return chosen
