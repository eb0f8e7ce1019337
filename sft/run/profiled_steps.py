"""Record the steps of `trainer.profile_interval` with verl's profiler (section `profiler`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class _Profiled(Protocol):
    """What verl's worker offers."""

    def start_profile(self) -> None: ...
    def step_profile(self) -> None: ...
    def stop_profile(self) -> None: ...


class ProfiledSteps:
    """Starts and stops the profiler.

    Args:
        first: the first step to record; a run that resumes after it begins with its own first step.
        last: the last one.
    """

    def __init__(self, worker: _Profiled, first: int, last: int) -> None:
        self._worker, self._first, self._last = worker, first, last
        self._running = False

    @contextmanager
    def step(self, step: int) -> Iterator[None]:
        """A block that is this step."""
        if not self._running and self._first <= step <= self._last:
            self._worker.start_profile()
            self._running = True
        yield
        if self._running:
            self._worker.step_profile()
            if step == self._last:
                self.close()

    def close(self) -> None:
        """Write what was recorded, if the run ends before the last step of the interval."""
        if self._running:
            self._worker.stop_profile()
            self._running = False
