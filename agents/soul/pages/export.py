"""Write runs as HTML files that need no server: at a run's end, or by `soul view` with `--export` or `--site`.

A file holds the numbers of the run and of every session of a finished step. It has the texts of all samples of an
evaluation, or of the most telling sessions of a training run, up to MOST_BYTES, because a browser keeps them all.
"""

from __future__ import annotations

import importlib
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from soul.errors import BadSettings, RunFailed
from soul.pages.catalogue import Found, Kind, RunView, find
from soul.pages.facts import REPORT, checkpoints
from soul.pages.index import all_columns
from soul.pages.page import to_json, write_page
from soul.pages.sessions import NoSession
from soul.pages.training_view import TrainingView

MOST_BYTES = 40_000_000  # of texts, before compression
PER_KIND = 3  # sessions of each kind and step
# Step, id, bytes, and the place in each list of a step: most improved, most hurt, failed. Where nothing was refined,
# the first two are the best and the worst drafts.
_TELLING = """WITH known AS (SELECT f.step, s.id, s.length, s.cause, s.refined - s.draft AS gain, s.draft,
        max(s.refined - s.draft IS NOT NULL) OVER (PARTITION BY f.step) AS refines
    FROM sessions s JOIN files f ON f.id = s.file_id WHERE f.split = 'step' AND NOT f.live),
  valued AS (SELECT *, CASE WHEN refines THEN gain ELSE draft END AS value FROM known)
SELECT step, id, length, row_number() OVER (PARTITION BY step ORDER BY value DESC, id) AS place, 0 AS kind FROM valued
    WHERE CASE WHEN refines THEN value > 0 ELSE value IS NOT NULL END
UNION ALL SELECT step, id, length, row_number() OVER (PARTITION BY step ORDER BY value, id DESC), 1 FROM valued
    WHERE CASE WHEN refines THEN value < 0 ELSE value IS NOT NULL END
UNION ALL SELECT step, id, length, row_number() OVER (PARTITION BY step ORDER BY id), 2 FROM valued
    WHERE cause IS NOT NULL"""


def write_run_report(folder: Path, file: Path | None = None) -> Path:
    """Write a training run's report.html: all numbers, and texts of its most telling sessions; raises RunFailed."""
    view = indexed(folder)
    chosen = view.ask(lambda connection: telling_sessions(connection, checkpoints(folder), MOST_BYTES))
    try:
        return _write_view(view, "training", view.ask(all_columns), chosen, file or folder / REPORT)
    except NoSession as error:
        raise RunFailed(f"{folder}: {error}. The training is running; run the same command again.") from None


def write_evaluation(view: RunView, file: Path | None = None) -> Path:
    """Write an evaluation with all its samples: report.html in its folder; raises SoulError if it is damaged."""
    columns = view.columns()["columns"]
    return _write_view(view, "evaluation", columns, columns["id"], file or view.folder / REPORT)


def _write_view(view: RunView, kind: Kind, columns: Mapping[str, Any], chosen: Sequence[int], file: Path) -> Path:
    """Write a run, the columns of its sessions, and the texts of those with chosen ids; return the file."""
    facts = {**Found("run", kind, view.folder.resolve().name, view.folder).facts(), "state": "exported"}
    overview = {**view.overview(), "revision": 0}
    overview.pop("notes", None)  # they are about this machine
    data = {
        "folders": {"root": "", "folders": [facts]},
        "run/run/overview": overview,
        "run/run/index": {"revision": 0, "reset": False, "columns": columns},
        **{f"run/run/{name}": part() for name, part in view.parts.items()},
    }
    texts = ((f"run/run/session/{number}", to_json(view.session(number))) for number in chosen)
    first = "results" if kind == "evaluation" else "learning"
    return write_page(file, f"{facts['name']}, exported", data, texts, start=f"run/{first}")


def write_site(root: Path, out: Path) -> list[Path]:
    """Write a static site of a folder: index.html with all runs, and a file for each; raises SoulError."""
    out.mkdir(parents=True, exist_ok=True)
    files = {found: _write(found, out / f"{found.id}.html") for found in find(root)}
    folders = [{**found.facts(), "state": "exported", "href": file.name} for found, file in files.items()]
    data = {"folders": {"root": root.resolve().name, "folders": folders}}
    return [write_page(out / "index.html", root.resolve().name, data, (), start=""), *files.values()]


def write_comparison(
    folders: Sequence[Path], file: Path, *, against: Sequence[Sequence[Path]] = (), within: bool = False
) -> Path:
    """Write a comparison (see `soul.compare.runs.compare_runs`) with both texts of every row; return the file."""
    runs: Any = importlib.import_module("soul.compare.runs")  # by name: that package imports this one
    table = runs.compare_runs(folders, against, within=within)
    ids = ",".join(map(str, range(len(folders))))
    start = f"compare/{ids}" + ("/within" if within else "")  # in the API and behind "#"
    sets = {f"{place}/{name}": (one, name) for place, one in enumerate(table.comparisons) for name in one.sets}
    data = {"folders": {"root": "", "folders": []}, start: table.to_json()}
    data |= {f"{start}/rows/{key}": runs.rows_of(*of_set) for key, of_set in sets.items()}
    texts = (
        (f"{start}/texts/{key}/{row.id}", to_json(runs.pair_texts(one, name, row.id)))
        for key, (one, name) in sets.items()
        for row in one.sets[name].rows
    )
    return write_page(file, "Comparison", data, texts, start)


def indexed(folder: Path) -> TrainingView:
    """A training run whose index is up to date; raises RunFailed if it cannot be built."""
    view = TrainingView(folder)
    view.refresh()
    if view.problem:
        raise RunFailed(view.problem)
    return view


def export(folder: Path, file: Path) -> Path:
    """Write the only run in or below a folder as one file; raises BadSettings if there is none, or several."""
    found = find(folder)
    if not found:
        raise BadSettings(f"{folder}: there is no training run or evaluation in or below this folder.")
    if len(found) > 1:
        known = ", ".join(one.path for one in found[:8]) + (", ..." if len(found) > 8 else "")
        raise BadSettings(f"{folder} has several runs; pass the folder of one, or --site: {known}.")
    return _write(found[0], file)


def _write(found: Found, file: Path) -> Path:
    return write_run_report(found.place, file) if found.kind == "training" else write_evaluation(found.open(), file)


def telling_sessions(connection: sqlite3.Connection, saved: Collection[int], most_bytes: int) -> list[int]:
    """The ids of the PER_KIND most improved, most hurt and failed sessions of each step, by step.

    Where the texts exceed `most_bytes`, each step keeps its first ones; steps with a checkpoint (`saved`) come first.
    """
    rows = [row for row in connection.execute(_TELLING) if row[3] <= PER_KIND]
    chosen: dict[int, int] = {}  # id -> step
    for step, id_, length, _, _ in sorted(rows, key=lambda row: (row[3], row[0] not in saved, row[0], row[4])):
        if id_ not in chosen and length <= most_bytes:
            chosen[id_] = step
            most_bytes -= length
    return sorted(chosen, key=lambda id_: (chosen[id_], id_))
