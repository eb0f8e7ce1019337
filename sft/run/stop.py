"""Tell the processes of a training to stop, and make sure that none of them outlives the others.

The launcher writes the signal's number to a file, and every process of the training checks it once per step. Forwarding
the signal itself would not work: it kills a process that is still importing its libraries. `listen` is for batch
systems that send the signal to every process of a job.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from pathlib import Path
from types import FrameType

from ditto.run.stop_signals import handled_signals
from soul.files.whole_file import write_whole

FILE_VARIABLE = "SFT_STOP_FILE"
LAUNCHER_VARIABLE = "SFT_LAUNCHER_PID"  # the parent of the ranks
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)  # loaded on import: nothing may be loaded between fork and exec
_received = 0


def request(file: Path, number: int) -> None:
    """Ask the processes that were started with this file to stop because of a signal."""
    write_whole(file, str(number))


def listen() -> None:
    """Let SIGTERM and SIGINT ask this process to stop instead of killing it."""
    for number in handled_signals():
        signal.signal(number, _note)


def _note(number: int, _frame: FrameType | None) -> None:
    global _received
    _received = number


def requested() -> int:
    """The signal that asks this process to stop; 0: none."""
    file = os.environ.get(FILE_VARIABLE)
    if _received or file is None:
        return _received
    try:
        return int(Path(file).read_text())
    except FileNotFoundError:
        return 0


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Let this process get a signal when its parent ends, for whatever reason; at once if the parent has ended already.

    Args:
        parent: its process id. Imports take seconds, and meanwhile the parent may have been killed.
        number: the signal.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def start_helper(*_: object) -> None:
    """Call this first in a process that reads or tokenises data: it then ends with its parent and ignores Ctrl-C."""
    parent = multiprocessing.parent_process()
    assert parent is not None and parent.pid is not None, "only for processes of the multiprocessing module"
    die_with_parent(parent.pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
