"""Run the samples: each is one session without feedback, as in the trainer's validation.

All sets run concurrently, those with long samples first (schedule.py). Enough sessions run at once to keep the policy's
endpoint busy while others wait for their judge; the endpoints' own limits apply on top of that
(agents/soul/judge/limits.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar

from soul.errors import SYSTEMIC, Cause, SoulError
from soul.evaluate.run.journal import Journal
from soul.evaluate.run.judge_check import read_checks
from soul.evaluate.run.rescore import judge_again
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.run.schedule import Schedule, endpoints_of
from soul.evaluate.run.settings import EvaluationSettings, SampleRequest
from soul.judge import ChatModel, Gateway, GatewaySettings
from soul.message import Escape
from soul.policy import OpenAISeat, Players
from soul.record import SessionRecord
from soul.session import RefineSettings, run_session

logger = logging.getLogger(__name__)

SESSIONS_PER_SLOT = 2  # concurrent sessions for each concurrent request of the policy's endpoint
Listener = Callable[[SessionRecord], None]
RunOne = Callable[[SampleRequest, Gateway], Awaitable[SessionRecord]]  # runs one sample

# Causes that would fail every further sample too: the run stops and keeps its finished samples.
STOPPING: frozenset[Cause] = SYSTEMIC | {"auth", "not_found"}


class Stopped(SoulError):
    """An endpoint is down, its key is refused or the budget is spent: no further sample can run."""

    exit_code: ClassVar[int] = 1


async def evaluate(
    settings: EvaluationSettings,
    todo: Sequence[SampleRequest],
    journal: Journal,
    folder: Path,
    on_sample: Listener,
    on_schedule: Callable[[Schedule], None] = lambda schedule: None,
    source: EvaluationRun | None = None,
    escape: Escape | None = None,
) -> None:
    """Run the samples, and save each one as soon as it finishes.

    Args:
        todo: the samples to run.
        on_sample: called with every finished sample, failed ones too.
        on_schedule: called with the schedule before the first sample; it estimates the time left.
        source: a run whose episodes are judged again; nothing is played then.
        escape: takes the control tokens of the model under test out of what it reads; None: they are unknown.

    Raises:
        Stopped: an endpoint no longer answers, or the budget is spent. The same command continues later.
    """
    policy = ChatModel.connect(settings.policy)
    run_one: RunOne = partial(run_sample, settings, policy, escape)
    asked, endpoint_of = settings.policy, endpoints_of(settings.gateway, settings.policy)
    if source is not None:
        run_one = partial(judge_again, {sample.key: sample for sample in source.samples})
        asked, endpoint_of = settings.gateway.judge, endpoints_of(settings.gateway)
    schedule = Schedule(todo, SESSIONS_PER_SLOT * asked.concurrency, endpoint_of)
    on_schedule(schedule)
    try:
        await run_samples(run_one, schedule, settings.gateway, journal, folder, on_sample)
    finally:
        await policy.close()


async def run_samples(
    run_one: RunOne, schedule: Schedule, settings: GatewaySettings, journal: Journal, folder: Path, on_sample: Listener
) -> None:
    """Run every sample of the schedule, with the judges of one gateway.

    When an endpoint no longer answers, no further sample starts. Those under way end and are saved, because they may
    have been paid for: a cancelled one would cost money that the budget of the next start does not know.

    Raises:
        Stopped: as in `evaluate`.
        OutOfSpace: the disk is full.
    """
    spent_usd = journal.paid_usd + read_checks(folder).usage.cost_usd
    # The budget covers the whole run, not each start.
    connected = Gateway.connect(settings, folder / "judge_cache", spent_usd)
    stopped: Stopped | None = None

    async def work(gateway: Gateway) -> None:
        nonlocal stopped
        while stopped is None and (request := schedule.start()) is not None:
            sample = await run_one(request, gateway)
            schedule.end(request, sample.usage)
            journal.add(sample)
            on_sample(sample)
            failure = sample.draft.failure
            # A sample without usage asked nobody: it failed in the run that is rescored.
            if stopped is None and sample.usage and failure and failure.cause in STOPPING:
                stopped = Stopped(
                    f"{failure.detail} (set {request.set}, stage {failure.stage}). Run the same command to continue."
                )
                logger.warning("No further sample starts; those under way end first: %s", failure.detail)

    try:
        async with connected as gateway, asyncio.TaskGroup() as group:
            for _ in range(schedule.at_once):
                group.create_task(work(gateway))
    except ExceptionGroup as group:
        raise group.exceptions[0] from None  # the first failure; it cancelled the other workers
    if stopped is not None:
        raise stopped


async def run_sample(
    settings: EvaluationSettings, policy: ChatModel, escape: Escape | None, request: SampleRequest, gateway: Gateway
) -> SessionRecord:
    """Run one sample.

    Returns:
        Its record with the row's fields, so that it can be shown and judged again without the data files.
    """
    own_policy, task = policy.scope(), request.row.task
    most_tokens = (settings.served or {}).get("max_turn_tokens") if task.policy_turns > 1 else None

    def seed(seat: str) -> int | None:
        return request.seed(settings.policy.seed, seat)

    session = await run_session(
        task,
        request.row.row,
        lambda context: Players(lambda seat: OpenAISeat(own_policy, seed(seat), most_tokens, escape)),
        gateway,
        RefineSettings(episode_deadline_s=settings.deadline_s),
        refine=False,
    )
    sample = session.to_record(request.row.file, request.row.number)
    sample.set, sample.sample, sample.stamp = request.set, request.sample, request.stamp
    sample.groups = dict(task.groups(request.row.row))
    sample.shortened = list(request.shortened)
    sample.record = request.row.row.model_dump(mode="json")
    sample.usage = {"policy": own_policy.usage, **sample.usage}
    return sample
