"""The run's judge actor: the one process of a training run that asks judges. It has the limits, cache, budget and keys.

The driver starts it before anything else. Trainer and agent-loop workers find it by name in the run's Ray namespace. A
worker has a gateway as anywhere else, but its requests go to the actor (`remote_gateway`), as plain data. The actor
looks them up in the cache, admits, sends, retries and counts them. The worker checks the answer against the schema, and
asks again if it does not fit. If the actor dies, every call fails with the cause `outage`, and the run saves and stops.

The processes of a running cluster have the environment of `ray start`, possibly with other keys. So the driver gives
the judge's variables to the actor, which runs on its own node, as an argument of a call: those go directly from process
to process. Ray's runtime environment is no alternative: it writes all variables to runtime_env_agent.log on every node.
"""

import asyncio
import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.exceptions import RayActorError, RayTaskError

from ditto.launching.placement import with_the_driver
from soul.cli import logs
from soul.errors import BadCache, Cause, JudgeFailure, one_line
from soul.judge import Gateway, GatewaySettings
from soul.judge.call.endpoint import Endpoint
from soul.judge.call.usage import Usage
from soul.judge.client import Completed, EndpointClient, Request
from soul.judge.gateway import connect_endpoints
from soul.judge.limits import Budget

NAME = "ditto_judge"
# Variables that the OpenAI SDK itself reads: headers of every request, and the default address of a client.
_SDK_VARIABLES = ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_BASE_URL")
_AT_ONCE = 100_000  # calls of the actor; the limits of its endpoints decide how many of them are sent


@dataclass(frozen=True)
class State:
    """The state of the judges after a step."""

    spent_usd: float
    outage: str | None  # why an endpoint counts as down; None while all of them work


class Answer(NamedTuple):
    """The result of a request: an answer or a failure (its cause and detail), and its cost."""

    completed: Completed | None
    failure: tuple[Cause, str] | None
    usage: Usage


class _JudgeActor:
    def __init__(self, settings_json: str) -> None:
        logs.set_up()  # what calls wait for is logged in this process
        self._settings = GatewaySettings.model_validate_json(settings_json)
        self._budget = Budget()
        self._clients: list[EndpointClient] = []
        self._running: dict[str, asyncio.Task[Completed]] = {}

    async def connect(self, given: dict[str, str], cache_dir: str | None, spent_usd: float) -> None:
        replace_variables(self._settings, given)
        self._budget = Budget(self._settings.policy.budget_usd, spent_usd)
        clients = connect_endpoints(self._settings, Path(cache_dir) if cache_dir else None, self._budget)
        self._clients = list(clients.values())

    async def complete(self, call: str, endpoint: int, request: Request) -> Answer:
        """The answer to a request, whose name is for `cancel`; the endpoint is a number in the settings."""
        usage = Usage()
        work = asyncio.ensure_future(self._clients[endpoint].complete(request, usage))
        self._running[call] = work
        try:
            return Answer(await work, None, usage)
        except JudgeFailure as error:
            return Answer(None, (error.cause, error.detail), usage)
        except asyncio.CancelledError:
            return Answer(None, ("deadline", "the session gave up"), usage)
        finally:
            del self._running[call]

    async def cancel(self, call: str) -> None:
        if call in self._running:
            self._running[call].cancel()

    async def process_id(self) -> int:
        return os.getpid()

    async def state(self) -> State:
        outages = (client.limits.outage for client in self._clients)
        return State(self._budget.spent_usd, next((outage for outage in outages if outage), None))


def start(settings: GatewaySettings, spent_usd: float = 0.0, cache_dir: Path | None = None) -> Any:
    """Start the run's actor and give it the keys that the settings name. It dies with the process that started it.

    Args:
        spent_usd: what the run spent before it was resumed, in US dollars.
        cache_dir: where it keeps answers, unless judge.cache_dir names another folder; None: nowhere.
    """
    options = {"name": NAME, "max_concurrency": _AT_ONCE, **with_the_driver()}
    actor = ray.remote(_JudgeActor).options(**options).remote(settings.model_dump_json())
    try:
        # Not arguments of the constructor: Ray's GCS stores those, possibly on disk.
        ray.get(actor.connect.remote(variables(settings), str(cache_dir) if cache_dir else None, spent_usd))
    except RayTaskError as error:
        raise error.cause if isinstance(error.cause, BadCache) else error from None
    return actor


def variables(settings: GatewaySettings) -> dict[str, str]:
    """The environment variables of this process that requests to these endpoints need; unset ones are left out."""
    named = [endpoint.api_key_env for endpoint in settings.endpoints if endpoint.api_key_env is not None]
    return {name: os.environ[name] for name in (*named, *_SDK_VARIABLES) if os.environ.get(name)}


def replace_variables(settings: GatewaySettings, given: Mapping[str, str]) -> None:
    """Remove this process's judge variables, then set the given ones.

    A key that the driver does not have is removed too, even if this node has one under that name.
    """
    named = {endpoint.api_key_env for endpoint in settings.endpoints}
    for name in [name for name in os.environ if name in named or name.startswith("OPENAI_")]:
        del os.environ[name]
    os.environ.update(given)


def state() -> State:
    """The state of the judges; an actor that died counts as an outage."""
    try:
        found: State = ray.get(ray.get_actor(NAME).state.remote())
        return found
    except (RayActorError, ValueError) as error:  # ValueError: no actor has this name any more
        return State(0.0, f"the run's judge actor has died ({one_line(error)})")


class _RemoteClient:
    """Sends the requests for one endpoint to the run's actor."""

    _names = itertools.count()

    def __init__(self, endpoint: Endpoint, number: int, actor: Any) -> None:
        self.endpoint, self._number, self._actor = endpoint, number, actor

    async def complete(self, request: Request, usage: Usage) -> Completed:
        """The answer to a request (see `Completions`)."""
        call = f"{ray.get_runtime_context().get_worker_id()}-{next(self._names)}"
        try:
            answered = asyncio.wrap_future(self._actor.complete.remote(call, self._number, request).future())
            try:
                answer: Answer = await asyncio.shield(answered)
            except asyncio.CancelledError:
                self._actor.cancel.remote(call)
                usage.merge((await answered).usage)  # at once: what the request has cost counts all the same
                raise
        except RayActorError as error:
            detail = f"{self.endpoint.name}: the run's judge actor has died ({one_line(error)})"
            raise JudgeFailure("outage", detail) from None
        usage.merge(answer.usage)
        if answer.completed is None:
            assert answer.failure is not None
            raise JudgeFailure(*answer.failure)
        return answer.completed

    async def close(self) -> None:
        """Nothing: the actor has the connections."""


def remote_gateway(settings: GatewaySettings) -> Gateway:
    """The gateway of a worker, whose requests the run's actor sends."""
    actor = ray.get_actor(NAME)
    return Gateway.of_clients(settings, {e: _RemoteClient(e, i, actor) for i, e in enumerate(settings.endpoints)})
