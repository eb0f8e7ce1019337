"""Write runs as HTML files that need no server: at a run's end, or by `soul view` with `--export` or `--site`.

A file holds all numbers: of the run, and of every session of a finished step. An evaluation's samples have their texts;
of a training run, the most telling sessions have them. A browser keeps the whole file in memory, so the texts of a
training run are limited, before compression.
"""

from __future__ import annotations

import importlib
import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from soul.errors import BadSettings, RunFailed
from soul.pages.catalogue import Found, Kind, RunView, find, open_view
from soul.pages.index import all_columns
from soul.pages.page import to_json, write_page
from soul.pages.sessions import NoSession
from soul.pages.training_files import checkpoints
from soul.pages.training_view import TrainingView

REPORT = "report.html"  # in a run's folder
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
    columns = training.ask(all_columns)
    try:
        return write_view(training, "training", columns, chosen, file or folder / REPORT)
    except NoSession as error:
        raise RunFailed(f"{folder}: {error}. The training is running; run the same command again.") from None


def write_view(view: RunView, kind: Kind, columns: Mapping[str, Any], chosen: Sequence[int], file: Path) -> Path:
    """Write a run with the texts of chosen sessions as one file, and return the file.

    Args:
        columns: of all sessions.
        chosen: their ids.
    """
    facts = {**Found("run", kind, view.folder.resolve().name, view.folder).facts(), "state": "exported"}
    overview = {name: value for name, value in view.overview(None).items() if name not in _ASIDE}
    data = {
        "folders": {"root": "", "folders": [facts]},
        "run/run/overview": {"revision": 0, "indexing": None, **overview},
        "run/run/index": {"revision": 0, "reset": False, "indexing": None, "columns": columns},
    }
    data |= {f"run/run/{name}": part() for name, part in view.parts.items()}
    texts = ((f"run/run/session/{number}", to_json(view.session(number))) for number in chosen)
    first = "results" if kind == "evaluation" else "learning"
    return write_page(file, f"{facts['name']}, exported", data, texts, start=f"run/{first}")


def write_site(root: Path, out: Path) -> list[Path]:
    """Write a static site of a folder: index.html with all runs, and a file for each.

    Raises:
        SoulError: a run cannot be read.
    """
    out.mkdir(parents=True, exist_ok=True)
    folders, files = [], []
    for found in find(root):
        file = _write(found, out / f"{found.id}.html")
        folders.append({**found.facts(), "state": "exported", "href": file.name})
        files.append(file)
    data = {"folders": {"root": root.resolve().name, "folders": folders}}
    return [write_page(out / "index.html", root.resolve().name, data, (), start=""), *files]


def write_comparison(
    folders: Sequence[Path], file: Path, *, against: Sequence[Sequence[Path]] = (), within: bool = False
) -> Path:
    """Write a comparison of runs with both texts of every row (`soul compare --html`), and return the file.

    Args:
        against, within: as `soul.compare.runs.compare_runs` takes them.

    Raises:
        SoulError: a folder is not a run, or there is nothing to compare.
    """
    runs: Any = importlib.import_module("soul.compare.runs")  # by name: that package imports this one
    table = runs.compare_runs(folders, against, within=within)
    ids = ",".join(map(str, range(len(folders))))
    start = f"compare/{ids}" + ("/within" if within else "")
    data = {"folders": {"root": "", "folders": []}, start: table.to_json()}
    for place, one in enumerate(table.comparisons):
        data |= {f"{start}/rows/{place}/{name}": runs.rows_of(one, name) for name in one.sets}
    texts = (
        (f"{start}/texts/{place}/{name}/{row.id}", to_json(runs.pair_texts(one, name, row.id)))
        for place, one in enumerate(table.comparisons)
        for name, of_set in one.sets.items()
        for row in of_set.rows
    )
    return write_page(file, "Comparison", data, texts, start=f"compare/{ids}" + ("?within=1" if within else ""))


def write_evaluation(view: Any, file: Path | None = None) -> Path:
    """Write an evaluation with all its samples: report.html in its folder, unless another file is named.

    Args:
        view: its `soul.evaluate.page.EvaluationView`.

    Raises:
        SoulError: the folder is damaged.
    """
    return write_view(view, "evaluation", view.all_columns(), view.ids(), file or view.folder / REPORT)


def indexed(folder: Path) -> TrainingView:
    """A training run whose index is up to date.

    Raises:
        RunFailed: the index cannot be built.
    """
    training = TrainingView(folder)
    training.refresh()
    if training.problem:
        raise RunFailed(training.problem)
    return training


def export(folder: Path, file: Path) -> Path:
    """Write the only run in or below a folder as one file.

    Raises:
        BadSettings: there is none, or there are several.
    """
    match find(folder):
        case [one]:
            return _write(one, file)
        case []:
            raise BadSettings(f"{folder}: there is no training run or evaluation in or below this folder.")
        case several:
            known = ", ".join(found.path for found in several[:8]) + (", ..." if len(several) > 8 else "")
            raise BadSettings(f"{folder} has several runs; pass the folder of one, or --site: {known}.")


def _write(found: Found, file: Path) -> Path:
    if found.kind == "training":
        return write_run_report(found.place, file)
    return write_evaluation(open_view("evaluation", found.place), file)


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
