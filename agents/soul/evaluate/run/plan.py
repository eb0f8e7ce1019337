"""Estimate the calls by role, the tokens and the price of an evaluation, set by set.

Rows and calls are counted, and prompts are measured in characters. Lengths of answers are assumptions: the constants
below, which the plan prints. The time depends on speeds that only the run measures (schedule.py).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from soul.evaluate.run.settings import EvaluationSettings, SampleRequest
from soul.judge import Endpoint
from soul.judge.audit import canaries
from soul.judge.preflight import Load
from soul.judge.roles import BY_TASK
from soul.task import Task

CHARS_PER_TOKEN = 4
ANSWER_TOKENS = 300  # of an answer in a one-turn task
TURN_TOKENS = 80  # of one turn of a dialogue
VERDICT_TOKENS = 150  # of a judge's answer to one call
POLICY, JUDGE_TEST = "policy", "judge test"
_COUNTED = ("calls", "tokens_in", "tokens_out")
ASSUMED = (
    f"Assumptions: a token is {CHARS_PER_TOKEN} characters. The answer to a one-turn task has {ANSWER_TOKENS} tokens, "
    f"a turn of a dialogue {TURN_TOKENS}, a judge's verdict {VERDICT_TOKENS}. No answer comes from a cache."
)


@dataclass(frozen=True)
class SetPlan:
    """The expected calls of one set.

    Attributes:
        rows, samples: how many are still to run.
        asked: section -> its load. Sections are "policy", the roles, and `judge.by_task.<task>`.
        cheaper: option of the task that saves calls -> the loads with that option.
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


@dataclass(frozen=True)
class EvaluationPlan:
    """The expected calls of an evaluation.

    Attributes:
        tests: the loads of the judges that are tested before the first sample (judge_check.py).
        thinking_tokens: expected tokens of thought before each answer, for every model.
    """

    sets: Sequence[SetPlan]
    tests: Sequence[Load]
    thinking_tokens: int

    @property
    def loads(self) -> list[Load]:
        """The loads of all sets and of the tests, summed by section and endpoint."""
        loads = [*(load for plan in self.sets for load in plan.asked.values()), *self.tests]
        return _summed(loads, lambda load: (load.section, load.endpoint))

    def least_seconds(self) -> tuple[float, str] | None:
        """The shortest time that the endpoints' rate limits allow, and the tightest limit; None if there are none."""
        bounds: dict[str, float] = {}
        for load in _summed(self.loads, lambda load: load.endpoint):  # sections with the same endpoint share its limits
            bounds |= load.bounds()
        return max(((seconds, limit) for limit, seconds in bounds.items()), default=None)


def plan(
    settings: EvaluationSettings,
    todo: Sequence[SampleRequest],
    thinking_tokens: int = 0,
    tested: Sequence[Endpoint] = (),
) -> EvaluationPlan:
    """Estimate the calls of these samples.

    Args:
        thinking_tokens: expected tokens of thought before each answer, for every model.
        tested: the judges that are tested before the first sample.
    """
    by_set: dict[str, list[SampleRequest]] = defaultdict(list)
    for request in todo:
        by_set[request.set].append(request)
    sets = [_set_plan(settings, name, requests, thinking_tokens) for name, requests in by_set.items()]
    return EvaluationPlan(sets, [_judge_test(endpoint, thinking_tokens) for endpoint in tested], thinking_tokens)


def sections_asked(settings: EvaluationSettings, task: Task[Any]) -> dict[str, float]:
    """Section -> calls of one episode of a task, without the policy's; of a rescored run only the judge's."""
    return {
        settings.gateway.section(role, task.name): calls
        for role, calls in task.calls_per_episode.items()
        if calls and (settings.source is None or role == "judge")
    }


def cost(loads: Sequence[Load]) -> float | None:
    """US dollars; None if a price is unknown."""
    costs = [load.cost_usd for load in loads]
    return None if None in costs else sum(cost for cost in costs if cost is not None)


def _set_plan(
    settings: EvaluationSettings,
    name: str,
    requests: Sequence[SampleRequest],
    thinking_tokens: int,
) -> SetPlan:
    task = requests[0].row.task
    rows = {request.row.number: request.row for request in requests}
    prompts = [sum(len(message["content"]) for message in task.prompt(row.row)) for row in rows.values()]
    estimate = _Estimate(task, statistics.fmean(prompts) / CHARS_PER_TOKEN, len(requests), thinking_tokens)

    def loads(calls: Mapping[str, float]) -> dict[str, Load]:
        by_section: dict[str, Load] = {}
        if settings.source is None:
            by_section[POLICY] = estimate.policy(settings.policy)
        for section, count in calls.items():
            endpoints = settings.gateway.asked(section)
            names = [section] if len(endpoints) == 1 else [f"jury {i}" for i in range(1, len(endpoints) + 1)]
            by_section |= {name: estimate.role(name, one, count) for name, one in zip(names, endpoints, strict=True)}
        return by_section

    asked = sections_asked(settings, task)
    cheaper: dict[str, dict[str, Load]] = {}
    for option, fewer in task.cheaper.items():
        calls = {str(role): count for role, count in fewer.items()}
        cheaper[option] = loads({section: calls.get(_role(section), 0.0) for section in asked})
    return SetPlan(name, len(rows), len(requests), loads(asked), cheaper)


@dataclass(frozen=True)
class _Estimate:
    """Estimates the tokens of one set.

    Attributes:
        prompt: mean tokens of the first prompt.
    """

    task: Task[Any]
    prompt: float
    samples: int
    thinking: int

    @property
    def _turns(self) -> float:
        return self.task.policy_turns

    @property
    def _turn_tokens(self) -> int:
        return TURN_TOKENS if self._turns > 1 else ANSWER_TOKENS

    @property
    def _episode_tokens(self) -> float:
        """Tokens of a finished episode. In a dialogue the other side speaks as often as the policy."""
        return self._turns * self._turn_tokens * (2 if self._turns > 1 else 1)

    def policy(self, endpoint: Endpoint) -> Load:
        # Each turn reads the prompt and all turns before it: on average, half of the episode.
        read = self._turns * (self.prompt + (self._episode_tokens / 2 - self._turn_tokens if self._turns > 1 else 0.0))
        return self._load(POLICY, endpoint, self._turns, read, self._turn_tokens)

    def role(self, section: str, endpoint: Endpoint, calls: float) -> Load:
        judging = _role(section) == "judge"
        instructions = statistics.fmean(map(len, self.task.prompts)) / CHARS_PER_TOKEN if self.task.prompts else 0.0
        read = calls * (self.prompt + instructions + self._episode_tokens / (1 if judging else 2))
        return self._load(section, endpoint, calls, read, VERDICT_TOKENS if judging else TURN_TOKENS)

    def _load(self, section: str, endpoint: Endpoint, calls: float, read: float, answer: int) -> Load:
        written = calls * (answer + self.thinking)
        return Load(section, endpoint, self.samples * calls, self.samples * read, self.samples * written)


def _role(section: str) -> str:
    return "judge" if section.startswith((BY_TASK, "jury ")) else section


def _judge_test(endpoint: Endpoint, thinking_tokens: int) -> Load:
    sent = canaries.replies()
    texts = [f"{canaries.instructions(one.scenario)}{one.scenario.situation}{one.reply}" for one in sent]
    read, written = sum(map(len, texts)) / CHARS_PER_TOKEN, len(sent) * (VERDICT_TOKENS + thinking_tokens)
    return Load(JUDGE_TEST, endpoint, len(sent), read, written)


def _summed(loads: Sequence[Load], key: Callable[[Load], Hashable]) -> list[Load]:
    """One load for all with the same key, under the first one's section."""
    groups: dict[Hashable, list[Load]] = defaultdict(list)
    for load in loads:
        groups[key(load)].append(load)
    return [
        Load(group[0].section, group[0].endpoint, *(sum(getattr(load, name) for load in group) for name in _COUNTED))
        for group in groups.values()
    ]
