"""Signals in the processes of a training run: stop after the step, and never outlive the parent."""

import ctypes
import multiprocessing
import os
import signal
import time
from types import FrameType

from ditto.run.stop_signals import STOP, handled_signals, signal_name

LAUNCHER_VARIABLE = "SFT_LAUNCHER_PID"  # the parent of the ranks
# A batch system may signal all processes of a job, and the launcher then passes the same signal on: that is no second.
SAME_SIGNAL_S = 2.0
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)  # loaded on import: nothing may be loaded between fork and exec
_received, _since = 0, 0.0


def listen() -> None:
    """Let stop signals ask this process to stop instead of killing it; a second one, later, kills it."""
    for number in handled_signals():
        signal.signal(number, _note)


def _note(number: int, _frame: FrameType | None) -> None:
    global _received, _since
    if _received and time.monotonic() - _since > SAME_SIGNAL_S:
        os._exit(128 + number)
    if not _received:
        _received, _since = number, time.monotonic()
        if os.environ.get("RANK") == "0":  # print is not safe in a handler
            text = "finishing and saving the step; a second signal ends the run at once."
            os.write(2, f"\n{signal_name(number)}: {text}\n".encode())


def requested() -> int:
    """The signal that asks this process to stop; 0: none."""
    return _received


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
    """Call this first in a process that reads or tokenises data: it ends with its parent, and not because of a signal.

    A signal goes to all processes of a rank, and the rank still needs its data to finish the step.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None and parent.pid is not None, "only for processes of the multiprocessing module"
    die_with_parent(parent.pid)
    for number in STOP:
        signal.signal(number, signal.SIG_IGN)
