"""Training runs as a side of a comparison: prompts, by the mean reward of their groups; several folders are seeds.

Drafts of two runs are independent samples, so no draft belongs to a draft of the other run; a prompt does. Two groups
of a prompt are compared where both runs played it in the same step, and a prompt's score is its mean over those steps,
so that prompts stay independent of each other. Training, refined answers and validation are sets of their own; the
headline averages the drafts of training. Within a run, sessions that have both answers are compared.
"""

import json
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

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
KEYS = ["task", "file", "number", "split", "step"]  # of a prompt in a step; split is "step" or "val"
# The same means from the viewer's index: tables `sessions` and `files`.
MEANS = """
SELECT s.task, s.file, s.number, f.split, f.step, avg(draft) AS draft, avg(refined) AS refined,
    avg(CASE WHEN refined IS NOT NULL THEN draft END) AS draft_of_both,
    avg(CASE WHEN draft IS NOT NULL THEN refined END) AS refined_of_both
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


Groups = pd.DataFrame  # the mean rewards of each group, by KEYS; "_of_both" are over sessions with both answers


def means_from_index(connection: sqlite3.Connection) -> Groups:
    """The groups of a run, from the viewer's index."""
    return pd.read_sql_query(MEANS, connection).set_index(KEYS).astype(float)


def means_from_traces(folder: Path) -> Groups:
    """The groups of a run, from its traces (about 100 MB a second)."""
    rewards = [
        (
            one.task,
            one.file,
            one.number,
            split,
            file.step,
            one.draft.reward,
            one.refined.reward if one.refined else None,
        )
        for split in ("step", "val")
        for file in finished_files(folder / FOLDER, split)
        for _, _, one in read_records(file.path)
    ]
    sessions = pd.DataFrame(rewards, columns=[*KEYS, "draft", "refined"]).set_index(KEYS).astype(float)
    means, of_both = (some.groupby(level=KEYS).mean() for some in (sessions, sessions.dropna()))
    return means.join(of_both.add_suffix("_of_both"))


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
        return pd.concat(self.seeds).groupby(level=KEYS).mean()

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
    judges = [_judges(side) for side in (base, other)]
    reasons = [f"judge: {judges[0]} and {judges[1]}"] if judges[0] != judges[1] else []
    common = base.groups.join(other.groups, how="inner", lsuffix=" of base", rsuffix=" of other")
    sets: dict[str, SetComparison] = {}
    for task, of_task in common.groupby(level="task"):
        for suffix, split, left, right in _WITHIN if base is other else _ACROSS:
            groups = of_task[of_task.index.get_level_values("split") == split]
            pairs = pd.DataFrame({"base": groups[f"{left} of base"], "other": groups[f"{right} of other"]}).dropna()
            if rows := _rows(pairs):
                kind: Kind = "draft" if right == "draft" else "refined"
                seeds = _seed_scores(base, groups.index, left), _seed_scores(other, groups.index, right)
                name = f"{task}{suffix}"
                sets[name] = SetComparison(name, metric_of(str(task)), rows, kind, seeds, not suffix, reasons)
    if sets:
        return Comparison(base, other, sets)
    if base is other:
        raise NothingToCompare(f"{base.folders[0]}: no session of its traces has a draft and a refined answer.")
    raise NothingToCompare(
        f"{base.folders[0]} and {other.folders[0]} played no prompt in the same step, with a verdict in both. Train "
        "both on the same files with the same data.seed."
    )


def _rows(pairs: pd.DataFrame) -> list[Row]:
    """A row for each prompt: its means over the steps, named after the step in which they differ most."""
    rows = []
    for (split, file, number), steps in pairs.groupby(level=["split", "file", "number"], sort=False):
        apart = (steps["other"] - steps["base"]).abs()
        widest = apart.index[int(apart.argmax())][KEYS.index("step")]
        rows.append(Row(f"{split} {widest} {number} {file}", float(steps["base"].mean()), float(steps["other"].mean())))
    return rows


def _seed_scores(side: TrainingSide, prompts: Any, kind: str) -> list[float]:
    """The mean of each seed over these prompts; a seed without any has none."""
    of_seeds = [groups[kind].reindex(prompts).dropna() for groups in side.seeds]
    return [float(one.groupby(level=["split", "file", "number"]).mean().mean()) for one in of_seeds if len(one)]


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
