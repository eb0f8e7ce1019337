"""End a stuck step with its cause and a non-zero exit.

verl waits for ever when the rollout worker dies in the middle of a weight sync, or when an agent-loop worker dies with
sessions in flight. The trainer tells the watchdog which phase it is in; a phase that takes longer than its limit ends
the run: the cause and all stacks go to `<run>/failure.json` and stderr, and the process exits. Its driver then sees a
dead actor and exits non-zero too.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

EXIT_CODE = 70


class Watchdog:
    """A thread that looks at the clock.

    Args:
        run_dir: where failure.json goes.
        limit_s: seconds a phase may take.
        probe: asked every few seconds; returns what died, if something did (None: all is well).
        poll_s: seconds between two looks.
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
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch (the run is over)."""
        self._stop.set()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """The block may take `limit_s`. Phases nest: the inner one has a clock of its own."""
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
                    f"phase {phase!r} took longer than run.phase_timeout_s={self.limit_s:.0f} s. The stacks below show "
                    "where the trainer waits; the logs of the Ray workers show why"
                )

    def _ask_probe(self) -> str | None:
        """The probe's answer. A broken probe must not end the watch: the clock still counts."""
        if self.probe is None:
            return None
        try:
            return self.probe()
        except Exception as error:  # noqa: BLE001 - reported once on stderr, then the watch goes on without it
            print(f"WATCHDOG: its probe failed and is left out from now on: {error!r}", file=sys.stderr, flush=True)
            self.probe = None
            return None

    def _end(self, cause: str) -> None:
        record: dict[str, Any] = {"cause": cause, "phase": self._phase, "time": time.time()}
        try:
            self.run_dir.mkdir(parents=True, exist_ok=True)
            (self.run_dir / "failure.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
        except OSError as error:  # a full disk: the run ends all the same
            print(f"WATCHDOG: failure.json cannot be written ({error})", file=sys.stderr, flush=True)
        print(f"WATCHDOG: {cause}.", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(all_threads=True)
        os._exit(EXIT_CODE)
