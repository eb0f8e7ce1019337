"""Check every endpoint that a run needs, before it starts: its key is set, and it answers small requests.

Training (`ditto.judging.plan`), evaluation and distillation (`soul.evaluate.run.preflight`) use it.
"""

import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from soul.errors import JudgeFailure, SoulError
from soul.judge.call.endpoint import Endpoint, StructuredMode
from soul.judge.client import EndpointClient
from soul.judge.judge import ChatModel, Judge
from soul.judge.roles import BY_TASK, GatewaySettings

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
    """The result of two small requests to a section's endpoint; of a jury, to its last member."""

    latency_s: float  # seconds of the second one: the first also opens the connection and compiles the schema
    mode: StructuredMode | None  # how the endpoint takes structured answers; None of a jury, whose members may differ


async def check(settings: GatewaySettings, sections: Sequence[str]) -> Mapping[str, Checked]:
    """Send two small requests to each of these sections (roles, `judge.by_task.<task>`, `judge.canary`), and to
    every member of a jury.

    Raises:
        BadJudge: an endpoint cannot be used; the message says what to do.
        MissingKey: the environment variable of a key is not set.
    """
    results: dict[str, Checked] = {}
    for section in sections:
        asked = settings.asked(section)
        for endpoint in asked:
            endpoint.key()  # raises MissingKey, whose message is better than that of a failed call
            # Two attempts of ten seconds each: users would turn off a check that waits for minutes.
            brief = endpoint.model_copy(update={"max_attempts": 2, "timeout_s": min(10.0, endpoint.timeout_s)})
            client = EndpointClient(brief)
            judge = Judge(client)
            latency_s = await _check_one(section, judge)
            logger.info("%s: %s answers, %.2f s", section, endpoint.name, latency_s)
            results[section] = Checked(latency_s, client.mode if len(asked) == 1 else None)
    return results


async def _check_one(section: str, judge: Judge) -> float:
    try:
        await judge.check()
        start = time.perf_counter()
        await judge.check()
        return time.perf_counter() - start
    except JudgeFailure as error:
        key = judge.endpoint.api_key_env
        remedy = _KEY_WANTED if error.cause == "auth" and key is None else _REMEDY.get(error.cause, _OTHER_REMEDY)
        remedy += _PAPER_JUDGE if section.startswith(BY_TASK) else ""
        remedy = remedy.format(role=section, key=key)
        raise BadJudge(f"Cannot use the {section} ({error.cause}): {error.detail}. {remedy}") from error
    finally:
        await judge.close()


def has_key(endpoint: Endpoint) -> bool:
    """Check whether the endpoint needs no key, or the variable of its key is set."""
    return endpoint.api_key_env is None or bool(os.environ.get(endpoint.api_key_env))


async def seconds_to_answer(endpoint: Endpoint) -> float:
    """The seconds of one small request to a model."""
    model = ChatModel.connect(endpoint.model_copy(update={"max_attempts": 2}))
    start = time.perf_counter()
    try:
        await model.say([{"role": "user", "content": "Say hello."}])
    finally:
        await model.close()
    return time.perf_counter() - start
