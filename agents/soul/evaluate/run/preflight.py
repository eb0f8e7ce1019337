"""Checks before the first sample: does every endpoint answer that the chosen sets need?

A missing key or an unknown model ends the run with one paragraph, before a server starts and before you pay for an
answer.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

from soul.errors import JudgeFailure, MissingKey, SoulError
from soul.evaluate.run.plan import sections_asked
from soul.evaluate.run.settings import EvaluationSettings, SampleRequest
from soul.judge import Endpoint
from soul.judge import preflight as judges
from soul.judge.roles import POLICY_KEY, require_prices

POLICY_PATIENCE_S = 60.0  # for one request to the model under test, which may think for a while


class BadPolicy(SoulError):
    """The model under test does not answer."""


def check(settings: EvaluationSettings, todo: Sequence[SampleRequest], *, ask: bool = True) -> None:
    """Send small requests to every endpoint that these samples need: policy, judges, partners, environments.

    A policy that we serve ourselves is not asked here, but once its server has started (`soul.evaluate.local.served`).

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
        # No limit on the tokens but the endpoint's own: some reasoning models answer 400 where they think for longer.
        patience = {"timeout_s": min(POLICY_PATIENCE_S, settings.policy.timeout_s)}
        try:
            asyncio.run(judges.seconds_to_answer(settings.policy.model_copy(update=patience)))
        except JudgeFailure as failure:
            raise BadPolicy(
                f"The model under test does not answer, {failure.cause}: {failure.detail}. Check its name, its address "
                "and its key (OPENAI_AGENT_MODEL, OPENAI_AGENT_BASE_URL, OPENAI_AGENT_API_KEY)."
            ) from failure
    if ask and sets:
        asyncio.run(judges.check(settings.gateway, list(sets)))


def _require_key(endpoint: Endpoint, section: str, role: str, remedy: str) -> None:
    if not judges.has_key(endpoint):
        raise MissingKey(
            f"No key for {endpoint.name}, {role}: the environment variable {endpoint.api_key_env} is not set. "
            f"{remedy}, or name another variable with {section}.api_key_env ({section}.api_key_env=none for a server "
            "that needs no key). No sample was run."
        )


def judges_asked(settings: EvaluationSettings, todo: Sequence[SampleRequest]) -> list[Endpoint]:
    """The endpoints that judge these samples, without duplicates."""
    sections = [section for section in _sets_by_section(settings, todo) if section.startswith("judge")]
    return list(dict.fromkeys(endpoint for section in sections for endpoint in settings.gateway.asked(section)))


def _sets_by_section(settings: EvaluationSettings, todo: Sequence[SampleRequest]) -> Mapping[str, list[str]]:
    sets: dict[str, list[str]] = defaultdict(list)
    for name, task in {request.set: request.row.task for request in todo}.items():
        for section in sections_asked(settings, task):
            sets[section].append(name)
    return sets
