"""What a run will ask of its judges, before it starts: one real call a role; calls, tokens, money; what bounds a step.

The estimates are for planning: prompt lengths are measured, answers are guessed, and a gate that lets few drafts
through or a warm cache makes a run cheaper.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from omegaconf import DictConfig, OmegaConf, open_dict

from agents.errors import JudgeFailure, SoulError
from agents.judge import Endpoint, Gateway, GatewaySettings, Judge, Role
from agents.judge.ledger import Ledger
from agents.judge.roles import BY_TASK, require_prices
from agents.rows import TaskRow
from ditto.settings import BadConfig, Settings

TOKENS_OUT = 120  # a critique of two to four sentences; a reasoning model spends more
INSTRUCTIONS = 250  # the judge's own instructions, in tokens
_REMEDY = {
    "auth": "The key in {key} is not accepted or not set: export the right one.",
    "not_found": "Check {role}.model (JUDGE_MODEL_NAME) and {role}.base_url (OPENAI_BASE_URL).",
    "connection": "Is the server up, and is OPENAI_BASE_URL ({role}.base_url) right?",
    "timeout": "It did not answer in time: is the server up, is the address right?",
}
_OTHER_REMEDY = "Look at its answer above; {role}.* in the config sets model, address and limits."


class BadJudge(SoulError):
    """A role's endpoint cannot be used."""


@dataclass(frozen=True)
class RolePlan:
    """What one role, or the judge of one task, will be asked per training step.

    Attributes:
        section: the role, or `judge.by_task.<task>`.
        latency_s: what the connection test took; None where it was not made.
    """

    section: str
    endpoint: Endpoint
    calls: float
    tokens_in: float
    latency_s: float | None

    @property
    def tokens_out(self) -> float:
        return self.calls * TOKENS_OUT

    @property
    def cost_usd(self) -> float | None:
        """US dollars a step; None where the price is not known."""
        if not self.endpoint.priced:
            return None
        return self.endpoint.cost(int(self.tokens_in), 0, int(self.tokens_out))

    def with_calls(self, calls: float) -> RolePlan:
        """The same role with another number of calls of the same length."""
        return replace(self, calls=calls, tokens_in=self.tokens_in * calls / self.calls)

    def bounds(self) -> dict[str, float]:
        """The least seconds that a step takes because of each limit."""
        endpoint, tokens = self.endpoint, self.tokens_in + self.tokens_out
        found: dict[str, float] = {}
        if (rate := endpoint.tokens_per_minute) is not None:
            found[f"{self.section}.tokens_per_minute={rate:,.0f}"] = 60 * tokens / rate
        if (rate := endpoint.requests_per_minute) is not None:
            found[f"{self.section}.requests_per_minute={rate:,.0f}"] = 60 * self.calls / rate
        if self.latency_s is not None:
            name = f"{self.latency_s:.2f} s a call at {self.section}.concurrency={endpoint.concurrency}"
            found[name] = self.calls * self.latency_s / endpoint.concurrency
        return found


def roles_asked(
    rows: Sequence[TaskRow],
    refines: bool,
    sessions: float,
    own_judge: Collection[str] = (),
    instead: Mapping[str, Mapping[Role, float]] | None = None,
) -> dict[str, float]:
    """Calls of each role per step, expected: a session plays and judges one episode, and two where it refines.

    Args:
        own_judge: the tasks with a judge of their own; its calls are told apart.
        instead: the calls of one episode, by role, for tasks that would be configured in another way.
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
    """What each option that makes a task cheaper (`Task.cheaper`) would change: override -> calls as `roles_asked`."""
    return {
        f"tasks.{name}.{option}": roles_asked(rows, refines, sessions, own_judge, {name: calls})
        for name, task in {row.task.name: row.task for row in rows}.items()
        for option, calls in task.cheaper.items()
    }


def plan(settings: Settings, asked: Mapping[str, float], prompt_tokens: float, config: DictConfig) -> list[RolePlan]:
    """Check every role that will be asked, and plan a step.

    Args:
        asked: calls per step by role, or by `judge.by_task.<task>`.
        prompt_tokens: mean length of a task prompt, which a judge gets to see.
        config: gets the form of structured answers that each endpoint takes, so that no worker has to find it out.

    Raises:
        BadJudge: an endpoint cannot be used.
        BadConfig: the budget is spent already.
        BadSettings: there is a budget, and a price is missing.
        MissingKey: a key's variable is not set.
    """
    _check_budget(settings)
    require_prices(settings.gateway, [settings.gateway.named(section) for section in asked])
    latencies = asyncio.run(_check(_brisk(settings.gateway), list(asked), config)) if asked else {}
    return [
        RolePlan(name, settings.gateway.named(name), calls, calls * (prompt_tokens + INSTRUCTIONS), latencies[name])
        for name, calls in asked.items()
    ]


def describe(
    plans: Sequence[RolePlan], steps: int, cheaper: Mapping[str, Mapping[str, float]] | None = None
) -> list[str]:
    """The plan as people read it.

    Args:
        cheaper: options that would make it cheaper, as `cheaper_options` gives them; each gets a line with its price.
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


def _brisk(settings: GatewaySettings) -> GatewaySettings:
    """Two attempts and ten seconds: a preflight that waits for minutes is one that people switch off."""

    def brisk(endpoint: Endpoint) -> Endpoint:
        return endpoint.model_copy(update={"max_attempts": 2, "timeout_s": min(10.0, endpoint.timeout_s)})

    roles = {role: brisk(endpoint) for role, endpoint in settings.roles.items()}
    by_task = {task: brisk(endpoint) for task, endpoint in settings.by_task.items()}
    return settings.model_copy(update={"roles": roles, "jury": tuple(map(brisk, settings.jury)), "by_task": by_task})


async def _check(settings: GatewaySettings, sections: Sequence[str], config: DictConfig) -> dict[str, float | None]:
    gateway = Gateway.connect(settings)
    known: dict[str, Judge] = {str(role): judge for role, judge in gateway.roles.items()}
    known |= {f"{BY_TASK}{task}": judge for task, judge in gateway.by_task.items()}
    latencies: dict[str, float | None] = {}
    try:
        for section in sections:
            for judge in gateway.jury if section == "judge" else (known[section],):
                judge.endpoint.client()  # a missing key is the user's mistake, with a message of its own
                await _check_one(section, judge)
                latencies[section] = judge.usage.percentile(0.5)
            line = known[section].line
            if line.settled:
                with open_dict(config):
                    OmegaConf.update(config, f"{section}.structured", line.mode)
    finally:
        await gateway.close()
    return latencies


async def _check_one(section: str, judge: Judge) -> None:
    try:
        await judge.check()
    except JudgeFailure as error:
        remedy = _REMEDY.get(error.cause, _OTHER_REMEDY).format(role=section, key=judge.endpoint.api_key_env)
        raise BadJudge(f"The {section} cannot be used, {error.cause}: {error.detail}. {remedy}") from error
