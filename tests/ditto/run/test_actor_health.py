"""Real Ray actors that die, that are busy, and that stand before an engine which died in the middle of a ping."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray

from ditto.run.watchdog import RESEND_S, Liveness


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


@ray.remote(num_cpus=0)
class Server:
    """A rollout server: it lives on when its engine dies, and what the engine was asked then is never answered."""

    def __init__(self) -> None:
        self.dead, self.asked = False, 0

    async def collective_rpc(self, method: str) -> str:
        self.asked += 1
        if self.dead:
            raise RuntimeError("the engine is dead")
        if self.asked == 1:
            await asyncio.Event().wait()
        return method

    async def count(self) -> int:
        return self.asked

    async def kill_engine(self) -> None:
        self.dead = True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def asked(liveness: Liveness, seconds: float = 30.0) -> str | None:
    """What `died` says, once it says something; None after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if (found := liveness.died()) is not None:
            return found
        time.sleep(0.05)
    return None


def test_an_actor_that_died_is_named() -> None:
    server: Any = Server.remote()
    liveness = Liveness()
    liveness.watch_actor("agent-loop worker 3", server)
    ray.get(server.kill_engine.remote())
    assert asked(liveness, seconds=0.5) is None
    ray.kill(server)
    assert "agent-loop worker 3 died" in str(asked(liveness))


def test_a_ping_that_is_lost_with_the_engine_is_followed_by_another() -> None:
    server: Any = Server.remote()
    clock = Clock()
    liveness = Liveness(clock)
    liveness.watch_rollout_server("rollout server 0", server)
    assert liveness.died() is None  # sends the ping that is never answered
    while ray.get(server.count.remote()) < 1:
        time.sleep(0.05)
    ray.get(server.kill_engine.remote())
    assert asked(liveness, seconds=0.5) is None
    clock.now = RESEND_S
    assert "rollout server 0 died (RuntimeError: the engine is dead" in str(asked(liveness))
