"""SIGTERM and Ctrl-C in the driver.

Until the training runs, a signal raises `Stopped` wherever the driver is. From then on it is only noted, and the loop
that waits for the trainer (`attended_run.py`) decides.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOP = (signal.SIGTERM, signal.SIGINT)


def heard() -> list[signal.Signals]:
    """Those that this process does not ignore. A shell starts background processes with SIGINT ignored."""
    return [number for number in STOP if signal.getsignal(number) is not signal.SIG_IGN]


def name_of(number: int) -> str:
    """A signal's name for people."""
    return "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


class Stopped(KeyboardInterrupt):
    """The run ends because of a signal.

    Args:
        number: of the signal.
        reason: what happened to the step under way, as the end of a sentence.
    """

    def __init__(self, number: int, reason: str = " before the first step") -> None:
        super().__init__(number, reason)
        self.number = number
        self.reason = reason

    @property
    def exit_code(self) -> int:
        """As a shell reports it: 143 or 130."""
        return 128 + self.number

    @property
    def name(self) -> str:
        return name_of(self.number)


class StopSignals:
    """Handles the signals within its `with` block, in the main thread.

    Attributes:
        received: numbers of the signals so far.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._raises = True
        self._before: dict[int, object] = {}

    def __enter__(self) -> StopSignals:
        self._before = {number: signal.signal(number, self._handle) for number in heard()}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def only_note(self) -> None:
        """From now on a signal raises nothing."""
        self._raises = False

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(number)
        if self._raises:
            self._raises = False  # the clean-up that follows is not interrupted
            raise Stopped(number)


@contextmanager
def kept_from_children() -> Iterator[None]:
    """Processes that start in this block never see SIGTERM or Ctrl-C, nor do their own children.

    A terminal sends Ctrl-C to the whole process group, and SLURM sends SIGTERM to every process of a job. Ray's
    processes would end at once, and with them the step that the driver wants to finish. The signals wait for the end of
    the block; handlers that the block replaced are put back (`ray.init` installs its own).
    """
    handlers = {number: signal.getsignal(number) for number in STOP}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
