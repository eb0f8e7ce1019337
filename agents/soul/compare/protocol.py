"""Find out why two runs' scores of a set are not comparable: other judges, partners, prompts, task options or versions.

Only the models that a set's samples used count. A task that scores by rule uses no judge, so two runs of it are
comparable whatever their judges are. The same model at another address counts as the same model, with a note.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from soul.evaluate.run.run_folder import EvaluationRun, endpoints_asked
from soul.record import SessionRecord


class Deviation(NamedTuple):
    """One way in which the runs differ for a set.

    Attributes:
        matters: whether it makes the scores incomparable.
    """

    text: str
    matters: bool


def deviations(
    base: EvaluationRun, other: EvaluationRun, left: Sequence[SessionRecord], right: Sequence[SessionRecord]
) -> list[Deviation]:
    """All differences between the runs for one set besides the model under test; `left` and `right` are its samples."""
    differences: list[Deviation] = []
    samples = [*left, *right]
    task = samples[0].task
    roles = sorted({role for sample in samples for role in sample.usage} - {"policy", "feedback"})
    for role in roles:
        differences += _endpoints(
            role, endpoints_asked(base.settings, role, task), endpoints_asked(other.settings, role, task)
        )
    if "judge" in roles:
        prompts = _prompts(left), _prompts(right)
        if prompts[0] != prompts[1]:
            differing = (", ".join(sorted(one - two)) or "none" for one, two in (prompts, prompts[::-1]))
            differences.append(Deviation(f"judge prompts: {' and '.join(differing)}", True))
    options = [(run.settings.get("tasks") or {}).get(task) or {} for run in (base, other)]
    if options[0] != options[1]:
        differences.append(Deviation(f"task options: {options[0]} and {options[1]}", True))
    if not any(one.matters for one in differences) and _other_version(left, right):
        differences.append(Deviation(f"the prompt or the scoring of another version of {task}", True))
    return differences


def _other_version(left: Sequence[SessionRecord], right: Sequence[SessionRecord]) -> bool:
    """Tell whether equal rows have different stamps (`stamp_of`): the task's prompts or its version differ.

    A record with other fields has another stamp in any case, so it tells nothing.
    """
    stamps = {sample.number: (sample.record, sample.stamp) for sample in left}
    known = ((stamps[sample.number], sample) for sample in right if sample.number in stamps)
    return any(record == sample.record and stamp != sample.stamp for (record, stamp), sample in known)


def _endpoints(role: str, base: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> list[Deviation]:
    if len(base) != len(other) or _models(base) != _models(other):
        return [Deviation(f"{role}: {_models(base)} and {_models(other)}", True)]
    differences = []
    for one, two in zip(base, other, strict=True):
        keys = [key for key in {**one, **two} if one.get(key) != two.get(key)]
        settings = [f"{key} {one.get(key)} and {two.get(key)}" for key in keys if key != "base_url"]
        if settings:
            differences.append(Deviation(f"{role} {one['model']}: {', '.join(settings)}", True))
        elif keys:
            text = f"{role} {one['model']} has two addresses, {one['base_url']} and {two['base_url']}"
            differences.append(Deviation(f"{text}; it counts as the same model", False))
    return differences


def _models(endpoints: Iterable[Mapping[str, Any]]) -> str:
    return " + ".join(str(endpoint["model"]) for endpoint in endpoints)


def _prompts(samples: Iterable[SessionRecord]) -> frozenset[str]:
    return frozenset(prompt for sample in samples for prompt in sample.prompts)
