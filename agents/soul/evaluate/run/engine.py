"""Run the samples: each is one session without feedback, as in the trainer's validation.

All sets run concurrently, those with long samples first. Enough sessions run at once to keep the policy's endpoint busy
while others wait for their judge; the endpoints' own limits apply on top of that (agents/soul/judge/limits.py).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from soul.errors import SYSTEMIC, Cause, RunFailed
from soul.evaluate.run.journal import Journal
from soul.evaluate.run.judge_check import JudgeChecks
from soul.evaluate.run.rescore import judge_again
from soul.evaluate.run.run_folder import EvaluationRun
from soul.evaluate.run.settings import EvaluationSettings, SampleRequest
from soul.judge import ChatModel, Gateway
from soul.message import Escape
from soul.policy import OpenAISeat, Players
from soul.record import SessionRecord
from soul.session import RefineSettings, run_session

logger = logging.getLogger(__name__)

FIRST = 2  # samples of each set that run before all others
SESSIONS_PER_SLOT = 2  # concurrent sessions for each concurrent request of the policy's endpoint
# Causes that would fail every further sample too: the run stops and keeps its finished samples.
STOPPING: frozenset[Cause] = SYSTEMIC | {"auth", "not_found"}


class Stopped(RunFailed):
    """An endpoint is down, its key is refused or the budget is spent: no further sample can run."""


def expected_calls(request: SampleRequest) -> float:
    """The number of calls that a sample makes one after another, as its task declares them."""
    calls = request.row.task.calls_per_episode
    turns = calls.get("partner", 0.0) + calls.get("environment", 0.0)
    return 1.0 + 2.0 * turns + (calls.get("judge", 0.0) > 0)


def in_order(todo: Sequence[SampleRequest]) -> list[SampleRequest]:
    """The samples in the order in which they run: two of every set, for a first score, then the longest first.

    A scene of twenty turns takes a minute: started last, it would keep the whole run waiting.
    """
    seen = Counter[str]()
    ranked = []
    for request in todo:
        seen[request.set] += 1
        ranked.append((seen[request.set] > FIRST, -expected_calls(request), request))
    return [request for *_, request in sorted(ranked, key=lambda ranks: ranks[:2])]


async def evaluate(
    settings: EvaluationSettings,
    todo: Sequence[SampleRequest],
    journal: Journal,
    on_sample: Callable[[SessionRecord], None],
    source: EvaluationRun | None = None,
    escape: Escape | None = None,
) -> None:
    """Run the samples, and save each one as soon as it finishes.

    When an endpoint no longer answers, no further sample starts. Those under way end and are saved, because they may
    have been paid for: a cancelled one would cost money that the budget of the next start does not know.

    Args:
        todo: the samples to run.
        on_sample: called with every finished sample, failed ones too.
        source: a run whose episodes are judged again; nothing is played then.
        escape: takes the control tokens of the model under test out of what it reads; None: they are unknown.

    Raises:
        Stopped: an endpoint no longer answers, or the budget is spent. The same command continues later.
        OutOfSpace: the disk is full.
    """
    policy = ChatModel.connect(settings.policy)
    run_one: Callable[[SampleRequest, Gateway], Awaitable[SessionRecord]]
    if source is None:
        run_one, asked = partial(run_sample, settings, policy, escape), settings.policy
    else:
        run_one = partial(judge_again, {sample.key: sample for sample in source.samples})
        asked = settings.gateway.judge
    waiting, stopped = iter(in_order(todo)), list[Stopped]()

    async def work(gateway: Gateway) -> None:
        for request in waiting:
            sample = await run_one(request, gateway)
            journal.add(sample)
            on_sample(sample)
            failure = sample.draft.failure
            # A sample without usage asked nobody: it failed in the run that is rescored.
            if not stopped and sample.usage and failure and failure.cause in STOPPING:
                where = f"set {request.set}, stage {failure.stage}"
                stopped.append(Stopped(f"{failure.detail} ({where}). Run the same command to continue."))
                logger.warning("No further sample starts; those under way end first: %s", failure.detail)
            if stopped:
                return

    # The budget covers the whole run, not each start.
    spent_usd = journal.paid_usd + JudgeChecks.read(journal.folder).usage.cost_usd
    try:
        async with (
            Gateway.connect(settings.gateway, journal.folder / "judge_cache", spent_usd) as gateway,
            asyncio.TaskGroup() as group,
        ):
            for _ in range(SESSIONS_PER_SLOT * asked.concurrency):
                group.create_task(work(gateway))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None  # the first failure; it cancelled the other workers
    finally:
        await policy.close()
    if stopped:
        raise stopped[0]


async def run_sample(
    settings: EvaluationSettings, policy: ChatModel, escape: Escape | None, request: SampleRequest, gateway: Gateway
) -> SessionRecord:
    """Run one sample.

    Returns:
        Its record with the row's fields, so that it can be shown and judged again without the data files.
    """
    own_policy, task = policy.scope(), request.row.task
    most_tokens = (settings.served or {}).get("max_turn_tokens") if task.policy_turns > 1 else None

    def player(seat: str) -> OpenAISeat:
        return OpenAISeat(own_policy, request.seed(settings.policy.seed, seat), most_tokens, escape)

    session = await run_session(
        task,
        request.row.row,
        lambda context: Players(player),
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
