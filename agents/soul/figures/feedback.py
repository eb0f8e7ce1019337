"""The feedback on one scenario early and late in training (the paper's table 2), from the traces of a run.

The scenario is the record that was played, with feedback, in the two steps that are furthest apart. Of its sessions in
a step, the table shows the one with the median reward of the draft.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soul.figures.training import better, is_reward
from soul.figures.training_run import Runs, TrainingRun, file_name
from soul.files.trace_files import FOLDER, finished_files
from soul.record import SessionRecord, read_records
from soul.rows.data_card import sha256
from soul.table import Cell, Table

Scenario = tuple[str, str]  # task, and the hash of the record


@dataclass(frozen=True)
class Repeated:
    """A record that was played early and late."""

    scenario: Scenario
    early: int
    late: int


def feedback_tables(runs: Runs, missing: list[str]) -> list[Table]:
    """A table for each name, of the first of its seeds with a record that repeats; else a sentence joins `missing`."""
    tables = []
    for name, seeds in runs.items():
        repeats = ((run, repeated) for run in seeds if (repeated := furthest_apart(run.folder)))
        run, repeated = next(repeats, (None, None))
        if run is None or repeated is None:
            missing.append(
                f"feedback early and late, {name}: no record has feedback in two steps of its traces. It takes a run "
                "of more than one epoch that keeps traces/ and gives feedback."
            )
        else:
            tables.append(_table(run, repeated))
    return tables


def furthest_apart(folder: Path) -> Repeated | None:
    """The record with feedback in the two steps that are furthest apart; of several, the first by its hash."""
    steps: dict[Scenario, tuple[int, int]] = {}
    for step, file in _step_files(folder):
        for trace in _with_feedback(file):
            scenario = _scenario(trace)
            steps[scenario] = (min(step, steps.get(scenario, (step, 0))[0]), step)
    repeats = [Repeated(scenario, *ends) for scenario, ends in sorted(steps.items()) if ends[0] < ends[1]]
    return max(repeats, key=lambda one: one.late - one.early, default=None)


def _table(run: TrainingRun, repeated: Repeated) -> Table:
    early, late = (_median_session(run.folder, repeated.scenario, step) for step in (repeated.early, repeated.late))
    task, _ = repeated.scenario
    lines = [("reward", early.draft.reward, late.draft.reward)]
    metrics = (early.draft.metrics or {}, late.draft.metrics or {})
    lines += [
        (name, metrics[0].get(name), metrics[1].get(name))
        for name in {**metrics[0], **metrics[1]}
        if not is_reward(task, name)
    ]
    body = [[Cell(f"{name}{better(task, name)}"), Cell(_number(a)), Cell(_number(b))] for name, a, b in lines]
    body.append([Cell("feedback"), Cell(_printable(early.feedback)), Cell(_printable(late.feedback))])
    refined = [one.refined.reward if one.refined else None for one in (early, late)]
    body.append([Cell("reward after the feedback"), *(Cell(_number(value)) for value in refined)])
    data: list[Sequence[Any]] = [("", "step", "session", "name", "value")]
    for step, one in ((repeated.early, early), (repeated.late, late)):
        numbers = {"reward": one.draft.reward, **(one.draft.metrics or {}), "feedback": _printable(one.feedback)}
        data += [(task, step, one.session, name, value) for name, value in numbers.items()]
    heads = (f"step {repeated.early}", f"step {repeated.late}")
    caption = f"{run.name}, {task}: the feedback on one scenario early and late in training."
    rows = dict.fromkeys(f"row number {one.number} of {one.file or 'its file'}" for one in (early, late))
    where = f"The scenario is {' and '.join(rows)}; of its sessions in each step, that of the median reward is shown."
    sources = [
        (run.name, path, sha256(path))
        for step, path in _step_files(run.folder)
        if step in (repeated.early, repeated.late)
    ]
    return Table(
        ("", *heads),
        body,
        notes=[where],
        words=frozenset({1, 2}),
        file=f"feedback-{file_name(run.name)}",
        caption=caption,
        data=data,
        sources=sources,
    )


def _median_session(folder: Path, scenario: Scenario, step: int) -> SessionRecord:
    files = [file for number, file in _step_files(folder) if number == step]
    sessions = [trace for file in files for trace in _with_feedback(file) if _scenario(trace) == scenario]
    ranked = sorted(sessions, key=lambda trace: (trace.draft.reward or 0.0, trace.session))
    return ranked[(len(ranked) - 1) // 2]


def _step_files(folder: Path) -> Iterator[tuple[int, Path]]:
    """The trace files of training steps, in the order of the steps; an asynchronous step may have several."""
    return ((file.step, file.path) for file in finished_files(folder / FOLDER, "step"))


def _with_feedback(file: Path) -> Iterator[SessionRecord]:
    return (line.record for line in read_records(file) if line.record.feedback and line.record.draft.valid)


def _scenario(trace: SessionRecord) -> Scenario:
    return trace.task, trace.record_hash or f"{trace.file}, row {trace.number}"  # old traces have no hash


def _printable(text: str | None) -> str:
    """A model's text without what breaks a file: lone surrogates, control characters."""
    return "".join(sign if sign.isprintable() or sign == "\n" else "\ufffd" for sign in text or "")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
