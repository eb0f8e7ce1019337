"""Plan the judge calls of a run before it starts: test each role with one real call; estimate calls, tokens and cost.

Prompt lengths are measured; answer lengths are guesses. A run costs less than the estimate if few drafts get feedback
or the cache is warm.
"""

import asyncio
import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from omegaconf import DictConfig, OmegaConf, open_dict

from ditto.objectives.spec import Objective
from ditto.settings import BadConfig, Settings
from soul.judge.ledger import Ledger
from soul.judge.load import Load, least_seconds, total_cost
from soul.judge.preflight import check
from soul.judge.roles import BY_TASK, CANARY, GatewaySettings, Role, require_prices
from soul.rows.task_files import TaskRow

TOKENS_OUT = 120  # tokens of a critique of two to four sentences; a reasoning model uses more
INSTRUCTIONS = 250  # tokens of the judge's own instructions


def calls_per_step(
    rows: Sequence[TaskRow],
    objective: Objective,
    sessions: float,
    own_judge: Collection[str] = (),
    instead: Mapping[str, Mapping[Role, float]] | None = None,
) -> dict[str, float]:
    """Expected calls per step by role. A session plays and judges one episode, or two if the objective refines.

    Args:
        sessions: sessions per step.
        own_judge: tasks with their own judge (`judge.by_task`); their calls are counted separately.
        instead: task -> calls of one episode by role, in place of the task's default.

    Returns:
        Role, or `judge.by_task.<task>` -> calls per step.
    """
    expected: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        other = instead.get(row.task.name) if instead else None
        for role, calls in (other or row.task.calls_per_episode).items():
            own = role == "judge" and own_judge and row.task.name in own_judge
            section = f"{BY_TASK}{row.task.name}" if own else role
            expected[section] += calls * (2 if objective.refines else 1) * sessions / len(rows)
        if objective.needs_feedback and row.task.calls_per_feedback:
            expected["feedback"] += row.task.calls_per_feedback * sessions / len(rows)
    return dict(expected)


def canary_calls(rows: Sequence[TaskRow], episodes: float, gateway: GatewaySettings) -> dict[str, float]:
    """Expected calls per step of the canary, under its section; empty if there is none."""
    calls = statistics.fmean(row.task.calls_per_episode.get("judge", 0.0) for row in rows)
    compares = [CANARY] * bool(gateway.canary) + ["judge.drift_every"] * bool(gateway.policy.drift_every)
    if compares and not calls:
        raise BadConfig(f"{compares[0]}: no task of this run is scored by a judge, so there is nothing to compare.")
    return {CANARY: calls * episodes * gateway.canary_share} if gateway.canary else {}


def plan(settings: Settings, expected: Mapping[str, float], prompt_tokens: float, config: DictConfig) -> list[Load]:
    """Test every role that the run uses (unless run.preflight is false), and plan a step.

    Args:
        expected: calls per step by role or `judge.by_task.<task>`, as `calls_per_step` returns them.
        prompt_tokens: mean length of a task prompt; the judge sees it.
        config: receives the structured-answer format that each endpoint accepts, so that workers need not probe it.
    """
    budget, spent = settings.gateway.policy.budget_usd, Ledger.load(settings.ledger_file).total().cost_usd
    if budget is not None and spent >= budget:
        raise BadConfig(
            f"judge.budget_usd={budget:.2f} is spent: {settings.ledger_file} records ${spent:.2f}. Raise it, or "
            "start a run under another name (EXPERIMENT_NAME)."
        )
    require_prices(settings.gateway, [endpoint for section in expected for endpoint in settings.gateway.asked(section)])
    tests_roles = bool(expected) and settings.run.preflight
    checked = asyncio.run(check(settings.gateway, list(expected))) if tests_roles else {}
    for section, answer in checked.items():
        if answer.mode is not None:
            with open_dict(config):
                OmegaConf.update(config, f"{section}.structured", answer.mode)
    return [
        Load(
            section,
            endpoint,
            calls,
            calls * (prompt_tokens + INSTRUCTIONS),
            calls * TOKENS_OUT,
            checked[section].latency_s if section in checked else None,
        )
        for section, calls in expected.items()
        for endpoint in settings.gateway.asked(section)  # every member of a jury judges every episode
    ]


def describe(plans: Sequence[Load], steps: int) -> list[str]:
    """The plan as lines of text."""
    if not plans:
        return ["not asked (rule-scored, no feedback)"]
    lines = []
    for role in plans:
        cost = "price unknown (set price_in, price_out)" if role.cost_usd is None else f"${role.cost_usd:,.3f}"
        lines += [
            f"{role.section}: {role.endpoint.name}",
            f"up to {role.calls:,.0f} calls, about {role.tokens_in:,.0f} tokens in, {role.tokens_out:,.0f} out per "
            f"step: {cost}",
        ]
    tokens = steps * sum(role.tokens_in + role.tokens_out for role in plans)
    cost_of_step = total_cost(plans)
    price = "" if cost_of_step is None else f", ${steps * cost_of_step:,.2f}"
    lines.append(f"whole run: about {tokens:,.0f} tokens{price}")
    if least := least_seconds(plans):
        lines.append(f"a step takes at least {least[0]:,.1f} s because of {least[1]}")
    return lines
