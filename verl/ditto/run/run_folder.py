"""The run folder: who may write to it, one JSON line per session, one JSON line of metrics per step, the end report.

docs/run_folder.md lists the files. Every file but the live ones is written in one go and replaced,
so each step is there once and whole.

At most one driver and one trainer may use the folder. The driver's lock refuses a second start at once. The trainer is
an actor, perhaps on another node, and survives a killed driver by some seconds. It holds its own lock
(`.trainer.lease`), so that no new run writes at the same time.
"""

import json
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ditto.run.live_traces import remove_live
from soul.cli.redaction import redact
from soul.errors import one_line
from soul.files.folder_lock import HEARTBEAT_S, SILENT_S, FolderLock
from soul.files.line_file import write_lines
from soul.files.metrics_file import NAME, metric_lines, read_metrics
from soul.files.trace_files import FOLDER, trace_files
from soul.record import SessionRecord

logger = logging.getLogger(__name__)

PACKED_FROM_MB = 16.0  # trace files that would be larger are packed, one gzip member a session
TRAINER_FILE = ".trainer.lease"
FAILURE = "failure.json"
MOST_OF_CAUSE = 400  # characters
# Seconds within which Ray ends the trainer of a killed driver, and within which the lock of another machine expires.
ORPHAN_ENDS_S = SILENT_S + HEARTBEAT_S
WAIT_S = 300.0  # for the report of a run with 4 GB of traces it takes 30 s


# logger of verl -> the variables that say where it writes, and their values for a run's folder
_LOGGER_FOLDERS = {
    "tensorboard": {"TENSORBOARD_DIR": "tensorboard"},
    "wandb": {"WANDB_DIR": "wandb", "WANDB_CACHE_DIR": "wandb/cache"},
    "file": {"VERL_FILE_LOGGER_PATH": "logged.jsonl"},
}


class RunFolder:
    """Writes what a run leaves for people to read."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._metrics = folder, folder / NAME

    def write_traces(self, split: str, step: int, sessions: Iterable[SessionRecord], part: int = 0) -> None:
        """The sessions of a step; split is "step" or "val".

        An asynchronous step may train in several parts; each has a file of its own (`step_000007.1.jsonl`). The live
        files of the step and of those before it go.
        """
        name = f"{split}_{step:06d}" + (f".{part}" if part else "")
        lines = (session.to_line() for session in sessions)
        write_lines(self.folder / FOLDER / f"{name}.jsonl", lines, PACKED_FROM_MB)
        if split == "step":
            remove_live(self.folder, step)

    def log_metrics(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Add numbers to the step's line. Lines of later steps go: they belong to what a resumed run does again."""
        lines = metric_lines(self._metrics)
        known = json.loads(lines[step]) if step in lines else {"step": step}
        numbers = {key: number for key, value in metrics.items() if (number := _number(value)) is not None}
        earlier = [line for number, line in lines.items() if number < step]
        write_lines(self._metrics, [*earlier, json.dumps(known | numbers)])

    def metrics(self) -> dict[int, dict[str, float]]:
        """step -> its numbers."""
        return read_metrics(self._metrics)

    def metrics_of(self, step: int) -> dict[str, float]:
        """A step's numbers; none where it has no line."""
        line = metric_lines(self._metrics).get(step)
        return json.loads(line) if line else {}

    def rewind(self, step: int) -> Path | None:
        """Move metrics and traces of all later steps to a folder under `replaced/`.

        A run that resumes after `step` writes them again. Returns the folder; None if there was nothing to move.
        """
        lines = metric_lines(self._metrics)
        later = {number: line for number, line in lines.items() if number > step}
        traces = [file.path for file in trace_files(self.folder / FOLDER) if file.step > step]
        if not later and not traces:
            return None
        target = self.folder / "replaced" / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        if later:
            write_lines(target / NAME, later.values())
            write_lines(self._metrics, [line for number, line in lines.items() if number <= step])
        for path in traces:
            moved = target / path.relative_to(self.folder)
            moved.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, moved)
        return target


def write_failure(folder: Path, cause: str, phase: str | None = None) -> None:
    """Write failure.json, from which the viewer knows why a run failed. It never raises: the run ends anyway."""
    cause = " ".join(redact(cause).split())[:MOST_OF_CAUSE]
    record = {"cause": cause, **({"phase": phase} if phase else {}), "time": time.time()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FAILURE).write_text(json.dumps(record, indent=1), encoding="utf-8")
    except OSError as error:  # for instance a full disk; a plain print, because a thread may hold logging's lock
        print(f"{FAILURE} of {folder} cannot be written ({error})", file=sys.stderr, flush=True)


def set_logger_folders(folder: Path, loggers: str | Sequence[str]) -> None:
    """Set the variables of these loggers, if they are unset, for this process and its children.

    By default they write into the current folder, `/tmp` or the home folder, where runs overwrite each other.
    """
    for name in [loggers] if isinstance(loggers, str) else loggers:
        for variable, place in _LOGGER_FOLDERS.get(name, {}).items():
            os.environ.setdefault(variable, str(folder.absolute() / place))
        if name == "wandb":  # if its folder is missing, it writes to the temporary folder
            Path(os.environ["WANDB_DIR"]).mkdir(parents=True, exist_ok=True)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


@contextmanager
def driver_lock(folders: Collection[Path]) -> Iterator[None]:
    """Lock the run's folders for this driver. First waits until the trainer of a killed driver has ended."""
    with ExitStack() as held:
        for folder in sorted(folders):  # sorted, so that two drivers cannot deadlock
            held.enter_context(FolderLock(folder))
            FolderLock(folder, file=TRAINER_FILE, wait_s=ORPHAN_ENDS_S).close()
        yield


@contextmanager
def trainer_lock(folders: Collection[Path]) -> Iterator[None]:
    """Lock the run's folders for the trainer, which writes to them. Raises FolderInUse while an earlier one runs."""
    with ExitStack() as held:
        for folder in sorted(folders):
            held.enter_context(FolderLock(folder, file=TRAINER_FILE, wait_s=ORPHAN_ENDS_S))
        yield


def write_end_report(folder: Path) -> None:
    """Write the report of a run, and log where it is or why there is none.

    A run never fails because of it, and never waits for it without end: the index of the traces needs locks, and a
    network file system may hang on them.
    """

    def write() -> None:
        from soul.pages.export import write_run_report  # here: it needs what only a finished run needs

        try:
            logger.info("report of the run: %s", write_run_report(folder))
        except Exception as error:  # noqa: BLE001 - a run must not fail because of its report
            logger.warning("%s: the report could not be written (%s)", folder, one_line(error))

    worker = threading.Thread(target=write, name="end report", daemon=True)
    worker.start()
    worker.join(WAIT_S)
