"""Where the scores of two runs are not comparable: other judges, other partners, other judge prompts, other options.

Only what a set's samples were in touch with counts: a task that scores by rule asks no judge, so two runs of it are
comparable whoever their judges were. The same model at another address is taken for the same model, and said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from soul.evaluate.run.run_folder import EvaluationRun, endpoints_asked
from soul.record import SessionRecord


class Deviation(NamedTuple):
    """One way in which the runs differ for a set.

    Attributes:
        matters: whether their scores are not comparable for it.
    """

    text: str
    matters: bool


def deviations(
    base: EvaluationRun, other: EvaluationRun, of_base: Sequence[SessionRecord], of_other: Sequence[SessionRecord]
) -> list[Deviation]:
    """How the runs differ for one set, from its samples in each: all but the model under test."""
    found: list[Deviation] = []
    samples = [*of_base, *of_other]
    task = samples[0].task
    roles = sorted({role for sample in samples for role in sample.usage} - {"policy", "feedback"})
    for role in roles:
        found += _endpoints(role, _asked(base.settings, role, task), _asked(other.settings, role, task))
    if "judge" in roles:
        prompts = _prompts(of_base), _prompts(of_other)
        if prompts[0] != prompts[1]:
            differing = (", ".join(sorted(one - two)) or "none" for one, two in (prompts, prompts[::-1]))
            found.append(Deviation(f"judge prompts: {' and '.join(differing)}", True))
    options = [(run.settings.get("tasks") or {}).get(task) or {} for run in (base, other)]
    if options[0] != options[1]:
        found.append(Deviation(f"task options: {options[0]} and {options[1]}", True))
    return found


def _asked(settings: Mapping[str, Any], role: str, task: str) -> list[Mapping[str, Any]]:
    """The endpoints that have this role for a task; a jury's with the way in which their rewards become one."""
    asked = endpoints_asked(settings, role, task)
    is_jury = role == "judge" and settings["jury"] and task not in settings["by_task"]
    return [{**member, "jury reward": settings["jury_reward"]} for member in asked] if is_jury else asked


def _endpoints(role: str, base: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> list[Deviation]:
    if len(base) != len(other) or _models(base) != _models(other):
        return [Deviation(f"{role}: {_models(base)} and {_models(other)}", True)]
    found = []
    for one, two in zip(base, other, strict=True):
        keys = [key for key in {**one, **two} if one.get(key) != two.get(key)]
        settings = [f"{key} {one.get(key)} and {two.get(key)}" for key in keys if key != "base_url"]
        if settings:
            found.append(Deviation(f"{role} {one['model']}: {', '.join(settings)}", True))
        elif keys:
            text = f"{role} {one['model']} stood at two addresses, {one['base_url']} and {two['base_url']}"
            found.append(Deviation(f"{text}; it is taken for the same model", False))
    return found


def _models(endpoints: Iterable[Mapping[str, Any]]) -> str:
    return " + ".join(str(endpoint["model"]) for endpoint in endpoints)


def _prompts(samples: Iterable[SessionRecord]) -> frozenset[str]:
    return frozenset(prompt for sample in samples for prompt in sample.prompts)
