"""Who is asked what: the roles, their settings, and where the settings come from. The one place that resolves them.

    judge         scores episodes and criticises them
    feedback      turns a verdict into advice, where a task needs a second call
    partner       the other side of a dialogue
    environment   the world around it: next speaker, narrator, tool
    policy        the model under evaluation, where it is an API model (OPENAI_AGENT_*)

A setting comes from the role's own section, else from the environment variable that the original used for it, else
from the judge. What belongs to a model (effort, temperature, rates, prices) is inherited only by a role that keeps the
judge's model and address; a role with an address of its own never gets the judge's key: name one with `api_key_env`.
A task may have a judge of its own (`judge.by_task`), which inherits in the same way. Where you name no judge at all,
neither a model nor a jury, each task is judged as in the paper (`PAPER_JUDGES`), in training and in evaluation alike.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from soul.errors import BadSettings
from soul.judge.call.endpoint import DEFAULT_MODEL, NO_KEY, Endpoint
from soul.judge.throttle.circuit_breaker import BreakerSettings
from soul.validation_errors import first_problem

Role = Literal["judge", "feedback", "partner", "environment"]
ROLES: tuple[Role, ...] = get_args(Role)

# Environment variables by role and setting. OPENAI_BASE_URL is read by `Endpoint.url`, for all roles.
VARIABLES: Mapping[str, Mapping[str, str]] = {
    "judge": {"model": "JUDGE_MODEL_NAME", "reasoning_effort": "JUDGE_MODEL_REASONING"},
    "policy": {
        "model": "OPENAI_AGENT_MODEL",
        "base_url": "OPENAI_AGENT_BASE_URL",
        "reasoning_effort": "OPENAI_AGENT_REASONING_EFFORT",
    },
}
# The paper's judges (section 5): gpt-5-nano, which is `endpoint.DEFAULT_MODEL`, for every task that is not listed here.
PAPER_JUDGES: Mapping[str, str] = {"coser": "gpt-5.4"}
BY_TASK = "judge.by_task."  # what stands before the task in the name of its judge's section
POLICY_KEY = "OPENAI_AGENT_API_KEY"
# What holds for any model: inherited in every case.
_ANY_MODEL = ("timeout_s", "deadline_s", "max_attempts", "max_reasks", "max_answer_mb", "concurrency")


class JudgePolicy(BaseModel):
    """What holds for the judging of a run as a whole; these keys stand in the section `judge` beside the endpoint's."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_failure_rate: float = Field(default=0.3, ge=0, le=1)  # share of a step's sessions; above it the run stops
    budget_usd: float | None = Field(default=None, gt=0)  # all roles together; a run that reaches it saves and stops
    cache: bool = True  # judge and feedback; partners and environments are sampled anew
    cache_dir: str | None = None  # None: the run folder
    cache_max_mb: float = Field(default=2048.0, gt=0)
    jury: Sequence[str | Mapping[str, Any]] = ()  # model names, or settings like those of a role
    jury_reward: Literal["mean", "median"] = "mean"
    jury_quorum: int | None = Field(default=None, ge=1)  # verdicts needed; None: more than half of the members
    by_task: Mapping[str, Mapping[str, Any]] = {}  # task -> settings of its own judge, which takes the jury's place too
    breaker: BreakerSettings = BreakerSettings()

    @field_validator("jury", mode="before")
    @classmethod
    def _no_jury(cls, value: Any) -> Any:
        return () if value is None else value


class GatewaySettings(BaseModel):
    """The resolved settings of all roles."""

    model_config = ConfigDict(frozen=True)

    roles: Mapping[Role, Endpoint]
    jury: tuple[Endpoint, ...] = ()
    by_task: Mapping[str, Endpoint] = {}  # judges of single tasks
    policy: JudgePolicy = JudgePolicy()

    @property
    def judge(self) -> Endpoint:
        return self.roles["judge"]

    @property
    def quorum(self) -> int:
        """Verdicts that a jury needs."""
        return self.policy.jury_quorum or len(self.jury) // 2 + 1

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Every endpoint, each once."""
        return tuple(dict.fromkeys([*self.roles.values(), *self.jury, *self.by_task.values()]))

    def resolved(self) -> GatewaySettings:
        """The same with every address written out: nothing is left for the environment of another process to decide."""

        def written_out(endpoint: Endpoint) -> Endpoint:
            return endpoint.model_copy(update={"base_url": endpoint.url})

        return GatewaySettings(
            roles={role: written_out(endpoint) for role, endpoint in self.roles.items()},
            jury=tuple(map(written_out, self.jury)),
            by_task={task: written_out(endpoint) for task, endpoint in self.by_task.items()},
            policy=self.policy.model_copy(update={"jury": (), "by_task": {}}),  # they are above, with what they inherit
        )

    def named(self, section: str) -> Endpoint:
        """The endpoint of a config section: a role's, or `judge.by_task.<task>`."""
        task = section.removeprefix(BY_TASK)
        return self.by_task[task] if task != section else self.roles[section]  # type: ignore[index]

    def asked(self, section: str) -> tuple[Endpoint, ...]:
        """The endpoints that get the calls of a config section; of "judge" that is every member of a jury."""
        return self.jury if section == "judge" and self.jury else (self.named(section),)

    @classmethod
    def from_sections(cls, sections: Mapping[str, Mapping[str, Any]]) -> GatewaySettings:
        """Resolve the sections `judge`, `feedback`, `partner` and `environment`; each may be missing or hold nulls.

        Raises:
            BadSettings: naming section and key.
        """
        given = {role: _without_nulls(sections.get(role) or {}) for role in ROLES}
        policy_keys = {key: given["judge"].pop(key) for key in JudgePolicy.model_fields if key in given["judge"]}
        policy = _validated(JudgePolicy, "judge", policy_keys)
        own_judge = _from_environment("judge") | given["judge"]
        judge = _validated(Endpoint, "judge", own_judge)
        roles: dict[Role, Endpoint] = {"judge": judge}
        for role in ROLES[1:]:
            roles[role] = _inherit(role, given[role], judge)
        jury = tuple(
            _inherit(f"judge.jury[{i}]", {"model": m} if isinstance(m, str) else _without_nulls(m), judge)
            for i, m in enumerate(policy.jury)
        )
        by_task = {task: _without_nulls(own) for task, own in policy.by_task.items()}
        if "model" not in own_judge and not jury:
            by_task |= {task: {"model": model, **by_task.get(task, {})} for task, model in PAPER_JUDGES.items()}
        judges = {task: _inherit(f"{BY_TASK}{task}", own, judge) for task, own in by_task.items()}
        settings = cls(roles=roles, jury=jury, by_task=judges, policy=policy)
        _check(settings)
        return settings


def paper_judge(task: str) -> str:
    """The model that judged this task in the paper."""
    return PAPER_JUDGES.get(task, DEFAULT_MODEL)


def policy_endpoint(overrides: Mapping[str, Any] | None = None) -> Endpoint | None:
    """The model under evaluation behind an API; None where neither `overrides` nor OPENAI_AGENT_MODEL names one.

    Its key is OPENAI_AGENT_API_KEY's. Without that variable OPENAI_API_KEY is used, unless the model has an address of
    its own.
    """
    given = _from_environment("policy") | _without_nulls(overrides or {})
    if "model" not in given:
        _validated(Endpoint, "policy", given)  # a key of the section may still be wrong
        return None
    if "api_key_env" not in given:
        fallback = NO_KEY if "base_url" in given else "OPENAI_API_KEY"
        given["api_key_env"] = POLICY_KEY if os.environ.get(POLICY_KEY) else fallback
    return _validated(Endpoint, "policy", given)


def _inherit(section: str, given: Mapping[str, Any], judge: Endpoint) -> Endpoint:
    """A role's endpoint: its own settings on top of what it may inherit from the judge."""
    own_address = given.get("base_url", judge.base_url) != judge.base_url
    own_model = own_address or given.get("model", judge.model) != judge.model
    inherited = judge.model_dump(include=set(_ANY_MODEL) if own_model else None)
    if own_model:
        inherited["model"] = judge.model
        inherited["base_url"] = judge.base_url
        inherited["api_key_env"] = NO_KEY if own_address else judge.api_key_env
    return _validated(Endpoint, section, {**inherited, **given})


def _check(settings: GatewaySettings) -> None:
    if settings.jury and settings.quorum > len(settings.jury):
        raise BadSettings(f"judge.jury_quorum={settings.quorum} is more than the jury's {len(settings.jury)} members.")
    # (What a task's own judge costs matters only where the task is played: the plan of a run asks then.)
    require_prices(settings, [*settings.roles.values(), *settings.jury])


def require_prices(settings: GatewaySettings, asked: Sequence[Endpoint]) -> None:
    """Refuse a budget over endpoints whose prices nobody knows.

    Raises:
        BadSettings: naming them.
    """
    unpriced = [endpoint.name for endpoint in dict.fromkeys(asked) if not endpoint.priced]
    if settings.policy.budget_usd is not None and unpriced:
        raise BadSettings(
            f"judge.budget_usd={settings.policy.budget_usd} needs the prices of every model that may be asked, in US "
            f"dollars per million tokens: set judge.price_in and judge.price_out (and partner.price_in, ... where a "
            f"role has a model of its own; 0 for a server of yours). Without a price: {', '.join(unpriced)}."
        )


def _from_environment(role: str) -> dict[str, Any]:
    found = {key: os.environ.get(variable) for key, variable in VARIABLES[role].items()}
    return {key: value for key, value in found.items() if value}


def _without_nulls(section: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in section.items() if value is not None}
    return {key: _without_nulls(value) if isinstance(value, Mapping) else value for key, value in given.items()}


def _validated(model: type[Any], section: str, values: Mapping[str, Any]) -> Any:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        place, message, value, kind = problem = first_problem(error)
        key = f"{section}.{problem.field}"
        known = [*Endpoint.model_fields, *(JudgePolicy.model_fields if section == "judge" else ())]
        if place[-1:] in (("api_key_env",), ("base_url",)):  # not repeated: it may hold a key
            raise BadSettings(f"{key}: {message}.") from None
        if kind == "extra_forbidden":  # its value is not shown: it may be a key, as in judge.api_key
            raise BadSettings(f"{key}: {message}. Known keys of {section}: {', '.join(known)}.") from None
        shown = repr(value) if isinstance(value, str | int | float) else "..."  # it may hold a key
        raise BadSettings(f"{key}={shown}: {message}.") from None
