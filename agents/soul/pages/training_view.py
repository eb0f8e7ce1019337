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
from soul.pages.facts import FAILURE, RUN_FILE, TrainingFiles, checkpoints, described, facts
from soul.pages.index import DamagedIndex, SessionIndex, columns_after
from soul.pages.judge_numbers import judge_part
from soul.pages.sessions import NoSession, place_of, places_after, read_line, search, session_object
from soul.pages.themes import places, themes
from soul.pages.training_numbers import sessions_part
from soul.record import SessionRecord
from soul.shown_answers import answers_to

logger = logging.getLogger(__name__)

CHECK_S = 1.0  # the files are looked at no more often
LOG_EVERY_S = 3.0  # between two lines in the log about an index that is being built
WAIT_S = 0.8  # an answer waits this long for the index, then shows what there is
Value = TypeVar("Value")


class TrainingView:
    """A training run's folder. Its methods may be called from several threads.

    Attributes:
        indexing: the share of the files' bytes that is indexed; None while nothing is left to do.
        problem: why the index cannot be written; "" if it can.
        parts: numbers that only one view needs, and that are read when it asks.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.traces = folder, folder / TRACES
        self.indexing: float | None = None
        self.problem = ""
        self.parts = {"themes": self.themes, "judge": self.judge}
        self._index: SessionIndex | None = None
        self._lock = threading.Lock()
        self._worker: threading.Thread | None = None
        self._checked = 0.0  # time.monotonic()
        self._state: tuple[Any, ...] = ()  # of the files, when the overview was made
        self._revision = 0
        self._overview: dict[str, Any] = {}

    def keep_up(self, wait_s: float = WAIT_S) -> None:
        """Look for new sessions, in a thread of its own; wait this long for it at most."""
        with self._lock:
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
        logged_at = time.monotonic()

        def note(share: float) -> None:
            nonlocal logged_at
            self.indexing = share if share < 1.0 else None
            if time.monotonic() - logged_at > LOG_EVERY_S:
                logged_at = time.monotonic()
                logger.info("indexing the traces of %s: %.0f %%", self.folder, 100 * share)

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

    def columns(self, after: int, known: int | None) -> dict[str, Any]:
        """New sessions as columns (`columns_after`), and "indexing": the share that is indexed, or None."""
        self.keep_up()
        nothing = {"revision": 0, "reset": after > 0, "columns": {}}
        return {**self._read(lambda connection: columns_after(connection, after, known), nothing), **self._progress()}

    def overview(self, known: int | None) -> dict[str, Any]:
        """All numbers of the run; only "revision", "unchanged" and "indexing" if the page knows this revision."""
        self.keep_up()
        with self._lock:
            files = [_stamp(self.folder / name) for name in (METRICS, RUN_FILE, FAILURE)]
            state = self._read(_index_revision, 0), files, tuple(checkpoints(self.folder))
            if state != self._state:
                self._overview = self._numbers()
                self._revision = max(self._revision + 1, int(time.time() * 1000))
                self._state = state
            new = {"unchanged": True} if known == self._revision else self._overview
            return {"revision": self._revision, **new, **self._progress()}

    def _numbers(self) -> dict[str, Any]:
        nothing: dict[str, Any] = {"curves": {}, "calls": [], "problems": []}
        sessions, files = self._read(sessions_part, nothing), TrainingFiles.read(self.folder)
        metrics = files.series()
        try:
            verdict = facts(self.folder).verdict
        except SoulError:  # a file is damaged: the problems say which
            verdict = ""
        more = {"metrics": metrics, "about": described(metrics["series"]), "events": files.events(), "verdict": verdict}
        return {**sessions, "run": files.run, **more, "problems": [*files.problems, *sessions["problems"]]}

    def session(self, number: int) -> dict[str, Any]:
        """The record of a session, with its question and answers; raises NoSession."""
        self._open()
        place = self._read(lambda connection: place_of(connection, number), None)
        if place is None:
            raise NoSession("the run has no index yet")
        record = session_object(read_line(self.traces, place), place.file)
        return {**record, **answers_to(SessionRecord.model_validate(record))._asdict()}

    def themes(self) -> dict[str, Any]:
        """What the feedback is about; see `soul.pages.themes`."""
        self.keep_up()
        return themes(self.traces, self._read(places, []))

    def judge(self) -> dict[str, Any]:
        """The judge's rewards by version of its prompt and by length; see `soul.pages.judge_numbers`."""
        self.keep_up()
        return self._read(judge_part, {"judges": [], "lengths": {}})

    def search(self, text: str, after: int) -> dict[str, Any]:
        """Search the sessions with a higher id; see `soul.pages.sessions`."""
        self._open()
        return search(self.traces, self._read(lambda connection: places_after(connection, after), []), text)

    def _open(self) -> None:
        """Open the index, if this is the first request for the run."""
        if self._index is None:
            self.keep_up()

    def ask(self, question: Callable[[sqlite3.Connection], Value]) -> Value:
        """Ask the index, after `refresh`.

        Raises:
            RunFailed: there is none, or it was damaged since; the next look builds it again.
        """
        if self._index is None:
            raise RunFailed(f"The index of {self.traces} is not built yet.")
        try:
            return self._index.read(question)
        except DamagedIndex as damage:
            self._checked = 0.0
            raise RunFailed(f"The index of {self.traces} is damaged ({damage}). Run the same command again.") from None

    def _read(self, question: Callable[[sqlite3.Connection], Value], otherwise: Value) -> Value:
        """Ask the index; `otherwise` while there is none."""
        try:
            return self.ask(question)
        except RunFailed:
            return otherwise

    def _progress(self) -> dict[str, Any]:
        notes = [self.problem, self._index.note if self._index else ""]
        return {"indexing": self.indexing, "notes": [note for note in notes if note]}


def _index_revision(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT revision FROM meta").fetchone()[0])


def _stamp(path: Path) -> tuple[int, int, int]:
    """The facts that change when a file does; zeros without the file."""
    try:
        stat = path.stat()
    except OSError:
        return 0, 0, 0
    return stat.st_ino, stat.st_mtime_ns, stat.st_size
