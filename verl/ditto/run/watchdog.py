"""End a run that is stuck, with its cause and a non-zero exit code.

verl waits forever if a rollout worker dies during a weight sync, or if an agent-loop worker dies with sessions in
flight. The trainer tells the watchdog which phase it is in. If a phase exceeds its time limit or an actor has died, the
watchdog writes the cause to `<run>/failure.json` and stderr, prints all stacks to stderr, and exits the process
with code 70. The driver then sees a dead actor, reports the cause and exits with code 1.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

EXIT_CODE = 70  # EX_SOFTWARE of sysexits.h
WRITE_S = 10.0  # for failure.json


class Watchdog:
    """A thread that watches the current phase of the trainer.

    Args:
        run_dir: the folder for failure.json.
        limit_s: seconds that a phase may take.
        probe: called at every check; returns which actor has died and why, or None.
        poll_s: seconds between two checks.
    """

    def __init__(
        self, run_dir: Path, limit_s: float, probe: Callable[[], str | None] | None = None, poll_s: float = 2.0
    ) -> None:
        self.run_dir = run_dir
        self.limit_s = limit_s
        self.probe = probe
        self.poll_s = poll_s
        self._phase: str | None = None
        self._since = time.monotonic()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching (the run is over)."""
        self._stop.set()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A block that may take `limit_s` seconds. Phases nest: the outer clock restarts when the inner phase ends."""
        with self._lock:
            outer, self._phase, self._since = self._phase, name, time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._phase, self._since = outer, time.monotonic()

    def _watch(self) -> None:
        while not self._stop.wait(self.poll_s):
            with self._lock:
                phase, seconds = self._phase, time.monotonic() - self._since
            if phase is None:
                continue
            died = self._ask_probe()
            if died is not None:
                self._end(f"{died} while the trainer was in phase {phase!r} (for {seconds:.0f} s)")
            if seconds > self.limit_s:
                self._end(
                    f"phase {phase!r} took longer than run.phase_timeout_s={self.limit_s:.0f} s. The stacks on stderr "
                    "show where the trainer waits; the logs of the Ray workers show why"
                )

    def _ask_probe(self) -> str | None:
        """The probe's answer. If the probe itself fails, the watchdog goes on without it."""
        if self.probe is None:
            return None
        try:
            return self.probe()
        except Exception:  # noqa: BLE001 - logged once; the time limit still works
            logger.warning("Cannot check the run's actors any more; the watchdog goes on without", exc_info=True)
            self.probe = None
            return None

    def _end(self, cause: str) -> None:
        # Plain prints, no logging: another thread may hold a lock of the logging module, and this must not wait.
        print(f"WATCHDOG: {cause}.", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(all_threads=True)
        record: dict[str, Any] = {"cause": cause, "phase": self._phase, "time": time.time()}
        # In a thread: the disk may be what hangs.
        writing = threading.Thread(target=self._write_failure, args=(record,), name="failure.json", daemon=True)
        writing.start()
        writing.join(WRITE_S)
        os._exit(EXIT_CODE)

    def _write_failure(self, record: dict[str, Any]) -> None:
        try:
            self.run_dir.mkdir(parents=True, exist_ok=True)
            (self.run_dir / "failure.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
        except OSError as error:  # for instance a full disk; the run ends anyway
            print(f"WATCHDOG: cannot write failure.json ({error})", file=sys.stderr, flush=True)
