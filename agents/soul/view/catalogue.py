"""What the viewer serves: the folders below its root, by id, and their pages. Addresses are looked up here, so no
address can name any other file."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from soul.view.discovery import Found, facts, find
from soul.view.training import Training

LOOK_S = 2.0  # the folders are looked through no more often


class Catalogue:
    """The folders below `root`. Its methods may be called from several threads."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._lock = threading.Lock()
        self._looked = float("-inf")  # time.monotonic()
        self._found: dict[str, Found] = {}
        self._trainings: dict[str, Training] = {}

    def folders(self) -> dict[str, Any]:
        """{"root", "folders"}: the facts about each folder, newest first."""
        entries = self._look()
        known = sorted(map(facts, entries.values()), key=lambda one: one["modified"], reverse=True)
        return {"root": str(self.root), "folders": known}

    def training(self, number: str) -> Training | None:
        """The training with this id."""
        one = self._known(number)
        if one is None or one.kind != "training":
            return None
        with self._lock:
            return self._trainings.setdefault(number, Training(one.place))

    def page_path(self, number: str) -> str | None:
        """The path, relative to the root, of the page that goes with this folder."""
        one = self._known(number)
        return self._relative(one.report) if one and one.report else None

    def page(self, path: str) -> Path | None:
        """The page with this relative path: a report, or a comparison."""
        pages = {self._relative(one.report): one.report for one in self._look().values() if one.report}
        return pages.get(path)

    def _relative(self, page: Path) -> str:
        return page.relative_to(self.root).as_posix()

    def _known(self, number: str) -> Found | None:
        return self._found.get(number) or self._look().get(number)

    def _look(self) -> dict[str, Found]:
        with self._lock:
            if time.monotonic() - self._looked > LOOK_S:
                self._found = {one.id: one for one in find(self.root)}
                self._looked = time.monotonic()
            return self._found
