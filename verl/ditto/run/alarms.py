"""Alarms of known failures: what raises each of them, and what is known of it.

`alarm/<name>` is 1 in the step that shows the failure. The numbers of a step are compared with those of the run's first
step, with the step before, or, where a single step says little, with a window of steps before the last WINDOW ones.
"""

from __future__ import annotations

import logging
import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from soul import tasks
from soul.errors import UnknownTask
from soul.task_types import Direction

logger = logging.getLogger(__name__)
Numbers = Mapping[str, float]

CERTAIN = 3.0  # standard errors
SMALLEST_ERROR = 0.02  # of a mean reward; where all answers are right, one wrong one is no fall
WINDOW = 10  # steps
SHORT = WINDOW // 2  # steps at the start of the run, and as many now
INVALID = 0.25  # share of a step's drafts that failed
LEAST_GAP = 2.0  # nats of a whole answer by which the gap between contexts must have grown, however small it was
LONGER, PAYS = 1.2, 0.5  # growth of drafts, and correlation with reward, that together raise the alarm of length
CODE = 0.5  # nats per token by which a policy may move away from the base model
DRIFT = 0.2  # share of a policy's turns by which it may come to speak as an assistant
_REWARD, _CANARY, _GAP = "ditto/reward_draft", "ditto/canary/reward_draft", "ditto/context_logprob_gap"
_DIFFERENCE, _LENGTH = "ditto/canary/difference", "ditto/response_tokens_draft"


class History(NamedTuple):
    """The numbers of a run as an alarm sees them; empty where there is no such step."""

    now: Numbers  # of this step
    first: Numbers
    before: Numbers  # of the step before
    recent: Sequence[Numbers] = ()  # of the last WINDOW steps with this one
    earlier: Sequence[Numbers] = ()  # of as many steps before them
    start: Sequence[Numbers] = ()  # of the first SHORT steps, once as many have followed

    @classmethod
    def at(cls, step: int, now: Numbers, steps: Mapping[int, Numbers]) -> History:
        """The history of a step; numbers of this step or later ones in `steps` are ignored."""
        numbers = [*(steps.get(s, {}) for s in range(max(step - 2 * WINDOW, 0) + 1, step)), now]
        before = steps.get(step - 1, {}) if step > 1 else {}
        first = steps.get(1, {}) if step > 1 else {}
        start = [steps.get(s, {}) for s in range(1, SHORT + 1)] if step >= 2 * SHORT else []
        return cls(now, first, before, numbers[-WINDOW:], numbers[:-WINDOW], start)

    def ratio(self, key: str) -> float:
        """By which factor a number changed since the first step; 1 where it is missing."""
        return self.now[key] / self.first[key] if self.now.get(key) is not None and self.first.get(key) else 1.0

    def growth(self, key: str) -> float:
        """By how much a number rose since the first step; 0 where it is missing."""
        return self.now[key] - self.first[key] if key in self.now and key in self.first else 0.0

    def fall(self) -> float:
        """By how many standard errors the drafts' reward fell in this step; 0 where they are not known."""
        error = "ditto/reward_draft_error"
        if any(key not in numbers for key in (_REWARD, error) for numbers in (self.now, self.before)):
            return 0.0
        spread = math.hypot(self.now[error], self.before[error])
        return (self.before[_REWARD] - self.now[_REWARD]) / max(spread, SMALLEST_ERROR)

    def trend(self, key: str) -> float:
        """By how many standard errors a number rose between the two windows; 0 with too few steps."""
        return _rise(key, self.earlier, self.recent)

    def since_start(self, key: str) -> float:
        """The same from the first steps of the run to the last ones: earlier than `trend`, and less certain."""
        return _rise(key, self.start, self.recent[-SHORT:])


def _rise(key: str, earlier: Sequence[Numbers], recent: Sequence[Numbers]) -> float:
    """Welch's t of a number's rise between two windows; 0 if it is known in too few of their steps."""
    later, sooner = ([n[key] for n in window if key in n] for window in (recent, earlier))
    if min(len(later), len(sooner)) < SHORT:
        return 0.0
    rise = statistics.fmean(later) - statistics.fmean(sooner)
    error = math.hypot(*(statistics.stdev(values) / math.sqrt(len(values)) for values in (later, sooner)))
    return rise / error if error else math.copysign(math.inf, rise) if rise else 0.0


@dataclass(frozen=True)
class Alarm:
    """A known failure."""

    name: str  # of the metric `alarm/<name>`
    raised: Callable[[History], bool | list[str]]  # true if the numbers show it, or the names of the metrics that do
    advice: str


def _idle(numbers: Numbers) -> bool:
    """True if no group of a step had a learning signal."""
    return 0 < numbers.get("ditto/groups", 0.0) == numbers.get("ditto/groups_idle")


def _exploits(history: History) -> bool:
    """True if the judge's reward rises and the canary's falls; or if it does not rise, and the two part."""
    falls = history.trend(_REWARD) > CERTAIN and history.trend(_CANARY) < -CERTAIN
    parts = min(map(history.since_start, (_REWARD, _DIFFERENCE))) > CERTAIN and history.since_start(_CANARY) <= 0
    return falls or parts


def _length(history: History) -> bool:
    """True if drafts are far longer or shorter than at the start; or longer, and length pays but for the canary."""
    ratio, key = history.ratio(_LENGTH), "ditto/length_reward"
    known = [numbers[key] for numbers in history.recent if key in numbers]
    pays = bool(known) and statistics.fmean(known[-SHORT:]) > PAYS  # of one step alone it is noise
    return not 0.5 <= ratio <= 1.6 or (ratio > LONGER and pays and history.since_start(_CANARY) <= 0)


def _got_worse(history: History) -> list[str]:
    """The secondary metrics that got worse while the reward of their task's drafts rose."""
    names = []
    for key in history.now:
        match = re.fullmatch(r"ditto/secondary/([^/]+)/(.+)", key)
        if match is None or (direction := _better(*match.groups())) is None:
            continue
        of_task = f"ditto/task/{match.group(1)}/reward_draft"  # only where a step has several tasks
        reward = history.trend(of_task if of_task in history.now else _REWARD)
        trend = history.trend(key)
        if reward > CERTAIN and (trend if direction == "lower" else -trend) > CERTAIN:
            names.append(f"{match.group(1)}/{match.group(2)}")
    return names


def _better(task: str, metric: str) -> Direction | None:
    try:
        return tasks.load(task).better.get(metric)
    except UnknownTask:  # traces of a task that is not installed
        return None


ALARMS: tuple[Alarm, ...] = (
    Alarm(
        "invalid",
        lambda history: history.now.get("ditto/share_invalid", 0.0) > INVALID,
        "Many drafts failed. ditto/invalid/<stage>/<cause> counts them by cause, and the traces have the details.",
    ),
    Alarm(
        "idle",
        lambda history: _idle(history.now) and _idle(history.before),
        "Two steps in a row had no learning signal. If the drafts lack the form that the task asks for (`answered` "
        "below 1), warm-start the model with SFT. If all are right or wrong, take other rows; if all are alike, raise "
        "rollout.temperature or rollout.n; if they are cut off, raise data.max_response_length.",
    ),
    Alarm(
        "length",
        _length,
        "Drafts have become longer or shorter than at the start. Compare the rewards at equal length; the higher "
        "ditto/length_reward, the more the judge pays for length.",
    ),
    Alarm(
        "diversity",
        lambda history: history.ratio("ditto/distinct_2") < 0.5,
        "The drafts of a prompt have become alike. Lower algorithm.sdpo.weight, or add actor.entropy_coeff.",
    ),
    Alarm(
        "entropy",
        lambda history: history.ratio("actor/entropy") < 0.2,
        "The policy's entropy is below a fifth of its start. Raise clip_ratio_high, or lower the learning rate.",
    ),
    Alarm(
        "fall",
        lambda history: history.fall() > CERTAIN,
        "The reward of drafts fell further in one step than chance explains. See algorithm.std_floor.",
    ),
    Alarm(
        "context_gap",
        lambda history: history.growth(_GAP) > max(abs(history.first.get(_GAP, 0.0)), LEAST_GAP),
        "Refined answers have become much less probable without the feedback, so improbable tokens are trained.",
    ),
    Alarm(
        "copying",
        lambda history: history.now.get("ditto/share_copied", 0.0) > 0.3,
        "Refined answers repeat the critic's words. Ask it for advice instead, or lower refine.max_feedback_chars.",
    ),
    Alarm(
        "secondary",
        _got_worse,
        "The reward rises while metrics that it does not weigh get worse. Weigh them, or train with feedback.",
    ),
    Alarm(
        "canary",
        _exploits,
        "The judge's reward rises and the canary's does not: the policy exploits its judge. Improve the judge, or use "
        "a jury.",
    ),
    Alarm(
        "judge_drift",
        lambda history: history.now.get("ditto/drift/changed", 0.0) > 0,
        "The judge grades the same replies differently than at the start, and judge_drift.json has both verdicts. Find "
        "out what has changed at its endpoint; rewards of then and now cannot be compared.",
    ),
)


_POLICY = re.compile(r"policy/(\w+)/(.+)")


def of_policy(policy: str, numbers: Numbers) -> dict[str, float]:
    """The numbers of one of several policies, by the names that they have in a run with one."""
    prefix = f"policy/{policy}/"
    return {name.removeprefix(prefix): value for name, value in numbers.items() if name.startswith(prefix)}


def _policies(numbers: Numbers) -> list[str]:
    return sorted({match[1] for name in numbers if (match := _POLICY.fullmatch(name))})


def _collude(history: History) -> bool:
    """True if the judge's reward of every policy rises, and the second judge's falls."""
    keys = [f"policy/{policy}/{_REWARD}" for policy in _policies(history.now)]
    return all(history.trend(key) > CERTAIN for key in keys) and history.trend(_CANARY) < -CERTAIN


def _above(key: str, bound: float) -> Callable[[History], list[str]]:
    """The policies whose number has grown beyond a bound since the first step in which it is known."""

    def raised(history: History) -> list[str]:
        keys = {policy: f"policy/{policy}/{key}" for policy in _policies(history.now)}
        return [policy for policy, of in keys.items() if history.growth(of) > bound]

    return raised


SELF_PLAY: tuple[Alarm, ...] = (
    Alarm(
        "collusion",
        _collude,
        "The rewards of all policies rise while the second judge's falls: they please the judge together. Improve the "
        "judge, or let them meet a frozen partner (self_play.turn_steps, `objective: none`).",
    ),
    Alarm(
        "private_code",
        _above("ditto/kl_start", CODE),
        "What a policy writes has become improbable for the base model: they may have a language of their own. Read "
        "their sessions, and raise actor.kl_loss_coef.",
    ),
    Alarm(
        "role_drift",
        _above("share_assistant_turns", DRIFT),
        "A policy speaks more and more like an assistant. Read its sessions; penalise it in the task's verdict.",
    ),
)


def raise_alarms(step: int, objective: str, now: Numbers, steps: Mapping[int, Numbers]) -> dict[str, float]:
    """`alarm/<name>` for every alarm; a warning for each that this step raises and the one before did not.

    Args:
        now: all metrics of this step.
        steps: those of the earlier steps, and of this one if it is already recorded: a step that validates is recorded
            twice and warns once.
    """
    numbers: dict[str, float] = {}
    history = History.at(step, now, steps)
    for alarm in (*ALARMS, *(SELF_PLAY if _policies(now) else ())):
        name, raised = f"alarm/{alarm.name}", alarm.raised(history)
        numbers[name] = float(bool(raised))
        if raised and not history.before.get(name) and not steps.get(step, {}).get(name):
            which = f" ({', '.join(raised)})" if isinstance(raised, list) else ""
            text = f"{alarm.advice} (docs/metrics.md, Alarms)"
            logger.warning("Step %d, objective %s, alarm %s%s: %s", step, objective, alarm.name, which, text)
    return numbers
