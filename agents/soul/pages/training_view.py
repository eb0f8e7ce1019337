"""One training run as the pages keep it: its index, a thread that brings the index up to date, and its answers."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from soul.errors import RunFailed, SoulError
from soul.files.metrics_file import NAME as METRICS
from soul.files.trace_files import FOLDER as TRACES
from soul.pages.catalogue import RunView
from soul.pages.facts import FAILURE, RUN_FILE, TrainingFiles, checkpoints, described, facts, stamp
from soul.pages.index import SessionIndex, columns_after
from soul.pages.sessions import NoSession, Place, places_of, read_line, search, shown
from soul.pages.themes import WITH_FEEDBACK, themes
from soul.pages.training_numbers import judge_part, sessions_part
from soul.record import SessionRecord
from soul.shown_answers import answers_to

logger = logging.getLogger(__name__)

CHECK_S = 1.0  # the files are looked at no more often
WAIT_S = 0.8  # an answer waits this long for the index, then shows what there is
Value = TypeVar("Value")


class TrainingView(RunView):
    """A training run's folder.

    Attributes:
        problem: why the index cannot be written; "" if it can.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.traces, self.problem = folder / TRACES, ""
        self.parts = {"themes": self.themes, "judge": self.judge}
        self._index: SessionIndex | None = None
        self._starting = threading.Lock()
        self._worker: threading.Thread | None = None
        self._checked = 0.0  # time.monotonic()

    def keep_up(self, wait_s: float = WAIT_S) -> None:
        """Look for new sessions, in a thread of its own; wait this long for it at most."""
        with self._starting:
            if self._worker is None or not self._worker.is_alive():
                if time.monotonic() - self._checked < CHECK_S or not self.traces.is_dir():
                    return
                self.indexing = 0.0
                self._worker = threading.Thread(target=self.refresh, name=f"index {self.folder.name}", daemon=True)
                self._worker.start()
            worker = self._worker
        worker.join(wait_s)

    def refresh(self) -> None:
        """Bring the index up to date; what prevents it becomes `problem`."""

        def note(share: float) -> None:
            self.indexing = share

        try:
            if self._index is None:
                self._index = SessionIndex(self.traces)
            self._index.refresh(note)
            self.problem = ""
        except (sqlite3.DatabaseError, OSError) as error:
            self.problem = f"The index of {self.traces} cannot be written: {error}."
            logger.warning("%s", self.problem)
        finally:
            self.indexing = None
            self._checked = time.monotonic()

    def columns(self, after: int = 0, known: int | None = None) -> dict[str, Any]:
        self.keep_up()
        nothing = {"revision": 0, "reset": after > 0, "columns": {}}
        return self._read(lambda connection: columns_after(connection, after, known), nothing)

    def _state(self) -> Any:
        self.keep_up()
        files = [stamp(self.folder / name) for name in (METRICS, RUN_FILE, FAILURE)]
        revision = self._read(lambda connection: connection.execute("SELECT revision FROM meta").fetchone(), None)
        return revision, files, checkpoints(self.folder), self._notes()

    def _notes(self) -> list[str]:
        return [note for note in (self.problem, self._index.note if self._index else "") if note]

    def _numbers(self) -> dict[str, Any]:
        nothing: dict[str, Any] = {"curves": {}, "calls": [], "problems": []}
        sessions, files = self._read(sessions_part, nothing), TrainingFiles.read(self.folder)
        metrics = files.series()
        try:
            verdict = facts(self.folder).verdict
        except SoulError:  # a file is damaged: the problems say which
            verdict = ""
        more = {"metrics": metrics, "about": described(metrics["series"]), "events": files.events(), "verdict": verdict}
        problems = [*files.problems, *sessions["problems"]]
        return {**sessions, "run": files.run, **more, "problems": problems, "notes": self._notes()}

    def session(self, number: int) -> dict[str, Any]:
        self.keep_up()
        found = self._places("s.id = ?", number)
        if not found:
            raise NoSession(f"there is no session {number} any more")
        record = SessionRecord.from_line(read_line(self.traces, found[0]), found[0].file)
        return shown(record, answers_to(record))

    def themes(self) -> dict[str, Any]:
        """What the feedback is about; see `soul.pages.themes`."""
        self.keep_up()
        return themes(self.traces, self._places(WITH_FEEDBACK))

    def judge(self) -> dict[str, Any]:
        """The judge's rewards by version of its prompt and by length; see `soul.pages.training_numbers`."""
        self.keep_up()
        return self._read(judge_part, {"judges": [], "lengths": {}})

    def search(self, text: str, after: int = 0) -> dict[str, Any]:
        self.keep_up()
        return search(self.traces, self._places("s.id > ? ORDER BY s.id", after), text)

    def _places(self, condition: str, *values: int) -> list[Place]:
        return self._read(lambda connection: places_of(connection, condition, *values), [])

    def ask(self, question: Callable[[sqlite3.Connection], Value]) -> Value:
        """Ask the index, after `refresh`; raises RunFailed if there is none, or it was damaged since."""
        if self._index is None:
            raise RunFailed(f"The index of {self.traces} is not built yet.")
        return self._index.read(question)

    def _read(self, question: Callable[[sqlite3.Connection], Value], otherwise: Value) -> Value:
        """Ask the index; `otherwise` while there is none."""
        try:
            return self.ask(question)
        except RunFailed:
            return otherwise
