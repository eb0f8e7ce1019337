"""Write sessions of a training as one HTML file: those of chosen steps, or the report at the end of a run.

The file holds all numbers of the run and the texts of the chosen sessions, compressed. A browser keeps the whole file
in memory, so the texts are limited: 300 MB before compression for an export, 75 MB of file; 40 MB for a report.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from soul.errors import BadSettings, RunFailed
from soul.evaluate.report import FILE as REPORT
from soul.evaluate.report.packing import to_json
from soul.view.columns import columns_of
from soul.view.events import checkpoints
from soul.view.page import write_export
from soul.view.selection import sessions_of, steps_with_sessions, telling_sessions
from soul.view.sessions import NoSession
from soul.view.training import Training

MOST_BYTES, MOST_REPORT_BYTES = 300_000_000, 40_000_000
_ASIDE = {"revision", "indexing", "notes"}  # of an overview: about the server


def export_steps(folder: Path, steps: Sequence[range], file: Path) -> Path:
    """Write the sessions of these steps of a training, and of the validations after them.

    Raises:
        BadSettings: there are none, or their texts are too large. RunFailed: the index cannot be built.
        OSError: the file cannot be written.
    """
    training = indexed(folder)
    chosen = training.ask(lambda connection: sessions_of(connection, steps))
    if not chosen:
        known = training.ask(steps_with_sessions)
        has = f"It has steps {known[0]} to {known[-1]}" if known else "It has no sessions yet"
        raise BadSettings(f"--export: {folder} has no session of these steps. {has}.")
    size = sum(length for _, length in chosen)
    if size > MOST_BYTES:
        raise BadSettings(
            f"--export: the sessions of these steps are {size / 1e6:,.0f} MB of text, and a browser can open a file of "
            f"at most {MOST_BYTES / 1e6:,.0f} MB. Choose fewer steps, or look at all of them with soul view {folder}."
        )
    return _write(training, [number for number, _ in chosen], file)


def write_run_report(folder: Path) -> Path:
    """Write report.html into a training's folder: all curves, and the most telling sessions of each step.

    Raises:
        RunFailed: the index cannot be built. OSError: the file cannot be written.
    """
    training, saved = indexed(folder), checkpoints(folder)
    chosen = training.ask(lambda connection: telling_sessions(connection, saved, MOST_REPORT_BYTES))
    return _write(training, chosen, folder / REPORT)


def indexed(folder: Path) -> Training:
    """A training whose index is up to date.

    Raises:
        RunFailed: the index cannot be built.
    """
    training = Training(folder)
    training.refresh()
    if training.problem:
        raise RunFailed(training.problem)
    return training


def _write(training: Training, chosen: Sequence[int], file: Path) -> Path:
    overview = {name: value for name, value in training.overview(None).items() if name not in _ASIDE}
    columns = training.ask(lambda connection: columns_of(connection, chosen))
    lines = (to_json(training.session(number)) for number in chosen)
    try:
        return write_export(file, overview, columns, lines, name=training.folder.resolve().name)
    except NoSession as error:
        raise RunFailed(f"{training.folder}: {error}. The training is running; run the same command again.") from None
