"""One Ray actor that holds the run's judge limits and API keys, so that agent-loop workers on all nodes share them.

The driver starts it before anything else. The trainer and the workers find it by name in the run's Ray namespace.

Workers of a running cluster have the environment of `ray start`, possibly with other keys. So they get the judge's
variables from this actor, as results of actor calls, which go directly from process to process. Ray's runtime
environment is no alternative: it writes all variables to runtime_env_agent.log on every node.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import ray

from ditto.launching.placement import with_the_driver
from soul.cli import logs
from soul.judge import GatewaySettings
from soul.judge.gateway import run_limits
from soul.judge.throttle.local_gate import SyncLimits
from soul.judge.throttle.shared_limits import Grant, Report

NAME = "ditto_judge_limits"
# Variables that the OpenAI SDK itself reads: headers of every request, and the default address of any client that a
# task creates.
_SDK_VARIABLES = ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_CUSTOM_HEADERS", "OPENAI_BASE_URL")


@dataclass(frozen=True)
class State:
    """The state of the judges after a step."""

    spent_usd: float
    outage: str | None  # why an endpoint counts as down; None while all of them work


class _Limits:
    """`soul.judge.throttle.shared_limits.SharedLimits` as a Ray actor."""

    def __init__(self, settings_json: str, spent_usd: float) -> None:
        logs.set_up()  # circuit breakers log from this process
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
    """Start the run's actor and give it the keys that the settings name. It dies with the process that started it.

    Args:
        spent_usd: what the run spent before it was resumed, in US dollars.
    """
    actor = ray.remote(_Limits).options(name=NAME, **with_the_driver()).remote(settings.model_dump_json(), spent_usd)
    # Not a constructor argument: Ray's GCS stores those, possibly on disk.
    ray.get(actor.keep.remote(variables(settings)))
    return actor


def variables(settings: GatewaySettings) -> dict[str, str]:
    """The environment variables of this process that requests to these endpoints need; unset ones are left out."""
    named = [endpoint.api_key_env for endpoint in settings.endpoints if endpoint.api_key_env is not None]
    return {name: os.environ[name] for name in (*named, *_SDK_VARIABLES) if os.environ.get(name)}


async def take_variables(settings: GatewaySettings) -> None:
    """Replace this worker's judge variables with the driver's.

    A key that the driver does not have is removed here too, even if this node has one under that name.
    """
    given: dict[str, str] = await ray.get_actor(NAME).variables.remote()
    replace_variables(settings, given)


def replace_variables(settings: GatewaySettings, given: dict[str, str]) -> None:
    """Remove this process's judge variables, then set the given ones."""
    named = {endpoint.api_key_env for endpoint in settings.endpoints}
    for name in [name for name in os.environ if name in named or name.startswith("OPENAI_")]:
        del os.environ[name]
    os.environ.update(given)


def port() -> SyncLimits:
    """The function with which a worker syncs its usage with the run's limits."""
    actor = ray.get_actor(NAME)

    async def sync(report: Report) -> Grant:
        grant: Grant = await actor.sync.remote(report)
        return grant

    return sync
