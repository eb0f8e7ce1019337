"""How the processes of a training learn that they should stop, and how none of them outlives the others.

The launcher writes the signal's number into a file, and every process of the training looks at it once a step. A signal
itself would not do: it kills a process that is still importing its libraries. `listen` is for batch systems that send
the signal to every process of a job.
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path
from types import FrameType

from ditto.run.stop_signals import heard
from soul.files.whole_file import write_whole

FILE_VARIABLE = "SFT_STOP_FILE"
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)  # loaded here: between fork and exec nothing may be loaded
_received = 0


def ask(file: Path, number: int) -> None:
    """Ask the processes that were started with this file to stop because of a signal."""
    write_whole(file, str(number))


def listen() -> None:
    """Let SIGTERM and SIGINT ask this process to stop instead of killing it."""
    for number in heard():
        signal.signal(number, _note)


def _note(number: int, _frame: FrameType | None) -> None:
    global _received
    _received = number


def asked() -> int:
    """The signal because of which this process should stop; 0: none."""
    file = os.environ.get(FILE_VARIABLE)
    if _received or file is None:
        return _received
    try:
        return int(Path(file).read_text())
    except FileNotFoundError:
        return 0


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal when its parent ends, however it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, number)


def start_helper(*_: object) -> None:
    """Call it first in a process that reads or tokenises data: it ends with its parent, and Ctrl-C is its parent's."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
