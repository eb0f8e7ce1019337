"""Notice that a process of the run has died, while the trainer waits for something else.

Each watched actor has at most one unanswered ping. A busy actor answers late, which is fine; the ping of a dead one
raises at once. For rollout servers the ping goes through to the engine's worker process (`check_health`), because the
server outlives its engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray


class Liveness:
    """Pings of named actors."""

    def __init__(self) -> None:
        self._pings: dict[str, Callable[[], Any]] = {}
        self._unanswered: dict[str, Any] = {}

    def watch_actor(self, name: str, actor: Any) -> None:
        """Watch a Ray actor."""
        self._pings[name] = lambda: actor.__ray_ready__.remote()

    def watch_rollout_server(self, name: str, server: Any) -> None:
        """Watch a rollout server and the engine behind it."""
        self._pings[name] = lambda: server.collective_rpc.remote("check_health")

    def died(self) -> str | None:
        """A sentence on the first actor found dead, or None."""
        for name, ping in self._pings.items():
            reference = self._unanswered.get(name)
            if reference is not None:
                ready, _ = ray.wait([reference], timeout=0)
                if not ready:
                    continue
                try:
                    ray.get(reference)
                except Exception as error:  # noqa: BLE001 - whatever a ping raises is what the watchdog reports
                    cause = getattr(error, "cause", None) or error  # Ray wraps what the remote side raised
                    text = " ".join(str(cause).split())[:300]
                    return f"{name} died ({type(cause).__name__}: {text})"
            self._unanswered[name] = ping()
        return None
