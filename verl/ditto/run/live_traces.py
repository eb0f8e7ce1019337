"""The sessions of a running step, appended as they finish, so that you can read them before the step ends.

    <run>/traces/live/step_000007.<process>.jsonl    one file for each agent-loop process

The lines are `SessionRecord`s without what only the trained step knows: advantages, weights, the actor's log-probs. The
trainer removes the files of a step when it writes the step's own file. The last line may be incomplete. Nothing reads
these files but people: a process that cannot write says so once and stops writing, and the run goes on.
"""

import asyncio
import logging
import os
import platform
import threading
import zlib
from pathlib import Path

from soul.errors import one_line
from soul.files.trace_files import FOLDER, LIVE, trace_files

logger = logging.getLogger(__name__)


def folder_of(run_dir: Path) -> Path:
    """The folder of a run's live traces. The trainer makes it; a process on a node without it writes nothing."""
    return run_dir / FOLDER / LIVE


def remove_live(run_dir: Path, until: int | None = None) -> None:
    """Remove the live files of all steps, or of those until this one."""
    for file in trace_files(run_dir / FOLDER):
        if file.live and (until is None or file.step <= until):
            file.path.unlink(missing_ok=True)


def open_live(run_dir: Path) -> None:
    """Make the folder of live traces, and remove what an earlier attempt left in it."""
    folder_of(run_dir).mkdir(parents=True, exist_ok=True)
    remove_live(run_dir)


class LiveTraces:
    """Appends the finished sessions of this process.

    Args:
        run_dir: the run folder.
    """

    def __init__(self, run_dir: Path) -> None:
        self._folder: Path | None = folder_of(run_dir)  # None after a failure
        # Processes of several nodes may have the same id. The name stays a number.
        self._process = f"{os.getpid()}{zlib.crc32(platform.node().encode()):010d}"
        self._lock = threading.Lock()

    async def append(self, step: int, line: str) -> None:
        """Append a session's line, in a thread: a slow disk must not hold up the other sessions of this process."""
        await asyncio.to_thread(self._append, step, f"{line}\n".encode())

    def _append(self, step: int, line: bytes) -> None:
        with self._lock:
            if self._folder is None:
                return
            try:
                # Opened for each line, because the trainer removes the file when the step ends.
                with open(self._folder / f"step_{step:06d}.{self._process}.jsonl", "ab") as file:
                    file.write(line)
            except OSError as error:
                # Without the folder: the run has just ended, or its folder is not on a disk that the nodes share.
                level = logging.INFO if isinstance(error, FileNotFoundError) else logging.WARNING
                logger.log(
                    level,
                    "This process writes no live traces any more (%s). The traces of a finished step are complete.",
                    one_line(error, 200),
                )
                self._folder = None
