"""Notice that an actor of the run has died while the trainer waits for something else.

A busy actor answers its ping late, which is fine; the ping of a dead actor raises at once. For rollout servers the ping
goes through to the engine's worker process (`check_health`), because the server outlives its engine. A ping that is
in flight while the engine dies may never be answered, so after a while another one is sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import ray

from soul.errors import one_line

RESEND_S = 10.0  # after so many seconds without an answer, the ping is dropped and another one sent


class Liveness:
    """Pings named actors.

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
        """Which actor has died and why, as a clause; None if no dead actor is known."""
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
                    text = one_line(cause, 300)
                    return f"{name} died ({type(cause).__name__}: {text})"
            self._unanswered[name] = ping(), self._clock()
        return None
