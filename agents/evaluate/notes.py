"""What belongs to a run's table beside its numbers: who judged which set, and where a comparison would mislead."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from agents import tasks
from agents.evaluate.results import Results
from agents.evaluate.run_folder import EvaluationRun
from agents.evaluate.suites import SUITES
from agents.evaluate.table import columns_of, ordered
from agents.judge.endpoint import DEFAULT_MODEL
from agents.judge.roles import Role, paper_judge

_PLAYED_BY_MODELS: tuple[Role, ...] = ("environment", "partner")  # the paper's environment model is gpt-5-nano


def models_asked(settings: Mapping[str, Any], role: Role, task: str) -> tuple[str, ...]:
    """The models that have this role for a task in a run; several are a jury, none: the task asks nobody.

    Args:
        settings: of the run (`EvaluationSettings.identity`, settings.json).
    """
    if not tasks.load(task).calls_per_episode.get(role):
        return ()
    if role != "judge":
        return (settings["roles"].get(role, settings["roles"]["judge"])["model"],)
    if own := settings["by_task"].get(task):
        return (own["model"],)
    return tuple(member["model"] for member in settings["jury"]) or (settings["roles"]["judge"]["model"],)


def header(run: EvaluationRun, results: Results) -> list[str]:
    """Who judged which set, and who played the other side; what stands above the table."""
    found = []
    judges, others = _by_model(run, results, ("judge",)), _by_model(run, results, _PLAYED_BY_MODELS)
    by_rule = [name for name in _tasks(results) if not any(name in names for names in judges.values())]
    if judges or by_rule:
        found.append(f"Judges: {_listed({**judges, **({'by rule alone': by_rule} if by_rule else {})})}.")
    if others:
        found.append(f"Partners and environments: {_listed(others)}.")
    return found


def _by_model(run: EvaluationRun, results: Results, roles: Sequence[Role]) -> dict[str, list[str]]:
    """Model -> the sets for which it had one of these roles; a jury's models with "+" between them."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, task in _tasks(results).items():
        for model in dict.fromkeys(" + ".join(models_asked(run.settings, role, task)) for role in roles):
            if model:
                found[model].append(name)
    return dict(found)


def _listed(by_model: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{model} ({', '.join(names)})" for model, names in by_model.items())


def warnings(run: EvaluationRun, results: Results) -> list[str]:
    """What a reader has to know before putting these numbers beside others."""
    found = []
    if run.missing:
        asked = len(run.missing) + len(results.sets)
        found.append(
            f"In no average, as there is no file: {', '.join(run.missing)} ({len(run.missing)} of the {asked} "
            "sets that were asked for)."
        )
    if run.suite and run.limit != SUITES[run.suite].rows:
        rows, suite_rows = (f"{rows:,} rows" if rows else "all rows" for rows in (run.limit, SUITES[run.suite].rows))
        found.append(f"The suite {run.suite} takes {suite_rows} of each set; this run takes {rows}.")
    columns = columns_of(run.suite)
    others = [
        f"{name}: {role} {' + '.join(models)}, not {wanted}"
        for name, task in _tasks(results).items()
        if any(column.source == "paper" and column.of(name) is not None for column in columns)
        for role, models, wanted in _deviations(run.settings, task)
    ]
    if others:
        found.append(f"Warning: the paper's numbers were scored by other models. {'; '.join(others)}.")
    judged = [name for name, task in _tasks(results).items() if models_asked(run.settings, "judge", task)]
    if any(column.of(name) is not None for column in columns if column.source == "card" for name in judged):
        found.append("The model card does not say who judged its numbers.")
    return found


def _tasks(results: Results) -> dict[str, str]:
    """Set -> task, of the sets whose task is known, in the table's order."""
    return {name: results.sets[name].task for name in ordered(list(results.sets)) if results.sets[name].task}


def _deviations(settings: Mapping[str, Any], task: str) -> list[tuple[str, Sequence[str], str]]:
    """Roles of a task that another model had than in the paper."""
    wanted: dict[Role, str] = {"judge": paper_judge(task), **dict.fromkeys(_PLAYED_BY_MODELS, DEFAULT_MODEL)}
    asked = ((role, models_asked(settings, role, task), model) for role, model in wanted.items())
    return [(role, models, model) for role, models, model in asked if models and models != (model,)]
