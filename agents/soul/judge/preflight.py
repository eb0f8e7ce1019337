"""Checks before a run: one small request to every endpoint that the run needs, and the expected load of each.

Training (`ditto.judging.plan`) and evaluation (`soul.evaluate.run.preflight`) use both. The numbers are for planning:
the length of answers is an assumption, and a warm cache makes a run cheaper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from soul.errors import JudgeFailure, SoulError
from soul.judge.call.endpoint import Endpoint, StructuredMode
from soul.judge.gateway import Gateway
from soul.judge.judge import Judge
from soul.judge.roles import BY_TASK, GatewaySettings

_REMEDY = {
    "auth": "The key in {key} is not accepted or not set: export the right one.",
    "not_found": "Check {role}.model (JUDGE_MODEL_NAME) and {role}.base_url (OPENAI_BASE_URL).",
    "connection": "Is the server up, and is OPENAI_BASE_URL ({role}.base_url) right?",
    "timeout": "It did not answer in time: is the server up, is the address right?",
}
_KEY_WANTED = "It wants a key: export one, and name its variable with {role}.api_key_env."
_OTHER_REMEDY = "Look at its answer above; {role}.* in the config sets model, address and limits."
# Without a setting the judge of a task is the paper's, and the user's own endpoint may not know that model.
_PAPER_JUDGE = " {role}.model=... names another judge for this task, JUDGE_MODEL_NAME=... one for all tasks."


class BadJudge(SoulError):
    """A role's endpoint cannot be used."""


class Checked(NamedTuple):
    """The result of one small request to a role.

    Attributes:
        latency_s: seconds of the request.
        mode: the form of structured answers that the endpoint accepts; None where that is not settled.
    """

    latency_s: float | None
    mode: StructuredMode | None


@dataclass(frozen=True)
class Load:
    """The calls that one role, or the judge of one task, gets in a training step or in an evaluation.

    Attributes:
        section: the role, or `judge.by_task.<task>`.
        latency_s: seconds of one call; None where unknown.
    """

    section: str
    endpoint: Endpoint
    calls: float
    tokens_in: float
    tokens_out: float
    latency_s: float | None = None

    @property
    def cost_usd(self) -> float | None:
        """US dollars; None where the price is not known."""
        if not self.endpoint.priced:
            return None
        return self.endpoint.cost(int(self.tokens_in), 0, int(self.tokens_out))

    def with_calls(self, calls: float) -> Load:
        """The same role with another number of calls of the same length."""
        share = calls / self.calls
        return replace(self, calls=calls, tokens_in=self.tokens_in * share, tokens_out=self.tokens_out * share)

    def bounds(self) -> dict[str, float]:
        """Limit -> the shortest time in seconds in which it allows these calls."""
        endpoint, tokens = self.endpoint, self.tokens_in + self.tokens_out
        seconds: dict[str, float] = {}
        if (rate := endpoint.tokens_per_minute) is not None:
            seconds[f"{self.section}.tokens_per_minute={rate:,.0f}"] = 60 * tokens / rate
        if (rate := endpoint.requests_per_minute) is not None:
            seconds[f"{self.section}.requests_per_minute={rate:,.0f}"] = 60 * self.calls / rate
        if self.latency_s is not None:
            name = f"{self.latency_s:.2f} s a call at {self.section}.concurrency={endpoint.concurrency}"
            seconds[name] = self.calls * self.latency_s / endpoint.concurrency
        return seconds


async def check(settings: GatewaySettings, sections: Sequence[str]) -> Mapping[str, Checked]:
    """Send one small request to each of these sections (roles, `judge.by_task.<task>`), and to every member of a jury.

    Raises:
        BadJudge: an endpoint cannot be used, with what to do about it.
        MissingKey: the environment variable of a key is not set.
    """
    gateway = Gateway.connect(_brisk(settings))
    known: dict[str, Judge] = {str(role): judge for role, judge in gateway.roles.items()}
    known |= {f"{BY_TASK}{task}": judge for task, judge in gateway.by_task.items()}
    results: dict[str, Checked] = {}
    try:
        for section in sections:
            latency = None
            for judge in gateway.jury if section == "judge" else (known[section],):
                judge.endpoint.client()  # a missing key is the user's mistake, with a message of its own
                await _check_one(section, judge)
                latency = judge.usage.percentile(0.5)
            line = known[section].line
            results[section] = Checked(latency, line.mode if line.settled else None)
    finally:
        await gateway.close()
    return results


def _brisk(settings: GatewaySettings) -> GatewaySettings:
    """Allow two attempts of ten seconds: people would switch off a preflight that waits for minutes."""

    def brisk(endpoint: Endpoint) -> Endpoint:
        patience = {"timeout_s": min(10.0, endpoint.timeout_s), "deadline_s": min(30.0, endpoint.deadline_s)}
        return endpoint.model_copy(update={"max_attempts": 2, **patience})

    roles = {role: brisk(endpoint) for role, endpoint in settings.roles.items()}
    by_task = {task: brisk(endpoint) for task, endpoint in settings.by_task.items()}
    return settings.model_copy(update={"roles": roles, "jury": tuple(map(brisk, settings.jury)), "by_task": by_task})


async def _check_one(section: str, judge: Judge) -> None:
    try:
        await judge.check()
    except JudgeFailure as error:
        key = judge.endpoint.api_key_env
        remedy = _KEY_WANTED if error.cause == "auth" and key is None else _REMEDY.get(error.cause, _OTHER_REMEDY)
        remedy += _PAPER_JUDGE if section.startswith(BY_TASK) else ""
        remedy = remedy.format(role=section, key=key)
        raise BadJudge(f"The {section} cannot be used, {error.cause}: {error.detail}. {remedy}") from error
