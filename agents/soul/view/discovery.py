"""Find what there is to look at below a folder: training runs, evaluations, and pages of `soul compare --html`.

Links to folders are not followed, and the folders of checkpoints, traces and replaced files are not entered. The facts
about a folder are read from small files only, never from its index. The server looks up addresses in a `Catalogue` of
what was found, so no address can name any other file.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from soul.errors import SoulError
from soul.evaluate.report import FILE as REPORT
from soul.evaluate.run.journal import FILE as JOURNAL
from soul.files.folder_lock import is_held
from soul.files.json_object import read_object
from soul.files.metrics_file import NAME as METRICS
from soul.files.trace_files import FOLDER as TRACES
from soul.files.trace_files import LIVE, last_step, trace_files
from soul.view.overview import RUN_FILE
from soul.view.training import RunView

Kind = Literal["training", "evaluation", "comparison"]
DEEPEST = 8  # levels below the folder
_SKIPPED = {TRACES, "replaced", "node_modules", "__pycache__", "judge_cache"}
_COMPARISON = b'<body class="comparison">'
_HEAD_BYTES = 65_536  # of a page: style and policy come before its body
LOOK_S = 2.0  # the folders are looked through no more often


@dataclass(frozen=True)
class Found:
    """A folder of a run, or the page of a comparison.

    Attributes:
        id: the same in each start of the viewer.
        path: relative to the folder that is viewed; its own name stands for itself.
        place: the folder, or the page.
    """

    id: str
    kind: Kind
    path: str
    place: Path

    @property
    def report(self) -> Path | None:
        """The page that goes with it."""
        page = self.place if self.kind == "comparison" else self.place / REPORT
        return page if page.is_file() else None

    def facts(self) -> dict[str, Any]:
        """The facts that the list shows; `modified` is unix time, `report` whether it has a page of its own."""
        place, name, steps, tasks, objective = self.place, self.place.stem, 0, [], None
        changed = [place]
        if self.kind == "training":
            run = _object(place / RUN_FILE)
            name, steps, objective = place.name, last_step(place / TRACES), run.get("objective")
            tasks = [task for task in str(run.get("task") or "").split(",") if task]
            changed += [place / METRICS, place / TRACES, place / TRACES / LIVE]
        elif self.kind == "evaluation":
            policy, sets = _object(place / "settings.json").get("policy"), _object(place / "chosen.json").get("samples")
            name = str((policy.get("model") if isinstance(policy, dict) else None) or place.name)
            tasks = list(sets) if isinstance(sets, dict) else []
            changed.append(place / JOURNAL)
        return {
            "id": self.id,
            "path": self.path,
            "kind": self.kind,
            "name": name,
            "modified": max((one.stat().st_mtime for one in changed if one.exists()), default=0.0),
            "steps": steps,
            "tasks": tasks,
            "objective": objective if isinstance(objective, str) else None,
            "running": self.kind != "comparison" and is_held(place),
            "report": self.report is not None,
        }


def find(root: Path) -> list[Found]:
    """Everything below a folder, and the folder itself, by path."""
    return sorted(_walk(root.resolve()), key=lambda found: found.path)


def _walk(root: Path) -> Iterator[Found]:
    for name, folders, files in os.walk(root):
        folder = Path(name)
        depth = len(folder.relative_to(root).parts)
        folders[:] = [one for one in folders if depth < DEEPEST and _enters(one)]
        if METRICS in files or any(trace_files(folder / TRACES)):
            yield _found(root, folder, "training")
        elif {"settings.json", "chosen.json", JOURNAL} <= set(files):
            yield _found(root, folder, "evaluation")
        for file in files:
            if file.endswith(".html") and file != REPORT and _is_comparison(folder / file):
                yield _found(root, folder / file, "comparison")


def _enters(name: str) -> bool:
    return not (name in _SKIPPED or name.startswith((".", "global_step_")) or name.endswith(".partial"))


def _found(root: Path, place: Path, kind: Kind) -> Found:
    path = place.relative_to(root).as_posix() if place != root else root.name
    mark = hashlib.blake2b(f"{kind}:{path}".encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    return Found(mark, kind, path, place)


def _is_comparison(page: Path) -> bool:
    try:
        with page.open("rb") as file:
            return _COMPARISON in file.read(_HEAD_BYTES)
    except OSError:
        return False


def _object(path: Path) -> dict[str, Any]:
    try:
        return read_object(path, SoulError, "")
    except (OSError, SoulError):  # the page of the run, or its report, says what is wrong
        return {}


class Catalogue:
    """The folders below `root`. Its methods may be called from several threads."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._lock = threading.Lock()
        self._looked = float("-inf")  # time.monotonic()
        self._found: dict[str, Found] = {}
        self._trainings: dict[str, RunView] = {}

    def folders(self) -> dict[str, Any]:
        """{"root", "folders"}: the facts about each folder, newest first."""
        known = [one.facts() for one in self._look().values()]
        return {"root": str(self.root), "folders": sorted(known, key=lambda one: one["modified"], reverse=True)}

    def training(self, number: str) -> RunView | None:
        """The training with this id."""
        one = self._known(number)
        if one is None or one.kind != "training":
            return None
        with self._lock:
            return self._trainings.setdefault(number, RunView(one.place))

    def page_path(self, number: str) -> str | None:
        """The path, relative to the root, of the page that goes with this folder."""
        one = self._known(number)
        return one.report.relative_to(self.root).as_posix() if one and one.report else None

    def page(self, path: str) -> Path | None:
        """The page with this relative path: a report, or a comparison."""
        pages = (one.report for one in self._look().values())
        return next((page for page in pages if page and page.relative_to(self.root).as_posix() == path), None)

    def _known(self, number: str) -> Found | None:
        return self._found.get(number) or self._look().get(number)

    def _look(self) -> dict[str, Found]:
        with self._lock:
            if time.monotonic() - self._looked > LOOK_S:
                self._found = {one.id: one for one in find(self.root)}
                self._looked = time.monotonic()
            return self._found
