"""Check every endpoint that a run needs, before it starts: its key is set, and it answers one small request.

Training (`ditto.judging.plan`), evaluation and distillation (`soul.evaluate.run.preflight`) use it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from soul.errors import JudgeFailure, SoulError
from soul.judge.call.endpoint import Endpoint, StructuredMode
from soul.judge.client import EndpointClient
from soul.judge.gateway import Gateway
from soul.judge.judge import ChatModel, Judge
from soul.judge.roles import BY_TASK, CANARY, GatewaySettings

logger = logging.getLogger(__name__)

_REMEDY = {
    "auth": "The key in {key} is not accepted, has no credit, or is not set. Set it to a valid key.",
    "not_found": "Check {role}.model (JUDGE_MODEL_NAME) and {role}.base_url (OPENAI_BASE_URL).",
    "connection": "Check that the server is up and that {role}.base_url (OPENAI_BASE_URL) is right.",
    "timeout": "It did not answer in time. Check that the server is up and that its address is right.",
}
_KEY_WANTED = "It asks for a key: export one, and name its variable with {role}.api_key_env."
_OTHER_REMEDY = "Read its answer above; {role}.* in the config sets model, address and limits."
# By default, a task is judged by the model that the paper used, which the user's own endpoint may not know.
_PAPER_JUDGE = (
    " Set {role}.model=... for another judge of this task, or JUDGE_MODEL_NAME=... for one judge of all tasks."
)


class BadJudge(SoulError):
    """A role's endpoint cannot be used."""


class Checked(NamedTuple):
    """The result of one small request to a role.

    Attributes:
        latency_s: seconds of the request.
        mode: how the endpoint takes structured answers; None if that is not known yet.
    """

    latency_s: float | None
    mode: StructuredMode | None


async def check(settings: GatewaySettings, sections: Sequence[str]) -> Mapping[str, Checked]:
    """Send one small request to each of these sections (roles, `judge.by_task.<task>`, `judge.canary`), and to
    every member of a jury.

    Raises:
        BadJudge: an endpoint cannot be used; the message says what to do.
        MissingKey: the environment variable of a key is not set.
    """
    results: dict[str, Checked] = {}
    async with Gateway.connect(_with_short_timeouts(settings)) as gateway:
        judges: dict[str, Judge] = {str(role): judge for role, judge in gateway.roles.items()}
        judges |= {f"{BY_TASK}{task}": judge for task, judge in gateway.by_task.items()}
        judges |= {CANARY: gateway.canary} if gateway.canary else {}
        for section in sections:
            latency = None
            for judge in gateway.jury if section == "judge" else (judges[section],):
                judge.endpoint.key()  # raises MissingKey, whose message is better than that of a failed call
                await _check_one(section, judge)
                latency = judge.usage.percentile(0.5)
                logger.info("%s: %s answers, %.2f s", section, judge.endpoint.name, latency or 0.0)
            client = judges[section].endpoint_client
            assert isinstance(client, EndpointClient)
            results[section] = Checked(latency, client.mode if client.settled else None)
    return results


def _with_short_timeouts(settings: GatewaySettings) -> GatewaySettings:
    """Allow two attempts of ten seconds each: users would turn off a check that waits for minutes."""

    def shorten(endpoint: Endpoint) -> Endpoint:
        timeouts = {"timeout_s": min(10.0, endpoint.timeout_s), "deadline_s": min(30.0, endpoint.deadline_s)}
        return endpoint.model_copy(update={"max_attempts": 2, **timeouts})

    return settings.with_endpoints(shorten)


async def _check_one(section: str, judge: Judge) -> None:
    try:
        await judge.check()
    except JudgeFailure as error:
        key = judge.endpoint.api_key_env
        remedy = _KEY_WANTED if error.cause == "auth" and key is None else _REMEDY.get(error.cause, _OTHER_REMEDY)
        remedy += _PAPER_JUDGE if section.startswith(BY_TASK) else ""
        remedy = remedy.format(role=section, key=key)
        raise BadJudge(f"Cannot use the {section} ({error.cause}): {error.detail}. {remedy}") from error


def has_key(endpoint: Endpoint) -> bool:
    """Check whether the endpoint needs no key, or the variable of its key is set."""
    return endpoint.api_key_env is None or bool(os.environ.get(endpoint.api_key_env))


async def seconds_to_answer(endpoint: Endpoint) -> float:
    """The seconds of one small request to a model.

    Raises:
        JudgeFailure: it does not answer.
    """
    model = ChatModel.connect(endpoint.model_copy(update={"max_attempts": 2}))
    start = time.perf_counter()
    try:
        await model.scope().say([{"role": "user", "content": "Say hello."}])
    finally:
        await model.close()
    return time.perf_counter() - start
