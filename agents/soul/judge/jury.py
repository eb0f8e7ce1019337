"""Several judges on one episode: the task's own scoring, once a judge, then one verdict of them all.

Rewards and metrics are averaged (mean or median), the critiques are merged by the first judge. A member's failure is
tolerated down to a quorum. The single opinions stay in the trace; agreement over many episodes is computed from there.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel, Field

from soul.errors import SYSTEMIC, JudgeFailure
from soul.judge import Gateway, Judge
from soul.judge.audit.agreement_statistics import exact_match_share, krippendorff_alpha
from soul.record import OpinionRecord
from soul.task import Episode, Opinion, Row, Task, Verdict

MERGE_INSTRUCTIONS = (
    "Several reviewers judged the same attempt independently. You get their critiques. Write one critique from them, "
    "addressed to the one who made the attempt: keep every point that helps to do better, say once what several say, "
    "and where they contradict each other keep what most of them hold. Add nothing of your own, and do not mention the "
    "reviewers."
)


class _Merged(BaseModel):
    critique: str = Field(min_length=1)


async def judge_with_jury(task: Task[Any], row: Row, episode: Episode, gateway: Gateway) -> Verdict:
    """The verdict on an episode: the judge's, or the jury's where there is one.

    Raises:
        JudgeFailure: the judge's own failure; of a jury `quorum`, where too few members gave a verdict, or `budget` or
            `outage`, where that is why.
        Contentless: the policy said nothing.
    """
    if len(gateway.jury) == 1:
        return await task.judge(row, episode, gateway.jury[0])
    opinions = await _opinions(task, row, episode, gateway.jury)
    verdicts = [opinion.verdict for opinion in opinions if opinion.verdict is not None]
    if len(verdicts) < gateway.settings.quorum:
        causes = ", ".join(f"{o.judge}: {o.failure}" for o in opinions if o.failure)
        raise JudgeFailure(
            next((o.failure for o in opinions if o.failure in SYSTEMIC), "quorum"),
            f"{len(verdicts)} of {len(opinions)} judges gave a verdict, {gateway.settings.quorum} are needed "
            f"({causes})",
        )
    # (Not `fmean`: of three times 0.7 it makes 0.6999999999999998.)
    average = statistics.median if gateway.settings.policy.jury_reward == "median" else statistics.mean
    critiques = list(dict.fromkeys(v.critique for v in verdicts if v.critique))
    critique = critiques[0] if len(critiques) == 1 else await _merged(gateway.jury[0], critiques)
    return Verdict(average([v.reward for v in verdicts]), _averages(verdicts, average), critique, opinions)


async def _opinions(task: Task[Any], row: Row, episode: Episode, jury: Sequence[Judge]) -> tuple[Opinion, ...]:
    """All members' opinions. An exception is raised once nobody is asking any more: the calls of all are counted."""
    ended = await asyncio.gather(*(_opinion(task, row, episode, judge) for judge in jury), return_exceptions=True)
    for end in ended:
        if isinstance(end, BaseException):
            raise end
    return tuple(end for end in ended if isinstance(end, Opinion))


async def _opinion(task: Task[Any], row: Row, episode: Episode, judge: Judge) -> Opinion:
    try:
        verdict = await task.judge(row, episode, judge)
    except JudgeFailure as failure:
        return Opinion(judge.endpoint.name, None, failure.cause)
    if not math.isfinite(verdict.reward):
        return Opinion(judge.endpoint.name, None, "invalid")
    return Opinion(judge.endpoint.name, verdict)


def _averages(verdicts: Sequence[Verdict], average: Callable[[list[float]], float]) -> dict[str, float]:
    names = dict.fromkeys(name for verdict in verdicts for name in verdict.metrics)
    return {name: average([v.metrics[name] for v in verdicts if name in v.metrics]) for name in names}


async def _merged(first: Judge, critiques: Sequence[str]) -> str | None:
    """One critique of several; the first one as it is, where the judge that should merge them fails."""
    if not critiques:
        return None
    try:
        return (await first.ask(_Merged, MERGE_INSTRUCTIONS, {"critiques": list(critiques)})).critique
    except JudgeFailure:  # counted in the judge's usage
        return critiques[0]


def agreement(juries: Sequence[Sequence[OpinionRecord]]) -> dict[str, float]:
    """How far the members of a jury agree, over many episodes.

    Args:
        juries: for each episode the recorded opinions, in the jury's order.

    Returns:
        For the reward and every metric: `alpha/<name>` (Krippendorff's, interval; absent where it is undefined: fewer
        than two members, or no variation at all) and `exact/<name>`, the share of episodes in which all that spoke
        gave the same value.
    """
    names = dict.fromkeys(name for jury in juries for o in jury for name in ("reward", *o.metrics))
    numbers: dict[str, float] = {}
    for name in names:
        ratings = list(zip(*([_value(opinion, name) for opinion in jury] for jury in juries), strict=True))
        alpha, exact = krippendorff_alpha(ratings), exact_match_share(ratings)
        numbers |= {f"alpha/{name}": alpha} if alpha is not None else {}
        numbers |= {f"exact/{name}": exact} if exact is not None else {}
    return numbers


def _value(opinion: OpinionRecord, name: str) -> float | None:
    return opinion.reward if name == "reward" else opinion.metrics.get(name)
