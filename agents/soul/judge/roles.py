"""The roles that models play, and their settings. Everything that resolves these settings is here.

    judge         scores episodes and criticises them
    feedback      turns a verdict into advice, if a task needs a second call for that
    partner       the other side of a dialogue
    environment   the world around a dialogue: next speaker, narrator, tool
    canary        a second judge, only in training: it scores some drafts, and its scores never reach the reward
    policy        the model under evaluation, if it is an API model (OPENAI_AGENT_*)

A setting comes from the role's own section, else from the role's environment variable, else from the judge. Settings
that belong to a model (effort, temperature, rates, prices) are inherited only by a role with the judge's model and
address. A role with its own address never gets the judge's key: name one with `api_key_env`. A task may have its own
judge (`judge.by_task`), which inherits in the same way. If you configure neither a judge model nor a jury, each task
gets the judge that the paper used (`PAPER_JUDGES`), in training and in evaluation.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from soul.errors import BadSettings, one_line
from soul.judge.call.endpoint import DEFAULT_MODEL, NO_KEY, Endpoint
from soul.validation_errors import first_problem

Role = Literal["judge", "feedback", "partner", "environment"]
ROLES: tuple[Role, ...] = get_args(Role)

# Environment variables by role and setting. `Endpoint.url` reads OPENAI_BASE_URL, for all roles.
VARIABLES: Mapping[str, Mapping[str, str]] = {
    "judge": {"model": "JUDGE_MODEL_NAME", "reasoning_effort": "JUDGE_MODEL_REASONING"},
    "policy": {
        "model": "OPENAI_AGENT_MODEL",
        "base_url": "OPENAI_AGENT_BASE_URL",
        "reasoning_effort": "OPENAI_AGENT_REASONING_EFFORT",
    },
}
# The paper's judges (section 5). Tasks that are not listed here use gpt-5-nano, which is `endpoint.DEFAULT_MODEL`.
PAPER_JUDGES: Mapping[str, str] = {"coser": "gpt-5.4"}
CANARY = "judge.canary"  # the section of the second judge
CANARY_SHARE = 0.1  # default share of a training step's sessions that the canary scores
BY_TASK = "judge.by_task."  # the section of a task's own judge is this prefix and the task's name
POLICY_KEY = "OPENAI_AGENT_API_KEY"
# Settings that make sense for any model: inherited in every case.
_ANY_MODEL = ("timeout_s", "max_attempts", "max_reasks", "concurrency")


class JudgePolicy(BaseModel):
    """Settings for the judging of a whole run. They are in the section `judge`, beside those of its endpoint."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_failure_rate: float = Field(
        default=0.3,
        ge=0,
        le=1,
        description="When more than this share of a step's sessions lose their judge, the run saves a checkpoint and "
        "stops.",
    )
    budget_usd: float | None = Field(
        default=None,
        gt=0,
        description="Budget of all roles together; a run that reaches it saves and ends. Needs price_in and price_out.",
    )
    cache: bool = Field(
        default=True,
        description="Keep the answers of judge and feedback on disk, so that each question is asked only once. "
        "Partners and environments are always asked again.",
    )
    cache_dir: str | None = Field(
        default=None,
        description="null is the run's folder `judge_cache`. On a cluster, prefer a local disk of the driver's node.",
    )
    jury: Sequence[str | Mapping[str, Any]] = Field(
        default=(),
        description="Several judges instead of one: `[gpt-5-nano, {model: other, base_url: ..., api_key_env: ...}]`. "
        "One with `asked_between: [low, high]` is asked only if the first one's reward is in that range or missing.",
    )
    by_task: Mapping[str, Mapping[str, Any]] = Field(
        default_factory=dict,
        description="Judges of single tasks: `{coser: {model: gpt-5.4}}`. Such a task has no jury.",
    )
    canary: Mapping[str, Any] | None = Field(
        default=None,
        description="A second judge that raises an alarm: `{model: other, share: 0.1}`. It scores this share of a "
        "step's sessions, and its scores never reach the reward ([judges](judge.md)).",
    )
    drift_every: int | None = Field(
        default=None,
        ge=1,
        description="Every so many training steps each judge grades twelve fixed replies again; an alarm is raised if "
        "the mean has changed ([drift](judge_quality.md#drift)).",
    )


class GatewaySettings(BaseModel):
    """The resolved settings of all roles."""

    model_config = ConfigDict(frozen=True)

    roles: Mapping[Role, Endpoint]
    jury: tuple[Endpoint, ...] = ()
    asked_between: Mapping[int, tuple[float, float]] = {}  # by place in the jury: rewards of the first member
    by_task: Mapping[str, Endpoint] = {}  # task -> its own judge
    canary: Endpoint | None = None
    canary_share: float = CANARY_SHARE
    policy: JudgePolicy = JudgePolicy()

    @property
    def judge(self) -> Endpoint:
        return self.roles["judge"]

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """All endpoints, without duplicates."""
        canary = [self.canary] if self.canary else []
        return tuple(dict.fromkeys([*self.roles.values(), *self.jury, *self.by_task.values(), *canary]))

    def resolved(self) -> GatewaySettings:
        """The same settings with every address filled in, so that another process's environment cannot change them."""
        found = {endpoint: endpoint.model_copy(update={"base_url": endpoint.url}) for endpoint in self.endpoints}
        return GatewaySettings(
            roles={role: found[endpoint] for role, endpoint in self.roles.items()},
            jury=tuple(found[endpoint] for endpoint in self.jury),
            asked_between=self.asked_between,
            by_task={task: found[endpoint] for task, endpoint in self.by_task.items()},
            canary=found[self.canary] if self.canary else None,
            canary_share=self.canary_share,
            # The endpoints of jury, tasks and canary are resolved already, with the settings that they inherit.
            policy=self.policy.model_copy(update={"jury": (), "by_task": {}, "canary": None}),
        )

    def section(self, role: str, task: str) -> str:
        """The config section with the endpoint of a role for a task: the role, or `judge.by_task.<task>`."""
        return f"{BY_TASK}{task}" if role == "judge" and task in self.by_task else role

    @property
    def sections(self) -> dict[str, tuple[Endpoint, ...]]:
        """The endpoints that get the calls of each config section; for "judge", every member of a jury."""
        sections: dict[str, tuple[Endpoint, ...]] = {role: (endpoint,) for role, endpoint in self.roles.items()}
        sections |= {f"{BY_TASK}{task}": (endpoint,) for task, endpoint in self.by_task.items()}
        sections |= {"judge": self.jury} if self.jury else {}
        return sections | ({CANARY: (self.canary,)} if self.canary else {})

    def asked(self, section: str) -> tuple[Endpoint, ...]:
        """The endpoints that get the calls of a config section."""
        return self.sections[section]

    @classmethod
    def from_sections(cls, sections: Mapping[str, Mapping[str, Any]]) -> GatewaySettings:
        """Resolve the sections `judge`, `feedback`, `partner` and `environment`; each may be missing or contain nulls.

        Raises:
            BadSettings: a setting is unknown or invalid; the message names section and key.
        """
        given = {role: _without_nulls(sections.get(role) or {}) for role in ROLES}
        policy_keys = {key: given["judge"].pop(key) for key in JudgePolicy.model_fields if key in given["judge"]}
        policy = _validated(JudgePolicy, "judge", policy_keys)
        own_judge = _from_environment("judge") | given["judge"]
        judge = _validated(Endpoint, "judge", own_judge)
        roles: dict[Role, Endpoint] = {"judge": judge}
        for role in ROLES[1:]:
            roles[role] = _inherit(role, given[role], judge)
        members = [{"model": m} if isinstance(m, str) else _without_nulls(m) for m in policy.jury]
        between = {i: _range(i, m.pop("asked_between")) for i, m in enumerate(members) if "asked_between" in m}
        jury = tuple(_inherit(f"judge.jury[{i}]", member, judge) for i, member in enumerate(members))
        by_task = {task: _without_nulls(own) for task, own in policy.by_task.items()}
        if "model" not in own_judge and not jury:
            by_task |= {task: {"model": model, **by_task.get(task, {})} for task, model in PAPER_JUDGES.items()}
        judges = {task: _inherit(f"{BY_TASK}{task}", own, judge) for task, own in by_task.items()}
        own_canary = _without_nulls(policy.canary or {})
        share = own_canary.pop("share", CANARY_SHARE)
        if type(share) not in (int, float) or not 0 < share <= 1:
            raise BadSettings(f"{CANARY}.share={share!r}: give a share of the sessions, above 0 and up to 1.")
        canary = _inherit(CANARY, own_canary, judge) if own_canary else None
        settings = cls(
            roles=roles,
            jury=jury,
            asked_between=between,
            by_task=judges,
            canary=canary,
            canary_share=share,
            policy=policy,
        )
        _check(settings)
        return settings


def sections_of(arguments: Sequence[str], more: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Parse arguments of the command line of the form `section.key=value`, with values in YAML, into sections.

    Args:
        more: sections to accept besides the roles and `policy`.
    """
    known = (*ROLES, "policy", *more)
    sections: dict[str, dict[str, Any]] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        section, *path = key.split(".")
        if not equals or not path or section not in known:
            # Leave the value out of the message: it may be an API key.
            raise BadSettings(f"{key!r}: write section.key=value, where section is one of {', '.join(known)}.")
        place = sections.setdefault(section, {})
        for name in path[:-1]:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise BadSettings(f"{key!r}: another argument sets {name!r} to a value, so it cannot have keys.")
        try:
            place[path[-1]] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            reason = one_line(error)
            raise BadSettings(f"{key!r}: the value is not valid YAML ({reason}). Put it in quotes.") from None
    return sections


def paper_judge(task: str) -> str:
    """The model that the paper used to judge this task."""
    return PAPER_JUDGES.get(task, DEFAULT_MODEL)


def policy_endpoint(overrides: Mapping[str, Any] | None = None) -> Endpoint | None:
    """The API model under evaluation; None if neither `overrides` nor OPENAI_AGENT_MODEL names one.

    Its key is in OPENAI_AGENT_API_KEY. If that variable is not set, the key is in OPENAI_API_KEY, unless the model has
    its own address: then it gets no key.
    """
    given = _from_environment("policy") | _without_nulls(overrides or {})
    if "model" not in given:
        _validated(Endpoint, "policy", given)  # another setting of the section may still be wrong
        return None
    if "api_key_env" not in given:
        fallback = NO_KEY if "base_url" in given else "OPENAI_API_KEY"
        given["api_key_env"] = POLICY_KEY if os.environ.get(POLICY_KEY) else fallback
    return _validated(Endpoint, "policy", given)


def _range(place: int, given: Any) -> tuple[float, float]:
    numbers = isinstance(given, list | tuple) and all(type(one) in (int, float) for one in given)
    if place == 0 or not numbers or len(given) != 2 or given[0] > given[1]:
        raise BadSettings(
            f"judge.jury[{place}].asked_between={given}: give [low, high], two rewards of the task, to a member that "
            "is not the first."
        )
    return float(given[0]), float(given[1])


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
    canary = settings.canary
    judges = (*settings.jury, settings.judge) if settings.jury else (settings.judge, *settings.by_task.values())
    if canary and (canary.model, canary.url) in [(judge.model, judge.url) for judge in judges]:
        raise BadSettings(
            f"{CANARY}.model={canary.model} is a judge of this run. A canary must be a model that the policy is not "
            "trained on: name another model or address."
        )
    for member in settings.jury:
        if settings.jury.count(member) > 1:
            raise BadSettings(
                f"judge.jury has {member.name} twice, with the same settings: both would give the same verdict. Name "
                "other models, or give one of them another seed or temperature."
            )
    # The price of a task's own judge matters only if the task is played, so the plan of a run checks it.
    require_prices(settings, [*settings.roles.values(), *settings.jury])


def require_prices(settings: GatewaySettings, asked: Sequence[Endpoint]) -> None:
    """Refuse a budget if the price of an endpoint is unknown."""
    unpriced = [endpoint.name for endpoint in dict.fromkeys(asked) if not endpoint.priced]
    if settings.policy.budget_usd is not None and unpriced:
        raise BadSettings(
            f"judge.budget_usd={settings.policy.budget_usd} needs the price of every model, in US dollars per million "
            "tokens. Set judge.price_in and judge.price_out (also partner.price_in and so on for a role with its own "
            f"model; 0 for your own server). Without a price: {', '.join(unpriced)}."
        )


def _from_environment(role: str) -> dict[str, Any]:
    values = {key: os.environ.get(variable) for key, variable in VARIABLES[role].items()}
    return {key: value for key, value in values.items() if value}


def _without_nulls(section: Mapping[str, Any]) -> dict[str, Any]:
    given = {key: value for key, value in section.items() if value is not None}
    return {key: _without_nulls(value) if isinstance(value, Mapping) else value for key, value in given.items()}


def _validated(model: type[Any], section: str, values: Mapping[str, Any]) -> Any:
    for name, value in values.items():
        if value == "None":
            raise BadSettings(f"{section}.{name}=None: write null, or leave it out.")
        if isinstance(value, bool) and (field := model.model_fields.get(name)) and field.annotation is not bool:
            raise BadSettings(f"{section}.{name}={str(value).lower()}: it is not a setting that is true or false.")
    try:
        return model.model_validate(values)
    except ValidationError as error:
        place, message, value, kind = problem = first_problem(error)
        key = f"{section}.{problem.field}"
        known = [*Endpoint.model_fields, *(JudgePolicy.model_fields if section == "judge" else ())]
        if place[-1:] in (("api_key_env",), ("base_url",)):  # hide the value: it may contain a key
            raise BadSettings(f"{key}: {message}.") from None
        if kind == "extra_forbidden":  # hide the value: it may be a key, as in judge.api_key=...
            raise BadSettings(f"{key}: {message}. Known keys of {section}: {', '.join(known)}.") from None
        shown = repr(value) if isinstance(value, str | int | float) else "..."  # may contain a key
        raise BadSettings(f"{key}={shown}: {message}.") from None
