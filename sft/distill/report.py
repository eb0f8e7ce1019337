"""Report a distillation task by task: a table, and distill.json."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sft.distill.sample import CONTENTLESS, CUT_OFF
from sft.distill.select import DUPLICATE, KEPT, Rule, Selection
from soul.files.whole_file import write_whole
from soul.table import Table

FILE = "distill.json"


@dataclass(frozen=True)
class TaskReport:
    """One task of a selection.

    Attributes:
        rows: distinct records with a sample; `rows_kept`: those with a kept sample.
        fates: number of samples by fate (see `select.py`); they add up to `samples`.
        kept: number of kept samples; `conversations`: their SFT rows, one per seat.
        mean: mean reward of all valid samples; `mean_kept`: of the kept ones.
        lost: untrainable seats by reason, of samples with at least one trainable seat.
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
        """Samples that cannot be judged or trained, by cause."""
        lost = (CONTENTLESS, CUT_OFF)
        return {
            fate.removeprefix("failed: "): count
            for fate, count in self.fates.items()
            if fate.startswith(("failed: ", "unusable: ")) or fate in lost
        }


def by_task(selection: Selection) -> dict[str, TaskReport]:
    """Report on each task, in alphabetical order."""
    return {task: _task_report(selection, task) for task in sorted({sample.task for sample in selection.samples})}


def _task_report(selection: Selection, task: str) -> TaskReport:
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
    """The reports as a table."""
    head = ("task", "rows", "samples", "invalid", "mean", "kept", "rows kept", "SFT rows", "mean kept", "duplicates")
    lines = []
    for task, report in reports.items():
        others = {
            fate: n
            for fate, n in report.fates.items()
            if fate not in {KEPT, DUPLICATE, CONTENTLESS, CUT_OFF} and not fate.startswith(("failed: ", "unusable: "))
        }
        counts = (report.kept, report.rows_kept, report.conversations)
        lines.append(
            [
                *(task, f"{report.rows:,}", f"{report.samples:,}", _words(report.invalid) or "0"),
                *(_number(report.mean), *(f"{count:,}" for count in counts), _number(report.mean_kept)),
                f"{report.fates.get(DUPLICATE, 0):,}",
                _words({**others, **{f"seats, {reason}": count for reason, count in report.lost.items()}}),
            ]
        )
    return Table([*head, "other reasons"], lines, words=frozenset({len(head)}))


def write(
    out: Path, rule: Rule, reports: Mapping[str, TaskReport], files: Mapping[str, int], more: Mapping[str, Any]
) -> None:
    """Write distill.json.

    Args:
        files: file name -> number of rows.
        more: further entries: sources, rows left out, missing samples.
    """
    tasks = {task: {**asdict(report), "invalid": report.invalid} for task, report in reports.items()}
    value = {"rule": asdict(rule), "files": dict(files), "tasks": tasks, **more}
    write_whole(out / FILE, json.dumps(value, indent=1))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
