"""Training runs as a side of a comparison: prompts, by the mean reward of their groups; several folders are seeds.

Drafts of two runs are independent samples, so no draft belongs to a draft of the other run; a prompt does. Two groups
of a prompt are compared where both runs played it in the same step, and a prompt's score is its mean over those steps,
so that prompts stay independent of each other. Training, refined answers and validation are sets of their own; the
headline averages the drafts of training. Within a run, sessions that have both answers are compared.
"""

import json
import re
import sqlite3
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from soul import tasks
from soul.compare.comparison import Comparison, Kind, Row, SetComparison
from soul.compare.evaluations import NothingToCompare
from soul.errors import SoulError, UnknownTask
from soul.files.json_object import read_object
from soul.files.trace_files import FOLDER, finished_files
from soul.metrics.intervals import ANY
from soul.record import SessionRecord, read_records
from soul.task_types import Metric

RUN_FILE = "run.json"
# The same means from the viewer's index: tables `sessions` and `files`.
MEANS = """
SELECT s.task, s.file, s.number, f.split, f.step, avg(draft), avg(refined),
    avg(CASE WHEN refined IS NOT NULL THEN draft END), avg(CASE WHEN draft IS NOT NULL THEN refined END)
FROM sessions s JOIN files f ON f.id = s.file_id WHERE NOT f.live GROUP BY 1, 2, 3, 4, 5
"""
# Suffix of the set's name, split, and the means of both sides.
_ACROSS = (
    ("", "step", "draft", "draft"),
    (", refined", "step", "refined", "refined"),
    (", validation", "val", "draft", "draft"),
)
_WITHIN = (("", "step", "draft_of_both", "refined_of_both"),)


class BadRunFile(SoulError):
    """run.json cannot be read."""


class Prompt(NamedTuple):
    """A prompt of a step; split is "step" or "val"."""

    task: str
    file: str
    number: int
    split: str
    step: int


class Means(NamedTuple):
    """The mean rewards of a group; the last two are over sessions with both answers."""

    draft: float | None
    refined: float | None
    draft_of_both: float | None
    refined_of_both: float | None


Groups = Mapping[Prompt, Means]


def means_from_index(connection: sqlite3.Connection) -> Groups:
    """The groups of a run, from the viewer's index."""
    return {Prompt(*row[:5]): Means(*row[5:]) for row in connection.execute(MEANS)}


def means_from_traces(folder: Path) -> Groups:
    """The groups of a run, from its traces (about 100 MB a second)."""
    rewards: defaultdict[Prompt, list[tuple[float | None, float | None]]] = defaultdict(list)
    for split in ("step", "val"):
        for file in finished_files(folder / FOLDER, split):
            for _, _, one in read_records(file.path):
                pair = one.draft.reward, one.refined.reward if one.refined else None
                rewards[Prompt(one.task, one.file, one.number, split, file.step)].append(pair)
    groups = {}
    for prompt, pairs in rewards.items():
        both = [pair for pair in pairs if None not in pair]
        groups[prompt] = Means(*(_mean([pair[k] for pair in of]) for of in (pairs, both) for k in (0, 1)))
    return groups


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


@dataclass(frozen=True)
class TrainingSide:
    """The training runs of one label.

    Attributes:
        seeds: the groups of each folder.
    """

    label: str
    folders: Sequence[Path]
    seeds: Sequence[Groups]
    kind: ClassVar[str] = "training"

    @cached_property
    def groups(self) -> Groups:
        """The groups over all seeds."""
        prompts = dict.fromkeys(prompt for seed in self.seeds for prompt in seed)
        of = {prompt: [seed[prompt] for seed in self.seeds if prompt in seed] for prompt in prompts}
        return {prompt: Means(*map(_mean, zip(*means, strict=True))) for prompt, means in of.items()}

    def sessions(self, name: str, row: str) -> list[SessionRecord]:
        split, step, number, file = row.split(" ", 3)
        task = name.partition(",")[0]
        files = [file for folder in self.folders for file in finished_files(folder / FOLDER, split)]
        lines = (line.record for one in files if one.step == int(step) for line in read_records(one.path))
        return [one for one in lines if (one.task, one.file, one.number) == (task, file, int(number))]


def compare_trainings(base: TrainingSide, other: TrainingSide) -> Comparison:
    """Compare one side with the baseline; a side with itself: its refined answers with the drafts of the same sessions.

    Raises:
        NothingToCompare: no prompt was played by both in the same step, or no session has both answers.
    """
    common = sorted(base.groups.keys() & other.groups.keys())
    judges = [_judges(side) for side in (base, other)]
    reasons = [f"judge: {judges[0]} and {judges[1]}"] if judges[0] != judges[1] else []
    sets: dict[str, SetComparison] = {}
    for task in sorted({prompt.task for prompt in common}):
        for suffix, split, left, right in _WITHIN if base is other else _ACROSS:
            prompts = [prompt for prompt in common if (prompt.task, prompt.split) == (task, split)]
            pairs = {p: (getattr(base.groups[p], left), getattr(other.groups[p], right)) for p in prompts}
            if rows := list(_rows(pairs)):
                kind: Kind = "draft" if right == "draft" else "refined"
                seeds = _seed_scores(base, prompts, left), _seed_scores(other, prompts, right)
                name = task + suffix
                sets[name] = SetComparison(name, metric_of(task), rows, kind, seeds, not suffix, reasons)
    if sets:
        return Comparison(base, other, sets)
    if base is other:
        raise NothingToCompare(f"{base.folders[0]}: no session of its traces has a draft and a refined answer.")
    raise NothingToCompare(
        f"{base.folders[0]} and {other.folders[0]} played no prompt in the same step, with a verdict in both. Train "
        "both on the same files with the same data.seed."
    )


def _rows(pairs: Mapping[Prompt, tuple[float | None, float | None]]) -> Iterator[Row]:
    """A row for each prompt: its means over the steps, named after the step in which they differ most."""
    by_prompt: defaultdict[tuple[str, str, int], list[tuple[int, float, float]]] = defaultdict(list)
    for (_, file, number, split, step), (base, other) in pairs.items():
        if base is not None and other is not None:
            by_prompt[split, file, number].append((step, base, other))
    for (split, file, number), steps in by_prompt.items():
        widest, _, _ = max(steps, key=lambda at: (abs(at[2] - at[1]), -at[0]))
        means = (statistics.fmean(at[place] for at in steps) for place in (1, 2))
        yield Row(f"{split} {widest} {number} {file}", *means)


def _seed_scores(side: TrainingSide, prompts: Sequence[Prompt], kind: str) -> list[float]:
    """The mean of each seed over these prompts; a seed without any has none."""
    values = [{p: getattr(groups[p], kind) for p in prompts if p in groups} for groups in side.seeds]
    rows = [list(_rows({p: (value, value) for p, value in of_seed.items()})) for of_seed in values]
    return [statistics.fmean(row.base for row in of_seed) for of_seed in rows if of_seed]


def metric_of(task: str) -> Metric:
    """The metric of a task's rewards; one without a range for a task that is not installed here."""
    try:
        return tasks.load(task).headline
    except UnknownTask:
        return Metric("reward", *ANY)


def config_of(folder: Path) -> dict[str, Any]:
    """The settings in run.json; {} without one."""
    if not (folder / RUN_FILE).is_file():
        return {}
    run = read_object(folder / RUN_FILE, BadRunFile, "The next start of the training writes it again.")
    return dict(run.get("config") or {})


def _judges(side: TrainingSide) -> str:
    """The models that score; "" if run.json is missing."""
    gateway = config_of(side.folders[0]).get("gateway") or {}
    asked = [(gateway.get("roles") or {}).get("judge"), gateway.get("jury"), gateway.get("by_task")]
    return " + ".join(re.findall(r'"model": "(.*?)"', json.dumps(asked)))
