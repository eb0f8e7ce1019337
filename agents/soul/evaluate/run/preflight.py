"""Checks before the first sample: can every endpoint be asked that the chosen sets need?

A missing key or an unknown model ends the run with one paragraph, before a server is started or an answer is paid for.
With --dry-run the plan (plan.py) is printed too, and no sample is taken.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from soul.errors import JudgeFailure, MissingKey, SoulError
from soul.evaluate.run.plan import ASSUMED, POLICY, EvaluationPlan, SetPlan, cost, sections_asked
from soul.evaluate.run.progress import duration
from soul.evaluate.run.settings import EvaluationSettings, SampleRequest
from soul.judge import ChatModel, Endpoint
from soul.judge import preflight as judges
from soul.judge.preflight import Load
from soul.judge.roles import POLICY_KEY, require_prices

POLICY_PATIENCE_S = 60.0  # seconds of one request to the model under test, which may think for long


class BadPolicy(SoulError):
    """The model under test cannot be asked."""


def check(settings: EvaluationSettings, todo: Sequence[SampleRequest], *, ask: bool = True) -> dict[str, float | None]:
    """Send one small request to every endpoint that these samples need: policy, judges, partners, environments.

    A policy that we serve ourselves is left out: `runner.run_missing` asks it once its server has started.

    Args:
        ask: False looks only whether every key is set; nothing is sent.

    Returns:
        Section -> seconds of that request.

    Raises:
        MissingKey: the environment variable of a key is not set.
        BadPolicy, BadJudge: an endpoint cannot be used.
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
                    "no key), or evaluate other sets (TASKS=...). No sample was taken."
                )
    require_prices(settings.gateway, [endpoint for section in sets for endpoint in settings.gateway.asked(section)])
    if not ask:
        return {}
    latencies: dict[str, float | None] = {POLICY: check_policy(settings.policy)} if asks_policy else {}
    answers = asyncio.run(judges.check(settings.gateway, list(sets))) if sets else {}
    return latencies | {section: answer.latency_s for section, answer in answers.items()}


def check_policy(endpoint: Endpoint) -> float:
    """Send one small request to the model under test.

    Returns:
        The seconds of that request.

    Raises:
        MissingKey: the environment variable of its key is not set.
        BadPolicy: it cannot be asked.
    """

    _require_policy_key(endpoint)

    async def ask() -> float:
        brisk = {"max_attempts": 2, "deadline_s": min(POLICY_PATIENCE_S, endpoint.deadline_s)}
        model = ChatModel.connect(endpoint.model_copy(update=brisk))
        start = time.perf_counter()
        try:
            await model.scope().say([{"role": "user", "content": "Say hello."}])
        finally:
            await model.close()
        return time.perf_counter() - start

    try:
        return asyncio.run(ask())
    except JudgeFailure as failure:
        raise BadPolicy(
            f"The model under test cannot be asked, {failure.cause}: {failure.detail}. Check its name, its address and "
            "its key (OPENAI_AGENT_MODEL, OPENAI_AGENT_BASE_URL, OPENAI_AGENT_API_KEY)."
        ) from failure


def _require_policy_key(endpoint: Endpoint) -> None:
    if not _has_key(endpoint):
        raise MissingKey(
            f"No key for {endpoint.name}, the model under test: the environment variable {endpoint.api_key_env} is not "
            f"set. Export {POLICY_KEY}, or name another variable with policy.api_key_env (policy.api_key_env=none "
            "for a server that needs no key). No sample was taken."
        )


def show(console: Console, settings: EvaluationSettings, plan: EvaluationPlan) -> None:
    """Print the plan."""
    samples = sum(of_set.samples for of_set in plan.sets)
    suite = f", suite {settings.suite}" if settings.suite else ""
    rows = f"{settings.limit} rows a set" if settings.limit else "all rows"
    title = f"Plan: {settings.policy.model} on {len(plan.sets)} sets{suite}, {rows}, {samples:,} samples to take"
    console.print(_sets_table(plan, title))
    console.print(_endpoints_table(plan.loads))
    for of_set in plan.sets:
        for option, loads in of_set.cheaper.items():
            there = _price(cost(list(of_set.asked.values())))
            calls = f"{of_set.calls('judge'):,.0f} judge calls, {there} in all"
            fewer = sum(load.calls for section, load in loads.items() if section.startswith("judge"))
            with_it = f"{fewer:,.0f} judge calls, {_price(cost(list(loads.values())))}"
            _say(console, f"{of_set.name}: {calls}; with tasks.{of_set.name}.{option}: {with_it}.")
    seconds, reason = plan.seconds()
    _say(console, f"Price: {_whole_price(plan.loads)}. Time: about {duration(seconds)} ({reason}).")
    _say(console, f"{ASSUMED} They think {plan.thinking_tokens:,} tokens before each answer (--thinking-tokens).")
    if settings.missing:
        _say(console, f"Left out, because there is no file: {', '.join(settings.missing)}.")


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
    for of_set in plan.sets:
        view.add_row(*map(Text, _cells(of_set)))
    return view


def _cells(of_set: SetPlan) -> list[str]:
    loads = list(of_set.asked.values())
    roles = ("policy", "judge", "partner", "environment")
    return [
        of_set.name,
        f"{of_set.rows:,}",
        f"{of_set.samples:,}",
        of_set.models("judge") or "by rule",
        *(f"{of_set.calls(role):,.0f}" if of_set.calls(role) else "" for role in roles),
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
        price = _price(load.cost_usd) if endpoint.priced else f"set {load.section}.price_in, .price_out"
        view.add_row(*map(Text, (load.section, endpoint.name, f"{key}{state}", *counts, price)))
    return view


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False)


def _price(dollars: float | None) -> str:
    return "unknown" if dollars is None else f"${dollars:,.2f}"


def _whole_price(loads: Sequence[Load]) -> str:
    """The price of all loads whose price is known, and the names of the others."""
    known = sum(load.cost_usd or 0.0 for load in loads)
    unknown = [load.section for load in loads if not load.endpoint.priced]
    return f"${known:,.2f}" + (f", plus that of {', '.join(unknown)}, whose prices are not set" if unknown else "")


def _sets_by_section(settings: EvaluationSettings, todo: Sequence[SampleRequest]) -> Mapping[str, list[str]]:
    """Section -> the sets that need it."""
    tasks = {item.set: item.row.task for item in todo}
    found: dict[str, list[str]] = defaultdict(list)
    for name, task in tasks.items():
        for section in sections_asked(settings, task):
            found[section].append(name)
    return found


def _has_key(endpoint: Endpoint) -> bool:
    return endpoint.api_key_env is None or bool(os.environ.get(endpoint.api_key_env))
