"""Checks before the first sample: does every endpoint answer that the chosen sets need?

A missing key or an unknown model ends the run with one paragraph, before a server starts and before you pay for an
answer. --dry-run also prints the plan (plan.py), and runs no sample.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from soul.errors import JudgeFailure, MissingKey, SoulError
from soul.evaluate.run.plan import ASSUMED, JUDGE_TEST, EvaluationPlan, SetPlan, cost, sections_asked
from soul.evaluate.run.progress import duration
from soul.evaluate.run.settings import EvaluationSettings, SampleRequest
from soul.evaluate.run.vllm_server import tail
from soul.judge import ChatModel, Endpoint
from soul.judge import preflight as judges
from soul.judge.preflight import Load
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
        _require_policy_key(settings.policy)
    sets = _sets_by_section(settings, todo)
    for section, names in sets.items():
        for endpoint in settings.gateway.asked(section):
            if not _has_key(endpoint):
                raise MissingKey(
                    f"No key for {endpoint.name}, which is the {section} of {', '.join(names)}: the environment "
                    f"variable {endpoint.api_key_env} is not set. Export it (export {endpoint.api_key_env}=...), name "
                    f"another variable with {section}.api_key_env ({section}.api_key_env=none for a server that needs "
                    "no key), or evaluate other sets (TASKS=...). No sample was run."
                )
    require_prices(settings.gateway, [endpoint for section in sets for endpoint in settings.gateway.asked(section)])
    if ask and asks_policy:
        _check_policy(settings.policy)
    if ask and sets:
        asyncio.run(judges.check(settings.gateway, list(sets)))


def _check_policy(endpoint: Endpoint) -> None:
    # No limit on the tokens but the endpoint's own: some reasoning models answer 400 where they think for longer.
    impatient = endpoint.model_copy(update={"deadline_s": min(POLICY_PATIENCE_S, endpoint.deadline_s)})
    try:
        asyncio.run(_seconds_to_answer(impatient))
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
            seconds = asyncio.run(_seconds_to_answer(brief))
    except JudgeFailure as failure:
        raise BadPolicy(
            f"vLLM serves {endpoint.model}, but does not answer, {failure.cause}: {failure.detail}. "
            f"{log} ends with:\n{tail(log)}"
        ) from failure
    console.print(f"{endpoint.model} gave its first answer after {seconds:.1f} s")


async def _seconds_to_answer(endpoint: Endpoint) -> float:
    model = ChatModel.connect(endpoint.model_copy(update={"max_attempts": 2}))
    start = time.perf_counter()
    try:
        await model.scope().say([{"role": "user", "content": "Say hello."}])
    finally:
        await model.close()
    return time.perf_counter() - start


def _require_policy_key(endpoint: Endpoint) -> None:
    if not _has_key(endpoint):
        raise MissingKey(
            f"No key for {endpoint.name}, the model under test: the environment variable {endpoint.api_key_env} is not "
            f"set. Export {POLICY_KEY}, or name another variable with policy.api_key_env (policy.api_key_env=none "
            "for a server that needs no key). No sample was run."
        )


def show(console: Console, settings: EvaluationSettings, plan: EvaluationPlan) -> None:
    """Print the plan."""
    samples = sum(one.samples for one in plan.sets)
    suite = f", suite {settings.suite}" if settings.suite else ""
    rows = f"{settings.limit} rows a set" if settings.limit else "all rows"
    title = f"Plan: {settings.policy.model} on {len(plan.sets)} sets{suite}, {rows}, {samples:,} samples to run"
    console.print(_sets_table(plan, title))
    console.print(_endpoints_table(plan.loads))
    for one in plan.sets:
        for option, loads in one.cheaper.items():
            now = f"{one.calls('judge'):,.0f} judge calls, {_price(cost(list(one.asked.values())))} in all"
            fewer = sum(load.calls for section, load in loads.items() if section.startswith("judge"))
            cheaper = f"{fewer:,.0f} judge calls, {_price(cost(list(loads.values())))}"
            _print(console, f"{one.name}: {now}; with tasks.{one.name}.{option}: {cheaper}.")
    for load in plan.tests:
        calls = f"{load.calls:,.0f} calls before the first sample, {_price(load.cost_usd)}"
        _print(console, f"Test of the judge {load.endpoint.model} with replies that deserve nothing: {calls}.")
    _print(console, f"Price: {_whole_price(plan.loads)}. Time: {_time(plan)}.")
    _print(console, f"{ASSUMED} They think {plan.thinking_tokens:,} tokens before each answer (--thinking-tokens).")
    if settings.missing:
        _print(console, f"Skipped, because the file is missing: {', '.join(settings.missing)}.")


def _sets_table(plan: EvaluationPlan, title: str) -> Table:
    view = Table(title=Text(title), title_justify="left")
    view.add_column("set")
    for name in ("rows", "samples"):
        view.add_column(name, justify="right")
    view.add_column("judge", overflow="fold")
    for name in ("policy", "judge", "partner", "environment"):
        view.add_column(f"{name}\ncalls", justify="right")
    for name in ("tokens in", "tokens out", "price"):
        view.add_column(name, justify="right")
    for one in plan.sets:
        view.add_row(*map(Text, _cells(one)))
    return view


def _cells(one: SetPlan) -> list[str]:
    loads = list(one.asked.values())
    roles = ("policy", "judge", "partner", "environment")
    return [
        one.name,
        f"{one.rows:,}",
        f"{one.samples:,}",
        one.models("judge") or "by rule",
        *(f"{one.calls(role):,.0f}" if one.calls(role) else "" for role in roles),
        f"{sum(load.tokens_in for load in loads):,.0f}",
        f"{sum(load.tokens_out for load in loads):,.0f}",
        _price(cost(loads)),
    ]


def _endpoints_table(loads: Sequence[Load]) -> Table:
    view = Table(title=Text("Endpoints"), title_justify="left")
    for name in ("role", "model", "key", "calls", "tokens in", "tokens out", "price"):
        left = name in ("role", "model", "key")
        view.add_column(name, justify="left" if left else "right", overflow="fold", no_wrap=name == "key")
    for load in loads:
        endpoint = load.endpoint
        key = "none needed" if endpoint.api_key_env is None else endpoint.api_key_env
        state = "" if _has_key(endpoint) else " NOT SET"
        counts = (f"{number:,.0f}" for number in (load.calls, load.tokens_in, load.tokens_out))
        section = "judge" if load.section == JUDGE_TEST else load.section
        price = _price(load.cost_usd) if endpoint.priced else f"set {section}.price_in, .price_out"
        view.add_row(*map(Text, (load.section, endpoint.name, f"{key}{state}", *counts, price)))
    return view


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False)


def _price(dollars: float | None) -> str:
    return "unknown" if dollars is None else f"${dollars:,.2f}"


def _whole_price(loads: Sequence[Load]) -> str:
    """The sum of the known prices, and the sections without one."""
    known = sum(load.cost_usd or 0.0 for load in loads)
    unknown = [load.section for load in loads if not load.endpoint.priced]
    return f"${known:,.2f}" + (f", plus {', '.join(unknown)}, which have no prices set" if unknown else "")


def _time(plan: EvaluationPlan) -> str:
    """The part of the time that is known before any answer: the rate limits."""
    least = plan.least_seconds()
    known = f", but at least {duration(least[0])} ({least[1]})" if least else ""
    return f"unknown{known}; the run shows the time left after its first samples"


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


def _has_key(endpoint: Endpoint) -> bool:
    return endpoint.api_key_env is None or bool(os.environ.get(endpoint.api_key_env))
