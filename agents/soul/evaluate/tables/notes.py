"""The text around a run's table: which model judged which set, and what to know before you compare the numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from soul import tasks
from soul.evaluate.numbers.results import Results
from soul.evaluate.run.run_folder import EvaluationRun, endpoints_asked
from soul.evaluate.tables.run_table import columns_of, ordered
from soul.judge.call.endpoint import DEFAULT_MODEL
from soul.judge.ledger import money
from soul.judge.roles import Role, paper_judge
from soul.suites import suite

_PLAYED_BY_MODELS: tuple[Role, ...] = ("environment", "partner")  # the paper's environment model is gpt-5-nano


def models_asked(settings: Mapping[str, Any], role: Role, task: str) -> tuple[str, ...]:
    """The models with this role for a task of a run: several are a jury; none: the task does not use the role.

    Args:
        settings: `EvaluationRun.settings`.
    """
    if not tasks.load(task).calls_per_episode.get(role):
        return ()
    return tuple(endpoint["model"] for endpoint in endpoints_asked(settings, role, task))


def models_by_role(run: EvaluationRun, results: Results) -> dict[str, str]:
    """The models that judged each set and those that played the other side: "Judges" -> "m (sotopia); n (coser)"."""
    judges, others = _by_model(run, results, ("judge",)), _by_model(run, results, _PLAYED_BY_MODELS)
    by_rule = [name for name in _tasks(results) if not any(name in names for names in judges.values())]
    roles = {"Judges": {**judges, "by rule alone": by_rule}, "Partners and environments": others}
    texts = {role: _with_sets(by_model) for role, by_model in roles.items()}
    return {role: text for role, text in texts.items() if text}


def header(run: EvaluationRun, results: Results) -> list[str]:
    """The lines above the table: `models_by_role`."""
    return [f"{role}: {models}." for role, models in models_by_role(run, results).items()]


def _by_model(run: EvaluationRun, results: Results, roles: Sequence[Role]) -> dict[str, list[str]]:
    """Model -> the sets for which it had one of these roles; a jury's models are joined by "+"."""
    sets_of: defaultdict[str, list[str]] = defaultdict(list)
    for name, task in _tasks(results).items():
        for model in dict.fromkeys(" + ".join(models_asked(run.settings, role, task)) for role in roles):
            if model:
                sets_of[model].append(name)
    return dict(sets_of)


def _with_sets(by_model: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{model} ({', '.join(names)})" for model, names in by_model.items() if names)


def warnings(run: EvaluationRun, results: Results) -> list[str]:
    """The lines below the table: what to know before you compare these numbers with others."""
    lines = []
    if run.missing:
        asked = len(run.missing) + len(results.sets)
        lines.append(
            f"Not evaluated, and in no average, because the file is missing: {', '.join(run.missing)} "
            f"({len(run.missing)} of the {asked} requested sets)."
        )
    if run.suite and run.limit != suite(run.suite).rows:
        rows, suite_rows = (f"{rows:,} rows" if rows else "all rows" for rows in (run.limit, suite(run.suite).rows))
        lines.append(f"The suite {run.suite} takes {suite_rows} of each set; this run takes {rows}.")
    shorter = [
        f"{name} ({count // run.n:,})" for name, count in run.wanted.items() if count // run.n < (run.limit or 0)
    ]
    if run.suite and shorter:
        lines.append(f"These sets have fewer than the requested {run.limit:,} rows: {', '.join(shorter)}.")
    columns = columns_of(run.suite)
    others = [
        f"{name}: {role} {' + '.join(models)}, not {wanted}"
        for name, task in _tasks(results).items()
        if results.sets[name].as_published
        and any(column.source == "paper" and column.score(name) is not None for column in columns)
        for role, models, wanted in _deviations(run.settings, task)
    ]
    if others:
        lines.append(f"Warning: the paper's numbers were scored by other models. {'; '.join(others)}.")
    judged = [
        name
        for name, task in _tasks(results).items()
        if models_asked(run.settings, "judge", task) and results.sets[name].as_published
    ]
    if any(column.score(name) is not None for column in columns if column.source == "card" for name in judged):
        lines.append("The model card does not say who judged its numbers.")
    if (tests := run.judge_checks.usage).calls:
        lines.append(f"The test of its judges took {tests.calls:,} calls, which no set counts: {money(tests)}.")
    return lines


def _tasks(results: Results) -> dict[str, str]:
    """Set -> task, for the sets whose task is known, in the order of the table."""
    return {name: results.sets[name].task for name in ordered(list(results.sets)) if results.sets[name].task}


def _deviations(settings: Mapping[str, Any], task: str) -> list[tuple[str, Sequence[str], str]]:
    """The roles of a task that another model than the paper's has: role, models, the paper's model."""
    wanted: dict[Role, str] = {"judge": paper_judge(task), **dict.fromkeys(_PLAYED_BY_MODELS, DEFAULT_MODEL)}
    asked = ((role, models_asked(settings, role, task), model) for role, model in wanted.items())
    return [(role, models, model) for role, models, model in asked if models and models != (model,)]
