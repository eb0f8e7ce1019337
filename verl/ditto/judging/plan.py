"""What a run will ask of its judges, before it starts: one real call a role; calls, tokens, money; what bounds a step.

The estimates are for planning: prompt lengths are measured, answers are guessed, and a gate that lets few drafts
through or a warm cache makes a run cheaper.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from omegaconf import DictConfig, OmegaConf, open_dict

from ditto.settings import BadConfig, Settings
from soul.judge.ledger import Ledger
from soul.judge.preflight import Load, check
from soul.judge.roles import BY_TASK, Role, require_prices
from soul.rows.task_files import TaskRow

TOKENS_OUT = 120  # a critique of two to four sentences; a reasoning model spends more
INSTRUCTIONS = 250  # the judge's own instructions, in tokens


def roles_asked(
    rows: Sequence[TaskRow],
    refines: bool,
    sessions: float,
    own_judge: Collection[str] = (),
    instead: Mapping[str, Mapping[Role, float]] | None = None,
) -> dict[str, float]:
    """Calls of each role per step, expected: a session plays and judges one episode, and two where it refines.

    Args:
        own_judge: the tasks with a judge of their own, whose calls are counted separately.
        instead: task -> the calls of one episode by role, under another option of the task.
    """
    asked: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        other = instead.get(row.task.name) if instead else None
        for role, calls in (other or row.task.calls_per_episode).items():
            own = role == "judge" and own_judge and row.task.name in own_judge
            asked[f"{BY_TASK}{row.task.name}" if own else role] += calls * (2 if refines else 1) * sessions / len(rows)
        if refines and row.task.calls_per_feedback:
            asked["feedback"] += row.task.calls_per_feedback * sessions / len(rows)
    return dict(asked)


def cheaper_options(
    rows: Sequence[TaskRow], refines: bool, sessions: float, own_judge: Collection[str] = ()
) -> dict[str, dict[str, float]]:
    """The calls under each option that makes a task cheaper (`Task.cheaper`): override -> calls, as `roles_asked`."""
    return {
        f"tasks.{name}.{option}": roles_asked(rows, refines, sessions, own_judge, {name: calls})
        for name, task in {row.task.name: row.task for row in rows}.items()
        for option, calls in task.cheaper.items()
    }


def plan(settings: Settings, asked: Mapping[str, float], prompt_tokens: float, config: DictConfig) -> list[Load]:
    """Check every role that will be asked (unless run.preflight is false), and plan a step.

    Args:
        asked: calls per step by role, or by `judge.by_task.<task>`.
        prompt_tokens: mean length of a task prompt, which a judge gets to see.
        config: gets the form of structured answers that each endpoint accepts, so that no worker has to find it out.

    Raises:
        BadJudge: an endpoint cannot be used.
        BadConfig: the budget is spent already.
        BadSettings: there is a budget, and a price is missing.
        MissingKey: a key's variable is not set.
    """
    _check_budget(settings)
    require_prices(settings.gateway, [endpoint for section in asked for endpoint in settings.gateway.asked(section)])
    asks = bool(asked) and settings.run.preflight
    checked = asyncio.run(check(settings.gateway, list(asked))) if asks else {}
    for section, found in checked.items():
        if found.mode is not None:
            with open_dict(config):
                OmegaConf.update(config, f"{section}.structured", found.mode)
    return [
        Load(
            section,
            endpoint,
            calls,
            calls * (prompt_tokens + INSTRUCTIONS),
            calls * TOKENS_OUT,
            checked[section].latency_s if section in checked else None,
        )
        for section, calls in asked.items()
        for endpoint in settings.gateway.asked(section)  # every member of a jury gets all calls
    ]


def describe(plans: Sequence[Load], steps: int, cheaper: Mapping[str, Mapping[str, float]] | None = None) -> list[str]:
    """The plan as people read it.

    Args:
        cheaper: as `cheaper_options` returns it; each option gets a line with its price.
    """
    if not plans:
        return ["not asked (rule-scored, no feedback)"]
    lines = []
    for role in plans:
        lines.append(f"{role.section}: {role.endpoint.name}")
        cost = "price unknown (set price_in, price_out)" if role.cost_usd is None else f"${role.cost_usd:,.3f}"
        lines.append(
            f"up to {role.calls:,.0f} calls, about {role.tokens_in:,.0f} tokens in, {role.tokens_out:,.0f} out per "
            f"step: {cost}"
        )
        for option, asked in (cheaper or {}).items():
            if asked.get(role.section, 0.0) < role.calls:
                less = role.with_calls(asked.get(role.section, 0.0))
                price = "" if less.cost_usd is None else f": ${less.cost_usd:,.3f}"
                lines.append(f"with {option} up to {less.calls:,.0f} calls per step{price}")
    tokens = steps * sum(role.tokens_in + role.tokens_out for role in plans)
    costs = [role.cost_usd for role in plans]
    whole = f"whole run: about {tokens:,.0f} tokens"
    if None not in costs:
        whole += f", ${steps * sum(cost for cost in costs if cost is not None):,.2f}"
    lines.append(whole)
    bounds = {name: seconds for role in plans for name, seconds in role.bounds().items()}
    if bounds:
        name, seconds = max(bounds.items(), key=lambda item: item[1])
        lines.append(f"a step takes at least {seconds:,.1f} s because of {name}")
    return lines


def _check_budget(settings: Settings) -> None:
    budget = settings.gateway.policy.budget_usd
    spent = Ledger.load(settings.ledger_file).total().cost_usd
    if budget is not None and spent >= budget:
        raise BadConfig(
            f"judge.budget_usd={budget:.2f} is spent: {settings.ledger_file} counts ${spent:.2f} for this run. Raise "
            "judge.budget_usd, or start a run of another name (EXPERIMENT_NAME)."
        )
