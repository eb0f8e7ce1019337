"""The evaluation itself: every sample is one session of the driver without feedback, as the trainer's validation is.

All sets run at the same time, those with long samples first (schedule.py). As many sessions are under way as keep the
policy's endpoint busy while others wait for their judge; the caps of the endpoints hold below that
(agents/soul/judge/throttle/shared_limits.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from soul.errors import SYSTEMIC, Cause, SoulError
from soul.evaluate.run.journal import Journal
from soul.evaluate.run.schedule import Capacity, Schedule
from soul.evaluate.run.settings import EvaluationSettings, SampleRequest
from soul.judge import ChatModel, Gateway, GatewaySettings
from soul.judge.gateway import run_limits
from soul.judge.throttle.local_gate import in_process
from soul.policy import OpenAISeat, Players
from soul.session import RefineSettings, run_session

SESSIONS_PER_SLOT = 2  # sessions under way for each request that the policy's endpoint takes
Sample = dict[str, Any]  # a line of the journal
Listener = Callable[[Sample], None]


# Causes that hit every further sample alike: the run stops, and what it has stays.
STOPPING: frozenset[Cause] = SYSTEMIC | {"auth", "not_found"}


class Stopped(SoulError):
    """An endpoint is down, its key is refused or the budget is spent: no further sample can be taken."""

    exit_code: ClassVar[int] = 1


async def evaluate(
    settings: EvaluationSettings,
    todo: Sequence[SampleRequest],
    journal: Journal,
    folder: Path,
    on_sample: Listener,
    on_schedule: Callable[[Schedule], None] = lambda schedule: None,
) -> None:
    """Take the samples, and keep each as soon as it is there.

    Args:
        todo: what is still to be taken.
        on_sample: called with every finished sample, failed ones too.
        on_schedule: given the schedule before the first sample; it estimates the time that is left.

    Raises:
        Stopped: an endpoint does not answer any more, or the budget is spent. The same command continues later.
    """
    policy = ChatModel.connect(settings.policy)

    async def play(item: SampleRequest, gateway: Gateway) -> Sample:
        return await run_sample(item, settings, policy, gateway)

    try:
        at_once = SESSIONS_PER_SLOT * settings.policy.concurrency
        schedule = Schedule(todo, at_once, Capacity(settings.gateway, settings.policy))
        on_schedule(schedule)
        await run_samples(play, schedule, settings.gateway, journal, folder, on_sample)
    finally:
        await policy.close()


async def run_samples(
    taken: Callable[[SampleRequest, Gateway], Awaitable[Sample]],
    schedule: Schedule,
    settings: GatewaySettings,
    journal: Journal,
    folder: Path,
    on_sample: Listener,
) -> None:
    """Make a journal line of every item of the schedule, with the judges of one gateway.

    Raises:
        Stopped: as in `evaluate`.
        OutOfSpace: the disk is full.
    """
    spent = sum(journal_cost(sample) for sample in journal.samples.values())
    limits = run_limits(settings, spent)  # a budget is for the run, not for each of its starts
    gateway = Gateway.connect(settings, in_process(limits), folder / "judge_cache")

    async def work() -> None:
        while (item := schedule.start()) is not None:
            sample = await taken(item, gateway)
            schedule.end(item, sample["usage"])
            failure = sample["draft"]["failure"]
            if failure and failure["cause"] in STOPPING:
                raise Stopped(
                    f"{failure['detail']} (the {failure['stage']} of set {item.set}). Run the same command to continue."
                )
            journal.add(sample)
            on_sample(sample)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(schedule.at_once):
                group.create_task(work())
    except ExceptionGroup as group:
        raise group.exceptions[0] from None  # the first to fail; the others were cancelled
    finally:
        await gateway.close()


def journal_cost(sample: Mapping[str, Any]) -> float:
    """What the judges, partners and environments of a sample cost; the policy is not part of judge.budget_usd."""
    return float(sum(usage["cost_usd"] for role, usage in sample["usage"].items() if role != "policy"))


async def run_sample(item: SampleRequest, settings: EvaluationSettings, policy: ChatModel, gateway: Gateway) -> Sample:
    """Take one sample.

    Returns:
        Its journal line: the draft as in a trace, usage by role with the policy's own, and what it belongs to. The
        record is in it, so that it can be shown and judged again without the data files.
    """
    asked = policy.scope()
    session = await run_session(
        item.row.task,
        item.row.row,
        lambda context: Players(lambda seat: OpenAISeat(asked, item.seed(settings.policy.seed, seat))),
        gateway,
        RefineSettings(episode_deadline_s=settings.deadline_s),
        refine=False,
    )
    trace = session.to_json()
    return {
        "set": item.set,
        "task": trace["task"],
        "number": item.row.number,
        "row": trace["row"],
        "sample": item.sample,
        "stamp": item.stamp,
        "groups": dict(item.row.task.groups(item.row.row)),
        "shortened": list(item.shortened),
        "record": item.row.row.model_dump(mode="json"),
        "prompts": trace["prompts"],
        "draft": trace["draft"],
        "usage": {"policy": asked.usage.to_json(), **trace["usage"]},
    }
