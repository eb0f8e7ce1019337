"""Write a training as one HTML file: with the texts of chosen steps, or with the most telling ones at the end of a run.

The file holds all numbers: of the run, and of every session of a finished step. The chosen sessions have their texts
too. A browser keeps the whole file in memory, so the texts are limited, before compression.
"""

from __future__ import annotations

import re
import sqlite3
from argparse import ArgumentTypeError
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from soul.errors import BadSettings, RunFailed
from soul.evaluate.report import FILE as REPORT
from soul.evaluate.report.page_parts import to_json
from soul.view.discovery import find
from soul.view.index import all_columns
from soul.view.overview import checkpoints
from soul.view.page import write_export
from soul.view.sessions import NoSession
from soul.view.training import Training

MOST_BYTES, MOST_REPORT_BYTES = 300_000_000, 40_000_000
_ASIDE = {"revision", "indexing", "notes"}  # of an overview: about the server
PER_KIND = 3  # sessions of each kind and step in the report of a run
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_FILES = "FROM sessions s JOIN files f ON f.id = s.file_id WHERE NOT f.live"
_CANDIDATES = f"""SELECT s.id, f.step, s.length, s.draft, s.refined - s.draft, s.cause IS NOT NULL
    {_FILES} AND f.split = 'step' AND NOT s.dropped ORDER BY s.id"""


def export_steps(folder: Path, steps: Sequence[range], file: Path) -> Path:
    """Write a training with the texts of these steps, and of the validations after them.

    Raises:
        BadSettings: there are none, or their texts are too large. RunFailed: the index cannot be built.
        OSError: the file cannot be written.
    """
    training = indexed(folder)
    known = training.ask(
        lambda connection: connection.execute(
            f"SELECT f.step, s.id, s.length {_FILES} ORDER BY f.step, f.split, s.id"
        ).fetchall()
    )
    chosen = [(number, length) for step, number, length in known if any(step in one for one in steps)]
    if not chosen:
        has = f"It has steps {known[0][0]} to {known[-1][0]}" if known else "It has no sessions yet"
        raise BadSettings(f"--export: {folder} has no session of these steps. {has}.")
    size = sum(length for _, length in chosen)
    if size > MOST_BYTES:
        raise BadSettings(
            f"--export: the sessions of these steps are {size / 1e6:,.0f} MB of text, and a browser can open a file of "
            f"at most {MOST_BYTES / 1e6:,.0f} MB. Choose fewer steps, or look at all of them with soul view {folder}."
        )
    return _write(training, [number for number, _ in chosen], file)


def write_run_report(folder: Path) -> Path:
    """Write report.html into a training's folder: all numbers, and the texts of the most telling sessions of each step.

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
    lines = (to_json(training.session(number)) for number in chosen)
    try:
        name = training.folder.resolve().name
        return write_export(file, overview, training.ask(all_columns), chosen, lines, name)
    except NoSession as error:
        raise RunFailed(f"{training.folder}: {error}. The training is running; run the same command again.") from None


def steps(text: str) -> list[range]:
    """Parse "1,5,10-20", the type of an option.

    Raises:
        ArgumentTypeError: it names no steps.
    """
    chosen = []
    for part in text.replace(" ", "").split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ArgumentTypeError(f"{text!r}: expected steps and ranges of steps, as in 1,5,10-20")
        first, last = int(match.group(1)), int(match.group(2) or match.group(1))
        if last < first:
            raise ArgumentTypeError(f"{part}: the range ends before it begins")
        chosen.append(range(first, last + 1))
    return chosen


def only_training(folder: Path) -> Path:
    """The folder of the only training in or below a folder.

    Raises:
        BadSettings: there is none, or there are several.
    """
    trainings = [found for found in find(folder) if found.kind == "training"]
    if len(trainings) == 1:
        return trainings[0].place
    if not trainings:
        raise BadSettings(f"{folder}: there is no training with traces in or below this folder.")
    known = ", ".join(found.path for found in trainings[:8]) + (", ..." if len(trainings) > 8 else "")
    raise BadSettings(f"{folder} has several trainings; name the folder of one: {known}.")


class Candidate(NamedTuple):
    """A session that may be chosen: the bytes of its text, its rewards, and the gain from draft to refined."""

    id: int
    step: int
    length: int
    draft: float | None
    gain: float | None
    failed: int


def telling_sessions(connection: sqlite3.Connection, saved: Collection[int], most_bytes: int) -> list[int]:
    """Of each step the sessions that improved most, were hurt most, and failed; at most PER_KIND of each.

    A step whose drafts were not refined gives its best and its worst drafts instead. Where the texts exceed
    `most_bytes`, each step keeps its first ones, and steps with a checkpoint come first.

    Args:
        saved: steps with a checkpoint.

    Returns:
        The ids of the sessions, by step.
    """
    by_step: defaultdict[int, list[Candidate]] = defaultdict(list)
    for row in connection.execute(_CANDIDATES):
        by_step[row[1]].append(Candidate(*row))
    kinds = {step: list(_kinds(candidates)) for step, candidates in by_step.items()}
    first = sorted(kinds, key=lambda step: (step not in saved, step))
    chosen: dict[int, Candidate] = {}
    for place in range(PER_KIND):
        for candidate in (kind[place] for step in first for kind in kinds[step] if len(kind) > place):
            if candidate.id not in chosen and candidate.length <= most_bytes:
                chosen[candidate.id] = candidate
                most_bytes -= candidate.length
    return [candidate.id for candidate in sorted(chosen.values(), key=lambda one: (one.step, one.id))]


def _kinds(candidates: Sequence[Candidate]) -> Iterator[list[Candidate]]:
    """Improved, hurt and failed sessions of a step, the most telling first."""
    gains = [(one.gain, one) for one in candidates if one.gain is not None]
    rewards = gains or [(one.draft, one) for one in candidates if one.draft is not None]
    ranked = sorted(rewards, key=lambda pair: -pair[0])
    yield [one for value, one in ranked if value > 0 or not gains][:PER_KIND]
    yield [one for value, one in reversed(ranked) if value < 0 or not gains][:PER_KIND]
    yield [one for one in candidates if one.failed][:PER_KIND]
