"""End the command if a task lost too many of its samples, or all of them.

A student that is trained on what is left would look like one that has learnt from every expert. So the command names
the task and what became of its samples, and writes no files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

from sft.distill.report import TaskReport
from sft.distill.sample import ExpertSample
from sft.distill.select import Rule
from soul.errors import SoulError

MAX_FAILED = 0.2
_SHOWN = 300  # characters shown of the last failure's message


class LostTask(SoulError):
    """A task has too few samples, or none."""

    exit_code: ClassVar[int] = 1


def check_tasks(
    reports: Mapping[str, TaskReport],
    samples: Sequence[ExpertSample],
    wanted: Mapping[str, int],
    held_out_rows: Mapping[str, int],
    rule: Rule,
    max_failed: float,
) -> None:
    """Check every task.

    Args:
        samples: all samples, to read the message of a failure.
        wanted: task -> number of samples that were requested; tasks of traces are not in it.
        held_out_rows: task -> number of its rows that evaluations hold out.
        max_failed: the largest share of a task's samples that may be lost, 0 to 1.

    Raises:
        LostTask: a task lost more, or has none left although the rule asks for some.
    """
    problems = []
    for task in sorted({*reports, *wanted}):
        report = reports.get(task)
        if report is None or not report.samples:
            problems.append(_without_samples(task, wanted[task], held_out_rows.get(task, 0)))
            continue
        lost = Counter(report.invalid)
        lost["missing"] = wanted.get(task, report.samples) - report.samples
        if lost.total() > max_failed * (report.samples + lost["missing"]):
            remedy = f"{_AGAIN if task in wanted else ''}Accept the loss with --max-failed."
            problems.append(f"{_many_lost(task, report, +lost, max_failed)} {_last_failure(task, samples)}{remedy}")
        elif not report.kept and rule.asks_for(task):
            fates = ", ".join(f"{fate} {count:,}" for fate, count in report.fates.items())
            problems.append(f"{task}: none of its {report.samples:,} samples is kept ({fates}). {_LOWER}")
    if problems:
        raise LostTask("\n".join(problems))


_LOWER = "Lower --threshold or --margin, take more samples (--n, --limit), or leave the task out."
_AGAIN = (
    "Repeat the command with TASK=EXPERT: it runs samples again that failed because of endpoints (with --retry-failed, "
    "all failed ones). "
)


def _without_samples(task: str, wanted: int, held_out: int) -> str:
    if wanted:
        return f"{task}: none of its {wanted:,} samples exists. Repeat the command with TASK=EXPERT to take them."
    return f"{task}: it has no sample, because all of its {held_out:,} rows are rows of an evaluation (--not-in)."


def _many_lost(task: str, report: TaskReport, lost: Counter[str], max_failed: float) -> str:
    total = report.samples + lost["missing"]
    causes = ", ".join(f"{cause} {count:,}" for cause, count in lost.most_common())
    share = f"{lost.total():,} of {total:,} samples are lost ({lost.total() / total:.0%}; --max-failed allows "
    return f"{task}: {share}{max_failed:.0%}): {causes}."


def _last_failure(task: str, samples: Sequence[ExpertSample]) -> str:
    """The message of the last failed sample of a task; empty if none failed or it says nothing."""
    failed = [sample for sample in samples if sample.task == task and (sample.problem or "").startswith("failed")]
    if not failed:
        return ""
    record = failed[-1].place.read()
    attempts = [record.draft, *([record.refined] if record.refined else [])]
    failure = next((attempt.failure for attempt in attempts if attempt.failure is not None), None)
    if failure is None or not failure.detail:
        return ""
    return f"Last {failure.cause}: {' '.join(failure.detail.split())[:_SHOWN].rstrip('.')}. "
