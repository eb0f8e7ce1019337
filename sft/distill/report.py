"""Report a distillation task by task, as a table and as distill.json; end it if a task lost too many of its samples.

A student that is trained on what is left would look like one that has learnt from every expert. So the command names
the task and what became of its samples, and writes no files.
"""

import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from sft.distill.sample import CONTENTLESS, CUT_OFF, ExpertSample
from sft.distill.select import DUPLICATE, KEPT, Rule, Selection
from soul.errors import SoulError
from soul.files.whole_file import write_whole
from soul.table import Table

FILE = "distill.json"
MAX_FAILED = 0.2
_INVALID = ("failed: ", "unusable: ", CONTENTLESS, CUT_OFF)  # beginnings of fates
_SHOWN = 300  # characters of the last failure's message


class LostTask(SoulError):
    """A task has too few samples, or none."""

    exit_code: ClassVar[int] = 1


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
        return {fate.removeprefix("failed: "): n for fate, n in self.fates.items() if fate.startswith(_INVALID)}


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


def check_tasks(
    reports: Mapping[str, TaskReport],
    samples: Sequence[ExpertSample],
    wanted: Mapping[str, int],
    rule: Rule,
    max_failed: float,
) -> None:
    """Check every task.

    Args:
        samples: all samples, to read the message of a failure.
        wanted: task -> number of samples that were requested.
        max_failed: the largest share of a task's samples that may be lost, 0 to 1.
    """
    problems = []
    for task in sorted({*reports, *wanted}):
        report = reports.get(task)
        if report is None or not report.samples:
            held_out = "" if wanted[task] else ", because all of its rows are rows of an evaluation (--not-in)"
            problems.append(f"{task}: none of its {wanted[task]:,} samples exists{held_out}. Take some (TASK=EXPERT).")
            continue
        lost = Counter(report.invalid)
        lost["missing"] = wanted.get(task, report.samples) - report.samples
        total = report.samples + lost["missing"]
        if lost.total() > max_failed * total:
            causes = ", ".join(f"{cause} {count:,}" for cause, count in (+lost).most_common())
            problems.append(
                f"{task}: {lost.total():,} of {total:,} samples are lost ({lost.total() / total:.0%}; --max-failed "
                f"allows {max_failed:.0%}): {causes}. {_last_failure(task, samples)}Repeat the command with "
                "TASK=EXPERT, which runs failed samples again (--retry-failed: all of them), or accept the loss with "
                "--max-failed."
            )
        elif not report.kept and rule.asks_for(task):
            problems.append(
                f"{task}: none of its {report.samples:,} samples is kept ({_words(report.fates)}). Lower --threshold, "
                "take more samples (--n, --limit), or leave the task out."
            )
    if problems:
        raise LostTask("\n".join(problems))


def _last_failure(task: str, samples: Sequence[ExpertSample]) -> str:
    """The message of the last failed sample of a task; empty if none failed or it says nothing."""
    failed = [sample for sample in samples if sample.task == task and (sample.problem or "").startswith("failed")]
    record = failed[-1].record() if failed else None
    attempts = [record.draft, record.refined] if record else []
    failure = next((attempt.failure for attempt in attempts if attempt and attempt.failure is not None), None)
    if failure is None or not failure.detail:
        return ""
    return f"Last {failure.cause}: {' '.join(failure.detail.split())[:_SHOWN].rstrip('.')}. "


def table(reports: Mapping[str, TaskReport]) -> Table:
    """The reports as a table."""
    head = ("task", "rows", "samples", "invalid", "mean", "kept", "rows kept", "SFT rows", "mean kept", "duplicates")
    lines = []
    for task, report in reports.items():
        others = {
            fate: n
            for fate, n in report.fates.items()
            if fate not in (KEPT, DUPLICATE) and not fate.startswith(_INVALID)
        }
        seats = {f"seats, {reason}": count for reason, count in report.lost.items()}
        counts = (report.kept, report.rows_kept, report.conversations)
        lines.append(
            [
                *(task, f"{report.rows:,}", f"{report.samples:,}", _words(report.invalid) or "0"),
                *(_number(report.mean), *(f"{count:,}" for count in counts), _number(report.mean_kept)),
                *(f"{report.fates.get(DUPLICATE, 0):,}", _words(others | seats)),
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
