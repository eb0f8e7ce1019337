"""The run's judge limits and keys in one Ray actor: agent-loop workers on all nodes ask the same `SharedLimits`.

The driver starts it before anything else. Trainer and workers find it by name within the run's Ray namespace.

Workers of a cluster that runs already have the environment of `ray start`, perhaps with keys of its own. So they get
the judge's variables from here, as arguments of actor calls, which go from process to process. (Ray's runtime
environment would write them into runtime_env_agent.log on every node.)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import ray

from soul.cli import logs
from soul.judge import GatewaySettings
from soul.judge.gateway import run_limits
from soul.judge.throttle.local_gate import SyncLimits
from soul.judge.throttle.shared_limits import Grant, Report

NAME = "ditto_judge_limits"
# What the SDK itself reads: headers that it sends with every request, and where a client of a task's own code goes.
_OF_THE_SDK = ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_CUSTOM_HEADERS", "OPENAI_BASE_URL")


@dataclass(frozen=True)
class State:
    """What the trainer wants to know after a step."""

    spent_usd: float
    outage: str | None


class _Limits:
    """`soul.judge.throttle.shared_limits.Limits` behind Ray's door."""

    def __init__(self, settings_json: str, spent_usd: float) -> None:
        logs.set_up()  # breakers open and close here
        self._limits = run_limits(GatewaySettings.model_validate_json(settings_json), spent_usd)
        self._variables: dict[str, str] = {}

    def keep(self, variables: dict[str, str]) -> None:
        self._variables = variables

    def variables(self) -> dict[str, str]:
        return self._variables

    def sync(self, report: Report) -> Grant:
        return self._limits.sync(report)

    def state(self) -> State:
        return State(self._limits.spent_usd, self._limits.outage)


def start(settings: GatewaySettings, spent_usd: float) -> Any:
    """The actor of this run, with the keys that the settings name; it ends with the process that started it.

    Args:
        spent_usd: what the run spent before it was resumed.
    """
    actor = ray.remote(_Limits).options(name=NAME, num_cpus=0).remote(settings.model_dump_json(), spent_usd)
    # Not an argument of the constructor: that is kept by Ray's GCS, which may keep it on a disk.
    ray.get(actor.keep.remote(variables(settings)))
    return actor


def variables(settings: GatewaySettings) -> dict[str, str]:
    """The variables of this process that a request to these endpoints takes, as far as they are set."""
    named = [endpoint.api_key_env for endpoint in settings.endpoints if endpoint.api_key_env is not None]
    return {name: os.environ[name] for name in (*named, *_OF_THE_SDK) if os.environ.get(name)}


async def take_variables(settings: GatewaySettings) -> None:
    """Give this worker the driver's variables in place of its own.

    A key that the driver did not have is missing here too, whatever this node has under that name.
    """
    given: dict[str, str] = await ray.get_actor(NAME).variables.remote()
    replace_variables(settings, given)


def replace_variables(settings: GatewaySettings, given: dict[str, str]) -> None:
    """See `take_variables`."""
    named = {endpoint.api_key_env for endpoint in settings.endpoints}
    for name in [name for name in os.environ if name in named or name.startswith("OPENAI_")]:
        del os.environ[name]
    os.environ.update(given)


def port() -> SyncLimits:
    """A worker's way to the run's limits."""
    actor = ray.get_actor(NAME)

    async def sync(report: Report) -> Grant:
        grant: Grant = await actor.sync.remote(report)
        return grant

    return sync
