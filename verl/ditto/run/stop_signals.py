"""SIGTERM and Ctrl-C in the driver.

Before training starts, a signal raises `Stopped` wherever the driver is. After that it is only recorded, and the loop
that waits for the trainer (`driver.py`) decides what to do.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOP = (signal.SIGTERM, signal.SIGINT)


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
        self.number = number
        self.reason = reason

    @property
    def exit_code(self) -> int:
        """The exit code by shell convention: 143 for SIGTERM, 130 for Ctrl-C."""
        return 128 + self.number

    @property
    def name(self) -> str:
        return signal_name(self.number)


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
    """Shield the processes that start in this block, and their children, from SIGTERM and Ctrl-C.

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
