"""The run's judge limits in one Ray actor: every agent-loop worker, on every node, asks the same `Limits`.

The trainer starts it before any worker and reads from it whether an endpoint is down. Workers find it by name within
the run's Ray namespace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ray

from agents.judge import GatewaySettings
from agents.judge.gate import Port
from agents.judge.gateway import limits_of
from agents.judge.limits import Grant, Report

NAME = "ditto_judge_limits"


@dataclass(frozen=True)
class State:
    """What the trainer wants to know after a step."""

    spent_usd: float
    outage: str | None


class _Limits:
    """`agents.judge.limits.Limits` behind Ray's door."""

    def __init__(self, settings_json: str, spent_usd: float) -> None:
        self._limits = limits_of(GatewaySettings.model_validate_json(settings_json), spent_usd)

    def sync(self, report: Report) -> Grant:
        return self._limits.sync(report)

    def state(self) -> State:
        return State(self._limits.spent_usd, self._limits.outage)


def start(settings: GatewaySettings, spent_usd: float) -> Any:
    """The actor of this run; it ends with the process that started it.

    Args:
        spent_usd: what the run spent before it was resumed.
    """
    actor = ray.remote(_Limits).options(name=NAME, num_cpus=0)
    return actor.remote(settings.model_dump_json(), spent_usd)


def port() -> Port:
    """A worker's way to the run's limits."""
    actor = ray.get_actor(NAME)

    async def sync(report: Report) -> Grant:
        grant: Grant = await actor.sync.remote(report)
        return grant

    return sync
