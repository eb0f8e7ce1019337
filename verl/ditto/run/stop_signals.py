"""Stop signals and Ctrl-C in the driver, and how it asks the trainer, perhaps on another node, to stop after its step.

Before training starts, a signal raises `Stopped` wherever the driver is. After that it is only recorded, and the loop
that waits for the trainer (`driver.py`) decides what to do. Driver and trainer use Ray's key-value store, because the
trainer's actor is busy with `fit` and cannot answer calls.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

import psutil

from ditto.run import ray_private

# SIGHUP is a lost ssh, except under nohup; SIGUSR1 is a batch system's warning before the time is up.
STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
EXIT_CODES = tuple(128 + number for number in STOP)  # by shell convention
_BEGUN, _SAVE_UNTIL = "steps_begun", "save_until"
EXIT_S = 10.0  # seconds that killed processes may take to exit


def handled_signals() -> list[signal.Signals]:
    """The stop signals that this process does not ignore. (Shells start background processes with SIGINT ignored.)"""
    return [number for number in STOP if signal.getsignal(number) is not signal.SIG_IGN]


def signal_name(number: int) -> str:
    """A signal's name for messages."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


class Stopped(KeyboardInterrupt):
    """The run ends because of a signal.

    Args:
        number: the signal's number.
        reason: what happened to the current step, as the end of the sentence "Stopped by SIGTERM...".
    """

    def __init__(self, number: int, reason: str = " before the first step") -> None:
        super().__init__(number, reason)
        self.reason, self.name = reason, signal_name(number)
        self.exit_code = 128 + number  # by shell convention: 143 for SIGTERM, 130 for Ctrl-C


class StopSignals:
    """Handles the stop signals inside its `with` block. Use it in the main thread.

    Attributes:
        received: numbers of the signals so far.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._raises = True
        self._before: dict[int, object] = {}

    def __enter__(self) -> StopSignals:
        self._before = {number: signal.signal(number, self._handle) for number in handled_signals()}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def only_record(self) -> None:
        """From now on, record signals without raising."""
        self._raises = False

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(number)
        if self._raises:
            self._raises = False  # so that a second signal does not interrupt the clean-up
            raise Stopped(number)


@contextmanager
def shield_children() -> Iterator[None]:
    """Shield the processes that start in this block, and their children, from the stop signals.

    A terminal sends Ctrl-C to the whole process group, and SLURM sends SIGTERM to every process of a job. Without the
    shield, Ray's processes would end at once, and with them the step that the driver wants to finish. Signals that
    arrive during the block are delivered after it, and handlers that the block replaced are restored (`ray.init`
    installs its own).
    """
    handlers = {number: signal.getsignal(number) for number in STOP}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def report_begun() -> None:
    """Trainer: report that the first step has begun."""
    ray_private.put(_BEGUN, "1")


def has_begun() -> bool:
    """Driver: true once the trainer has reported its first step."""
    return ray_private.get(_BEGUN) is not None


def request_stop(save_until: float) -> None:
    """Driver: ask the trainer to stop after its step, and to save it if it can begin before this time (unix time)."""
    ray_private.put(_SAVE_UNTIL, str(save_until))


def save_until() -> float | None:
    """Trainer: the deadline of the driver's request, in seconds since the epoch; None if there is no request."""
    value = ray_private.get(_SAVE_UNTIL)
    return None if value is None else float(value)


def processes_below(pid: int | None = None) -> list[psutil.Process]:
    """All descendants of a process, by default of this one."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def kill(processes: Sequence[psutil.Process]) -> None:
    """Kill these processes by id and wait until they are gone. Ray leaves some behind."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=EXIT_S)
