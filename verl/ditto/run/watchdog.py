"""End a run that is stuck or has lost an actor, with its cause and a non-zero exit code.

verl waits forever if a rollout worker dies during a weight sync, or if an agent-loop worker dies with sessions in
flight. The trainer tells the watchdog which phase it is in. If a phase exceeds its time limit or an actor has died, the
watchdog writes the cause to `<run>/failure.json` and stderr, prints all stacks to stderr, and exits the process
with code 70. The driver then sees a dead actor, reports the cause and exits with code 1.
"""

import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from ditto.run.run_folder import write_failure
from soul.errors import one_line

logger = logging.getLogger(__name__)

EXIT_CODE = 70  # EX_SOFTWARE of sysexits.h
WRITE_S = 10.0  # for failure.json
RESEND_S = 10.0  # after so many seconds without an answer, the ping is dropped and another one sent


class Watchdog:
    """A thread that watches the current phase of the trainer.

    Args:
        limit_s: seconds that a phase may take.
        probe: called at every check, that is every `poll_s` seconds; returns which actor has died and why, or None.
    """

    def __init__(
        self, run_dir: Path, limit_s: float, probe: Callable[[], str | None] = lambda: None, poll_s: float = 2.0
    ) -> None:
        self.run_dir, self.limit_s, self.probe, self.poll_s = run_dir, limit_s, probe, poll_s
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
            try:
                died = self.probe()
            except Exception:  # noqa: BLE001 - the time limit still works
                logger.warning("Cannot check the run's actors any more; the watchdog goes on without", exc_info=True)
                died, self.probe = None, lambda: None
            if died is not None:
                self._end(f"{died} while the trainer was in phase {phase!r} (for {seconds:.0f} s)")
            if seconds > self.limit_s:
                self._end(
                    f"phase {phase!r} took longer than run.phase_timeout_s={self.limit_s:.0f} s. The stacks on stderr "
                    "show where the trainer waits; the logs of the Ray workers show why"
                )

    def _end(self, cause: str) -> None:
        # Plain prints, no logging: another thread may hold a lock of the logging module, and this must not wait.
        print(f"WATCHDOG: {cause}.", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(all_threads=True)
        # In a thread: the disk may be what hangs.
        writing = threading.Thread(target=write_failure, args=(self.run_dir, cause, self._phase), daemon=True)
        writing.start()
        writing.join(WRITE_S)
        os._exit(EXIT_CODE)


class Liveness:
    """Pings named actors, to notice that one has died while the trainer waits for something else.

    A busy actor answers its ping late, which is fine; the ping of a dead actor raises at once. For rollout servers the
    ping goes through to the engine's worker process (`check_health`), because the server outlives its engine. A ping
    that is in flight while the engine dies may never be answered, so after a while another one is sent.

    Args:
        clock: returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pings: dict[str, Callable[[], Any]] = {}
        self._unanswered: dict[str, tuple[Any, float]] = {}  # name -> the ping and when it was sent

    def watch_actor(self, name: str, actor: Any) -> None:
        """Watch a Ray actor."""
        self._pings[name] = lambda: actor.__ray_ready__.remote()

    def watch_rollout_server(self, name: str, server: Any) -> None:
        """Watch a rollout server and the engine behind it."""
        self._pings[name] = lambda: server.collective_rpc.remote("check_health")

    def watch_replicas(self, replicas: Iterable[Any]) -> dict[str, Any]:
        """Watch the servers of rollout engines. Returns the first server of each engine by its name."""
        servers = {}
        for replica in replicas:
            name = f"rollout server {replica.replica_rank}"
            servers[name], *others = replica.servers
            self.watch_rollout_server(name, servers[name])
            for node, server in enumerate(others, 1):  # of an engine that spans nodes, without the engine's interface
                self.watch_actor(f"{name}, node {node}", server)
        return servers

    def died(self) -> str | None:
        """The actor that has died and why, as a clause; None if no dead actor is known."""
        for name, ping in self._pings.items():
            reference, sent = self._unanswered.get(name, (None, 0.0))
            if reference is not None:
                ready, _ = ray.wait([reference], timeout=0)
                if not ready and self._clock() - sent < RESEND_S:
                    continue
                try:
                    if ready:
                        ray.get(reference)
                except Exception as error:  # noqa: BLE001 - the watchdog reports whatever a ping raises
                    cause = getattr(error, "cause", None) or error  # Ray wraps the remote exception
                    return f"{name} died ({type(cause).__name__}: {one_line(cause, 300)})"
            self._unanswered[name] = ping(), self._clock()
        return None
