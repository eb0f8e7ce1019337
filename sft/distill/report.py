"""What a distillation took in and gave out, task by task: a table, and distill.json."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from sft.distill.sample import CONTENTLESS, CUT_OFF
from sft.distill.select import DUPLICATE, KEPT, Rule, Selection
from soul.files.whole_file import write_whole

FILE = "distill.json"


@dataclass(frozen=True)
class TaskReport:
    """One task of a selection.

    Attributes:
        rows: different records with a sample; `rows_kept`: those of which something is kept.
        fates: what became of the samples; they add up to `samples`.
        kept: samples; `conversations`: SFT rows, one a seat.
        mean: of the rewards of all valid samples; `mean_kept`: of those that are kept.
        lost: seats that cannot be trained, by reason, of samples with other seats that can.
    """

    rows: int
    rows_kept: int
    samples: int
    fates: Mapping[str, int]
    kept: int
    conversations: int
    mean: float | None
    mean_kept: float | None
    lost: Mapping[str, int]

    @property
    def invalid(self) -> dict[str, int]:
        """Samples that say nothing about the task, by cause."""
        found = {
            fate.removeprefix("failed: "): count for fate, count in self.fates.items() if fate.startswith("failed")
        }
        return {**found, **{fate: self.fates[fate] for fate in (CONTENTLESS, CUT_OFF) if fate in self.fates}}


def by_task(selection: Selection) -> dict[str, TaskReport]:
    """The selection's numbers for each task, in the order of names."""
    return {task: _of_task(selection, task) for task in sorted({sample.task for sample in selection.samples})}


def _of_task(selection: Selection, task: str) -> TaskReport:
    pairs = zip(selection.samples, selection.fates, strict=True)
    own = [(sample, fate) for sample, fate in pairs if sample.task == task]
    rewards = [sample.reward for sample, _ in own if sample.reward is not None]
    taken = [(sample, seats) for sample, seats in selection.kept if sample.task == task]
    lost: Counter[str] = Counter()
    for sample, _ in own:
        lost.update({} if sample.problem else sample.lost or {})
    return TaskReport(
        rows=len({sample.row for sample, _ in own}),
        rows_kept=len({sample.row for sample, _ in taken}),
        samples=len(own),
        fates=dict(Counter(fate for _, fate in own).most_common()),
        kept=len(taken),
        conversations=sum(len(seats) for _, seats in taken),
        mean=statistics.fmean(rewards) if rewards else None,
        mean_kept=statistics.fmean(sample.reward or 0.0 for sample, _ in taken) if taken else None,
        lost=dict(lost),
    )


def table(reports: Mapping[str, TaskReport]) -> Table:
    """The numbers for a terminal."""
    made = Table(title="Distilled", title_justify="left")
    for column in ("task", "rows", "samples", "invalid", "mean", "kept", "rows kept", "SFT rows", "mean kept"):
        made.add_column(column, justify="left" if column == "task" else "right")
    for column in ("duplicates", "other reasons"):
        made.add_column(column, justify="right" if column == "duplicates" else "left")
    for task, found in reports.items():
        invalid = found.invalid
        said = {KEPT, DUPLICATE, CONTENTLESS, CUT_OFF}
        others = {fate: n for fate, n in found.fates.items() if fate not in said and not fate.startswith("failed")}
        made.add_row(
            task,
            f"{found.rows:,}",
            f"{found.samples:,}",
            _words(invalid) if invalid else "0",
            _number(found.mean),
            f"{found.kept:,}",
            f"{found.rows_kept:,}",
            f"{found.conversations:,}",
            _number(found.mean_kept),
            f"{found.fates.get(DUPLICATE, 0):,}",
            _words({**others, **{f"seats, {reason}": count for reason, count in found.lost.items()}}),
        )
    return made


def write(
    out: Path, rule: Rule, reports: Mapping[str, TaskReport], files: Mapping[str, int], more: Mapping[str, Any]
) -> None:
    """Write distill.json.

    Args:
        files: file -> its rows.
        more: what else is to be known: sources, rows left out, samples that are missing.
    """
    tasks = {task: {**asdict(found), "invalid": found.invalid} for task, found in reports.items()}
    value = {"rule": asdict(rule), "files": dict(files), "tasks": tasks, **more}
    write_whole(out / FILE, json.dumps(value, indent=1))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
