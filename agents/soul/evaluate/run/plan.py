"""Estimates what an evaluation will ask for each set: calls by role, tokens, price and time.

Rows and calls are counted, and prompts are measured in characters. The length of answers and the time that they take
are assumptions: they are the constants below, and the plan prints them.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from soul.evaluate.run.engine import SESSIONS_PER_SLOT
from soul.evaluate.run.settings import EvaluationSettings, SampleRequest
from soul.judge import Endpoint
from soul.judge.preflight import Load
from soul.judge.roles import BY_TASK
from soul.task import Task

CHARS_PER_TOKEN = 4
ANSWER_TOKENS = 300  # in the answer of a one-turn task
TURN_TOKENS = 80  # in one turn of a dialogue
VERDICT_TOKENS = 150  # that a judge writes in one call
SECONDS_TO_ANSWER = 1.0  # until an answer begins, where the preflight has not measured it
TOKENS_PER_SECOND = 50.0  # that a model writes
POLICY = "policy"
ASSUMED = (
    f"Assumptions: a token is {CHARS_PER_TOKEN} characters. The answer to a one-turn task has {ANSWER_TOKENS} tokens, "
    f"a turn of a dialogue {TURN_TOKENS}, a judge's verdict {VERDICT_TOKENS}. No answer comes from a cache. Models "
    f"write {TOKENS_PER_SECOND:.0f} tokens a second."
)


@dataclass(frozen=True)
class SetPlan:
    """What one set will ask.

    Attributes:
        rows, samples: how many are still to be taken.
        asked: section -> its load. Sections are "policy", the roles, and `judge.by_task.<task>`.
        cheaper: options of the task -> its loads under them.
    """

    name: str
    rows: int
    samples: int
    asked: Mapping[str, Load]
    cheaper: Mapping[str, Mapping[str, Load]]

    def models(self, role: str) -> str:
        """The models that have a role for this set, joined by " + "; "" where the set does not use the role."""
        models = [load.endpoint.model for load in self.asked.values() if _role(load.section) == role]
        return " + ".join(dict.fromkeys(models))

    def calls(self, role: str) -> float:
        return sum(load.calls for load in self.asked.values() if _role(load.section) == role)

    @property
    def seconds(self) -> float:
        """Seconds of one sample, whose calls follow each other."""
        return sum(load.calls * (load.latency_s or 0.0) for load in self.asked.values()) / self.samples


@dataclass(frozen=True)
class EvaluationPlan:
    """What an evaluation will ask.

    Attributes:
        at_once: samples under way at the same time.
        thinking_tokens: how many tokens every model is expected to think before each answer.
    """

    sets: Sequence[SetPlan]
    at_once: int
    thinking_tokens: int

    @property
    def loads(self) -> list[Load]:
        """By section and endpoint, over all sets."""
        found: dict[tuple[str, Endpoint], list[Load]] = defaultdict(list)
        for plan in self.sets:
            for load in plan.asked.values():
                found[load.section, load.endpoint].append(load)
        return [_together(section, endpoint, loads) for (section, endpoint), loads in found.items()]

    def seconds(self) -> tuple[float, str]:
        """How many seconds it takes, and what decides that: the tightest limit, or the longest sample."""
        by_endpoint: dict[Endpoint, list[Load]] = defaultdict(list)
        for load in self.loads:
            by_endpoint[load.endpoint].append(load)
        bounds: dict[str, float] = {}
        for endpoint, loads in by_endpoint.items():  # sections with one endpoint share its limits
            bounds |= _together(loads[0].section, endpoint, loads).bounds()
        bounds["the longest sample, whose calls follow each other"] = max((p.seconds for p in self.sets), default=0.0)
        work = sum(plan.samples * plan.seconds for plan in self.sets)
        bounds[f"{self.at_once} samples at a time"] = work / self.at_once
        reason, seconds = max(bounds.items(), key=lambda bound: bound[1])
        return seconds, reason


def plan(
    settings: EvaluationSettings,
    todo: Sequence[SampleRequest],
    latencies: Mapping[str, float | None],
    thinking_tokens: int = 0,
) -> EvaluationPlan:
    """Estimate what these samples will ask.

    Args:
        latencies: section -> seconds of a short request, as the preflight measured it.
        thinking_tokens: how many tokens every model is expected to think before each answer.
    """
    by_set: dict[str, list[SampleRequest]] = defaultdict(list)
    for item in todo:
        by_set[item.set].append(item)
    sets = [_set_plan(settings, name, items, latencies, thinking_tokens) for name, items in by_set.items()]
    at_once = max(1, min(len(todo), SESSIONS_PER_SLOT * settings.policy.concurrency))
    return EvaluationPlan(sets, at_once, thinking_tokens)


def sections_asked(settings: EvaluationSettings, task: Task[Any]) -> dict[str, float]:
    """Calls of one episode of a task by section, without the policy's; of a rescored run only the judge's."""
    own = task.name in settings.gateway.by_task
    return {
        f"{BY_TASK}{task.name}" if role == "judge" and own else role: calls
        for role, calls in task.calls_per_episode.items()
        if calls and (settings.source is None or role == "judge")
    }


def cost(loads: Sequence[Load]) -> float | None:
    """US dollars; None where a price is not known."""
    costs = [load.cost_usd for load in loads]
    return None if None in costs else sum(cost for cost in costs if cost is not None)


def _set_plan(
    settings: EvaluationSettings,
    name: str,
    items: Sequence[SampleRequest],
    latencies: Mapping[str, float | None],
    thinking_tokens: int,
) -> SetPlan:
    task = items[0].row.task
    rows = {item.row.number: item.row for item in items}
    prompts = [sum(len(message["content"]) for message in task.prompt(row.row)) for row in rows.values()]
    estimate = _Estimate(task, statistics.fmean(prompts) / CHARS_PER_TOKEN, len(items), thinking_tokens)

    def loads(calls: Mapping[str, float]) -> dict[str, Load]:
        found: dict[str, Load] = {}
        if settings.source is None:
            found[POLICY] = estimate.policy(settings.policy)
        for section, count in calls.items():
            endpoints = settings.gateway.asked(section)
            names = [section] if len(endpoints) == 1 else [f"jury {i}" for i in range(1, len(endpoints) + 1)]
            found |= {name: estimate.role(name, of, count) for name, of in zip(names, endpoints, strict=True)}
        return {section: _timed(load, latencies) for section, load in found.items()}

    asked = sections_asked(settings, task)
    cheaper: dict[str, dict[str, Load]] = {}
    for option, fewer in task.cheaper.items():
        calls = {str(role): count for role, count in fewer.items()}
        cheaper[option] = loads({section: calls.get(_role(section), 0.0) for section in asked})
    return SetPlan(name, len(rows), len(items), loads(asked), cheaper)


@dataclass(frozen=True)
class _Estimate:
    """The tokens of one set.

    Attributes:
        prompt: tokens of the first prompt, on average.
    """

    task: Task[Any]
    prompt: float
    samples: int
    thinking: int

    @property
    def _turns(self) -> float:
        return self.task.policy_turns

    @property
    def _turn(self) -> int:
        return TURN_TOKENS if self._turns > 1 else ANSWER_TOKENS

    @property
    def _said(self) -> float:
        """Tokens of a finished episode. In a dialogue the other side speaks as often as the policy."""
        return self._turns * self._turn * (2 if self._turns > 1 else 1)

    def policy(self, endpoint: Endpoint) -> Load:
        # Each turn reads the prompt and all turns before it: on average half of the whole episode.
        read = self._turns * (self.prompt + (self._said - 2 * self._turn) / 2 if self._turns > 1 else self.prompt)
        return self._load(POLICY, endpoint, self._turns, read, self._turn)

    def role(self, section: str, endpoint: Endpoint, calls: float) -> Load:
        judging = _role(section) == "judge"
        instructions = statistics.fmean(map(len, self.task.prompts)) / CHARS_PER_TOKEN if self.task.prompts else 0.0
        read = calls * (self.prompt + instructions + (self._said if judging else self._said / 2))
        return self._load(section, endpoint, calls, read, VERDICT_TOKENS if judging else TURN_TOKENS)

    def _load(self, section: str, endpoint: Endpoint, calls: float, read: float, answer: int) -> Load:
        written = calls * (answer + self.thinking)
        return Load(section, endpoint, self.samples * calls, self.samples * read, self.samples * written)


def _role(section: str) -> str:
    return "judge" if section.startswith((BY_TASK, "jury ")) else section


def _timed(load: Load, latencies: Mapping[str, float | None]) -> Load:
    """The load with the seconds of a call: until the answer begins, and while it is written."""
    begins = latencies.get("judge" if load.section.startswith("jury ") else load.section) or SECONDS_TO_ANSWER
    return replace(load, latency_s=begins + load.tokens_out / max(load.calls, 1e-9) / TOKENS_PER_SECOND)


def _together(section: str, endpoint: Endpoint, loads: Sequence[Load]) -> Load:
    calls = sum(load.calls for load in loads)
    seconds = sum(load.calls * (load.latency_s or 0.0) for load in loads) / max(calls, 1e-9)
    tokens_in, tokens_out = sum(load.tokens_in for load in loads), sum(load.tokens_out for load in loads)
    return Load(section, endpoint, calls, tokens_in, tokens_out, seconds)
