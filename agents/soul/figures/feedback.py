"""The feedback on one scenario early and late in training (the paper's table 2), from the traces of a run.

The scenario is the record that was played, with feedback, in the two steps that are furthest apart. Of its sessions in
a step, the table shows the one with the median reward of the draft.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from soul.figures.training import better, is_reward
from soul.figures.training_run import Runs, TrainingRun, file_name
from soul.files.trace_files import FOLDER, finished_files
from soul.record import SessionRecord, read_records
from soul.rows.data_card import sha256
from soul.table import NONE, Table

Scenario = tuple[str, str]  # task, and the hash of the record


def feedback_tables(runs: Runs, missing: list[str]) -> list[Table]:
    """A table for each name, of the first of its seeds with a record that repeats; else a sentence joins `missing`."""
    tables = []
    for name, seeds in runs.items():
        table = next((table for run in seeds if (table := feedback_table(run))), None)
        if table is None:
            missing.append(
                f"feedback early and late, {name}: no record has feedback in two steps of its traces. It takes a run "
                "of more than one epoch that keeps traces/ and gives feedback."
            )
        else:
            tables.append(table)
    return tables


def feedback_table(run: TrainingRun) -> Table | None:
    """The table of a run; None if no record repeats. Of several scenarios, the first by its hash."""
    steps: dict[Scenario, tuple[int, int]] = {}
    for step, trace in _with_feedback(run.folder):
        steps[_scenario(trace)] = (min(step, steps.get(_scenario(trace), (step, 0))[0]), step)
    scenario = max(sorted(steps), key=lambda one: steps[one][1] - steps[one][0], default=None)
    if scenario is None or steps[scenario][0] == steps[scenario][1]:
        return None
    played: dict[int, list[SessionRecord]] = {step: [] for step in steps[scenario]}
    for step, trace in _with_feedback(run.folder, played):
        if _scenario(trace) == scenario:
            played[step].append(trace)
    ranked = [sorted(one, key=lambda trace: (trace.draft.reward or 0.0, trace.session)) for one in played.values()]
    early, late = (sessions[(len(sessions) - 1) // 2] for sessions in ranked)
    return _table(run, early, late)


def _table(run: TrainingRun, early: SessionRecord, late: SessionRecord) -> Table:
    task, both = early.task, (early, late)
    metrics = [{"reward": one.draft.reward, **(one.draft.metrics or {})} for one in both]
    names = [name for name in {**metrics[0], **metrics[1]} if name == "reward" or not is_reward(task, name)]
    lines = [(f"{name}{better(task, name)}", *(_number(one.get(name)) for one in metrics)) for name in names]
    lines.append(("feedback", *(_printable(one.feedback) for one in both)))
    lines.append(("reward after the feedback", *(_number(one.refined.reward if one.refined else None) for one in both)))
    data: list[Sequence[Any]] = [("", "step", "session", "name", "value")]
    for one, numbers in zip(both, metrics, strict=True):
        values = {**numbers, "feedback": _printable(one.feedback)}
        data += [(task, one.step, one.session, name, value) for name, value in values.items()]
    rows = dict.fromkeys(f"row number {one.number} of {one.file or 'its file'}" for one in both)
    where = f"The scenario is {' and '.join(rows)}; of its sessions in each step, that of the median reward is shown."
    steps = {one.step for one in both}
    files = [file.path for file in finished_files(run.folder / FOLDER, "step") if file.step in steps]
    return Table(
        ("", *(f"step {one.step}" for one in both)),
        lines,
        notes=[where],
        words=frozenset({1, 2}),
        file=f"feedback-{file_name(run.name)}",
        caption=f"{run.name}, {task}: the feedback on one scenario early and late in training.",
        data=data,
        sources=[(run.name, path, sha256(path)) for path in files],
    )


def _with_feedback(folder: Path, steps: Sequence[int] | dict[int, Any] = ()) -> Iterator[tuple[int, SessionRecord]]:
    """The judged sessions with feedback, of these steps or of all; an asynchronous step may have several files."""
    for file in finished_files(folder / FOLDER, "step"):
        if not steps or file.step in steps:
            records = (line.record for line in read_records(file.path))
            yield from ((file.step, one) for one in records if one.feedback and one.draft.valid)


def _scenario(trace: SessionRecord) -> Scenario:
    return trace.task, trace.record_hash or f"{trace.file}, row {trace.number}"  # old traces have no hash


def _printable(text: str | None) -> str:
    """A model's text without what breaks a file: lone surrogates, control characters."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "\ufffd" for sign in text or "")


def _number(value: float | None) -> str:
    return NONE if value is None else f"{value:.3g}"
