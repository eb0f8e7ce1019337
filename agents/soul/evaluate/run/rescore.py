"""Judge the episodes of a finished run again, with another judge or a new prompt version, without playing them.

The new run has its own folder, and you resume, report and compare it like any other. A sample whose play failed has no
episode and stays failed. Costs include only the new verdicts.
"""

from collections.abc import Mapping
from typing import Any

from soul import tasks
from soul.evaluate.run.journal import FILE, Key
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.run.settings import EvaluationSettings, SampleRequest, stamp_of
from soul.judge import Endpoint, Gateway, GatewaySettings
from soul.policy import Players, Seat
from soul.record import SessionRecord
from soul.rows.task_files import parse_row
from soul.session import Attempt, score


def settings_of(run: EvaluationRun, gateway: GatewaySettings, options: Mapping[str, Any]) -> EvaluationSettings:
    """The settings of a new run over the episodes of `run`, with these judges.

    Args:
        options: task -> options that replace those of the run; the others stay as they were.

    Raises:
        ValidationError: the options of a task are not an object.
    """
    old, journal = run.settings["tasks"], run.folder / FILE  # the journal holds the rows: no data file is needed
    others = {role: one for role, one in run.settings["roles"].items() if role in ("partner", "environment")}
    return EvaluationSettings(
        policy=Endpoint(model=run.name, api_key_env=None),  # only for its name; it is never called
        gateway=gateway,
        sets=dict.fromkeys(run.sets, journal),
        tasks={
            **old,
            **{
                task: {**old.get(task, {}), **new} if isinstance(new, Mapping) else new for task, new in options.items()
            },
        },
        limit=run.limit,
        n=run.n,
        seed=run.seed,
        deadline_s=run.settings["deadline_s"],
        missing=dict.fromkeys(run.missing, journal),
        suite=run.suite,
        stand_ins=dict(run.stand_ins),
        source={"policy": run.settings["policy"], "roles": others, "episodes_of": run.folder.name},
    )


def sample_requests(settings: EvaluationSettings, run: EvaluationRun) -> list[SampleRequest]:
    """The samples to judge. Their rows come from the journal, so no data file is needed."""
    tasks.configure(settings.tasks)  # before the rows, which hold their tasks
    rescored = []
    for sample in run.samples:
        row = parse_row(sample.task, sample.record, str(run.folder / FILE), sample.number)
        rescored.append(SampleRequest(sample.set, row, sample.sample, stamp_of(row), tuple(sample.shortened)))
    return rescored


async def judge_again(samples: Mapping[Key, SessionRecord], request: SampleRequest, gateway: Gateway) -> SessionRecord:
    """The record of a saved sample with a new verdict; one without an episode stays failed, and costs nothing."""
    saved, task = samples[request.key], request.row.task
    prompts = [prompt.id for prompt in task.prompts]
    fresh = saved.model_copy(update={"stamp": request.stamp, "prompts": prompts, "usage": {}})
    if saved.draft.seats is None:
        return fresh
    scope = gateway.scope(task.name)
    attempt = Attempt(Players(_nobody), task.saved_episode(saved.draft))
    attempt.seconds["play"] = saved.draft.seconds["play"]
    attempt.started = {stage: begun for stage, begun in saved.draft.started.items() if stage == "play"}
    await score(attempt, task, request.row.row, scope)
    fresh.draft, fresh.usage = attempt.to_record(), scope.usage()
    return fresh


def _nobody(seat: str) -> Seat:
    raise AssertionError(f"a saved episode has no player at the seat {seat!r}")
