"""Write a training run as one HTML file: at its end, or by `soul view RUN --export FILE.html`.

The file holds all numbers: of the run, and of every session of a finished step. The most telling sessions have their
texts too. A browser keeps the whole file in memory, so the texts are limited, before compression.
"""

from __future__ import annotations

import sqlite3
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
from soul.view.training import RunView

MOST_BYTES = 40_000_000  # of texts, before compression
_ASIDE = {"revision", "indexing", "notes"}  # of an overview: about the server
PER_KIND = 3  # sessions of each kind and step
_CANDIDATES = """SELECT s.id, f.step, s.length, s.draft, s.refined - s.draft, s.cause IS NOT NULL
    FROM sessions s JOIN files f ON f.id = s.file_id
    WHERE f.split = 'step' AND NOT f.live AND NOT s.dropped ORDER BY s.id"""


def write_run_report(folder: Path, file: Path | None = None) -> Path:
    """Write all numbers of a training run, and the texts of the most telling sessions of each step.

    Args:
        file: report.html in the training's folder, unless another one is named.

    Raises:
        RunFailed: the index cannot be built. OSError: the file cannot be written.
    """
    training, saved = indexed(folder), checkpoints(folder)
    chosen = training.ask(lambda connection: telling_sessions(connection, saved, MOST_BYTES))
    overview = {name: value for name, value in training.overview(None).items() if name not in _ASIDE}
    lines = (to_json(training.session(number)) for number in chosen)
    columns, name = training.ask(all_columns), folder.resolve().name
    try:
        return write_export(file or folder / REPORT, overview, columns, chosen, lines, name)
    except NoSession as error:
        raise RunFailed(f"{folder}: {error}. The training is running; run the same command again.") from None


def indexed(folder: Path) -> RunView:
    """A training run whose index is up to date.

    Raises:
        RunFailed: the index cannot be built.
    """
    training = RunView(folder)
    training.refresh()
    if training.problem:
        raise RunFailed(training.problem)
    return training


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
    raise BadSettings(f"{folder} has several training runs; pass the folder of one: {known}.")


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
