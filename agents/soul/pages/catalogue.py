"""Find what there is to look at below a folder: training runs and evaluations.

Links to folders are not followed, and the folders of checkpoints, traces and replaced files are not entered. The facts
about a folder are read from small files only, never from its index. Addresses are looked up in a `Catalogue` of what
was found, so no address can name any other file.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soul.errors import SoulError, one_line
from soul.files.trace_files import FOLDER as TRACES
from soul.pages.facts import Kind, facts, kind_of

# What reads a folder. Evaluations import this package, for their report; so the readers are imported by name.
READERS = {
    "training": ("soul.pages.training_view", "TrainingView"),
    "evaluation": ("soul.evaluate.page", "EvaluationView"),
}
DEEPEST = 8  # levels below the folder
_SKIPPED = re.compile(rf"{TRACES}|replaced|node_modules|__pycache__|judge_cache|\..*|global_step_.*|.*\.partial")
LOOK_S = 2.0  # the folders are looked through no more often


class RunView(ABC):
    """A run's folder as the pages keep it. Its methods may be called from several threads.

    Attributes:
        functions, parts: an address below the run's -> what answers it; parts have no arguments and one view each.
        indexing: the share of the files' bytes that is read; None while nothing is left to do.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts: dict[str, Callable[[], dict[str, Any]]] = {}
        self.functions: dict[str, Callable[..., Any]] = {"overview": self.overview, "index": self.columns}
        self.functions |= {"session": self.session, "search": self.search}
        self.indexing: float | None = None
        self._lock = threading.Lock()
        self._known: Any = None  # the state of the files when the numbers were read
        self._revision, self._overview = 0, dict[str, Any]()

    def overview(self, known: int | None = None) -> dict[str, Any]:
        """All numbers; only "revision", "unchanged" and "indexing" if the page knows this revision."""
        with self._lock:
            if (state := self._state()) != self._known:
                self._overview, self._known = self._numbers(), state
                self._revision = max(self._revision + 1, int(time.time() * 1000))
            new = {"unchanged": True} if known == self._revision else self._overview
            return {"revision": self._revision, "indexing": self.indexing, **new}

    @abstractmethod
    def _state(self) -> Any:
        """A value that changes with the files."""

    @abstractmethod
    def _numbers(self) -> dict[str, Any]:
        """Read the numbers of the overview."""

    @abstractmethod
    def columns(self, after: int = 0, known: int | None = None) -> dict[str, Any]:
        """Return what is newer than this session and revision: {"revision", "reset", "columns"}."""

    @abstractmethod
    def session(self, number: int) -> dict[str, Any]:
        """A session's record with its question and answers; raises NoSession."""

    @abstractmethod
    def search(self, text: str, after: int = 0) -> dict[str, Any]:
        """Later sessions with this text; see `soul.pages.sessions.searched`."""


@dataclass(frozen=True)
class Found:
    """The folder of a run."""

    id: str  # the same in each start of the viewer
    kind: Kind
    path: str  # relative to the folder that is viewed; its own name stands for itself
    place: Path

    def open(self) -> RunView:
        """Make the reader of the folder."""
        module, name = READERS[self.kind]
        view: RunView = getattr(importlib.import_module(module), name)(self.place)
        return view

    def facts(self) -> dict[str, Any]:
        """The facts that the list shows (`soul.pages.facts`); of a damaged folder, what is wrong."""
        try:
            known = vars(facts(self.place))
        except SoulError as error:
            known = {"name": self.place.name, "state": "failed", "cause": one_line(error), "changed": 0.0}
        return {**known, "id": self.id, "path": self.path, "kind": self.kind}


def find(root: Path) -> list[Found]:
    """Everything below a folder, and the folder itself, by path."""
    root, found = root.resolve(), []
    for name, folders, _ in os.walk(root):
        place, below = Path(name), Path(name).relative_to(root)
        folders[:] = [one for one in folders if len(below.parts) < DEEPEST and not _SKIPPED.fullmatch(one)]
        if kind := kind_of(place):
            path = below.as_posix() if below.parts else root.name
            mark = hashlib.blake2b(f"{kind}:{path}".encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
            found.append(Found(mark, kind, path, place))
    return sorted(found, key=lambda one: one.path)


class Catalogue:
    """The folders below `root`. Its methods may be called from several threads."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._lock = threading.Lock()
        self._looked = float("-inf")  # time.monotonic()
        self._found: dict[str, Found] = {}
        self._views: dict[str, RunView] = {}

    def folders(self) -> dict[str, Any]:
        """{"root", "folders"}: the facts about each folder, newest first."""
        known = [one.facts() for one in self.found().values()]
        return {"root": str(self.root), "folders": sorted(known, key=lambda one: one["changed"], reverse=True)}

    def view(self, number: str) -> RunView | None:
        """The run with this id."""
        one = self._found.get(number) or self.found().get(number)
        with self._lock:
            if one and number not in self._views:
                self._views[number] = one.open()
            return self._views[number] if one else None

    def found(self) -> dict[str, Found]:
        """Id -> what was found."""
        with self._lock:
            if time.monotonic() - self._looked > LOOK_S:
                self._found = {one.id: one for one in find(self.root)}
                self._looked = time.monotonic()
            return self._found
