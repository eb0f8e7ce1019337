"""Checks before the first sample: does every endpoint answer that the chosen sets need?

A missing key or an unknown model ends the run with one paragraph, before a server starts and before you pay for an
answer.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from soul.errors import JudgeFailure, MissingKey, SoulError
from soul.evaluate.run.plan import sections_asked
from soul.evaluate.run.settings import EvaluationSettings, SampleRequest
from soul.evaluate.run.vllm_server import tail
from soul.judge import Endpoint
from soul.judge import preflight as judges
from soul.judge.roles import POLICY_KEY, require_prices

POLICY_PATIENCE_S = 60.0  # for one request to the model under test, which may think for a while
SERVED_TOKENS = 64  # most tokens of a checkpoint's first answer: an untrained one may never end it


class BadPolicy(SoulError):
    """The model under test does not answer."""


def check(settings: EvaluationSettings, todo: Sequence[SampleRequest], *, ask: bool = True) -> None:
    """Send one small request to every endpoint that these samples need: policy, judges, partners, environments.

    A policy that we serve ourselves is not asked here, but by `runner.run_missing` once its server has started.

    Args:
        ask: False: only check that every key is set, and send nothing.

    Raises:
        MissingKey: the environment variable of a key is not set.
        BadPolicy, BadJudge: an endpoint does not answer.
        BadSettings: there is a budget, and a price is missing.
    """
    asks_policy = bool(todo) and settings.source is None and settings.served is None
    if asks_policy:
        _require_key(settings.policy, "policy", "the model under test", f"Export {POLICY_KEY}")
    sets = _sets_by_section(settings, todo)
    for section, names in sets.items():
        for endpoint in settings.gateway.asked(section):
            export = f"Export it (export {endpoint.api_key_env}=...), evaluate other sets (TASKS=...)"
            _require_key(endpoint, section, f"which is the {section} of {', '.join(names)}", export)
    require_prices(settings.gateway, [endpoint for section in sets for endpoint in settings.gateway.asked(section)])
    if ask and asks_policy:
        _check_policy(settings.policy)
    if ask and sets:
        asyncio.run(judges.check(settings.gateway, list(sets)))


def _require_key(endpoint: Endpoint, section: str, role: str, remedy: str) -> None:
    if not judges.has_key(endpoint):
        raise MissingKey(
            f"No key for {endpoint.name}, {role}: the environment variable {endpoint.api_key_env} is not set. "
            f"{remedy}, or name another variable with {section}.api_key_env ({section}.api_key_env=none for a server "
            "that needs no key). No sample was run."
        )


def _check_policy(endpoint: Endpoint) -> None:
    # No limit on the tokens but the endpoint's own: some reasoning models answer 400 where they think for longer.
    impatient = endpoint.model_copy(update={"timeout_s": min(POLICY_PATIENCE_S, endpoint.timeout_s)})
    try:
        asyncio.run(judges.seconds_to_answer(impatient))
    except JudgeFailure as failure:
        raise BadPolicy(
            f"The model under test does not answer, {failure.cause}: {failure.detail}. Check its name, its address and "
            "its key (OPENAI_AGENT_MODEL, OPENAI_AGENT_BASE_URL, OPENAI_AGENT_API_KEY)."
        ) from failure


def check_served(endpoint: Endpoint, log: Path, console: Console) -> None:
    """Wait for the first answer of a checkpoint that we serve, as long as its endpoint allows for any answer.

    Args:
        log: the output of its server.

    Raises:
        BadPolicy: it does not answer; the message quotes the log.
    """
    limits = [limit for limit in (SERVED_TOKENS, endpoint.max_output_tokens) if limit is not None]
    brief = endpoint.model_copy(update={"max_output_tokens": min(limits)})
    try:
        with console.status(f"{endpoint.model} writes its first answer; log: {log}"):
            seconds = asyncio.run(judges.seconds_to_answer(brief))
    except JudgeFailure as failure:
        raise BadPolicy(
            f"vLLM serves {endpoint.model}, but does not answer, {failure.cause}: {failure.detail}. "
            f"{log} ends with:\n{tail(log)}"
        ) from failure
    console.print(f"{endpoint.model} gave its first answer after {seconds:.1f} s")


def judges_asked(settings: EvaluationSettings, todo: Sequence[SampleRequest]) -> list[Endpoint]:
    """The endpoints that judge these samples, without duplicates."""
    sections = [section for section in _sets_by_section(settings, todo) if section.startswith("judge")]
    return list(dict.fromkeys(endpoint for section in sections for endpoint in settings.gateway.asked(section)))


def _sets_by_section(settings: EvaluationSettings, todo: Sequence[SampleRequest]) -> Mapping[str, list[str]]:
    """Section -> the sets that need it."""
    tasks = {request.set: request.row.task for request in todo}
    sets: dict[str, list[str]] = defaultdict(list)
    for name, task in tasks.items():
        for section in sections_asked(settings, task):
            sets[section].append(name)
    return sets
