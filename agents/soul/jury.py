"""Judge one episode with several judges: each scores it as the task does, then their verdicts become one.

Rewards and metrics are averaged, and different critiques follow one another. Members may fail as long as a quorum gives
a verdict. The trace keeps every opinion; `agreement` compares them over many episodes. A member with `asked_between` is
asked only where the first one is unsure: its reward is in this range, or it gave none.
"""

import logging
import statistics
from collections.abc import Sequence
from typing import Any

from soul.errors import SYSTEMIC, JudgeFailure
from soul.judge import Contentless, Gateway, Judge
from soul.judge.audit.agreement_statistics import exact_match_share, krippendorff_alpha
from soul.judge.judge import all_answers
from soul.record import OpinionRecord
from soul.task import Task
from soul.task_types import Episode, Opinion, Row, Verdict

logger = logging.getLogger(__name__)


async def judge_with_jury(task: Task[Any], row: Row, episode: Episode, gateway: Gateway) -> Verdict:
    """The verdict on an episode: the judge's, or the jury's if there is one.

    Raises:
        JudgeFailure: the judge's own failure. For a jury, the cause is `quorum` if too few members gave a verdict, or
            `budget` or `outage` if that is why.
        Contentless: the policy said nothing.
    """
    if len(gateway.jury) == 1:
        return await task.judge(row, episode, gateway.jury[0])
    between, opinions = gateway.settings.asked_between, [Opinion(judge.endpoint.name, None) for judge in gateway.jury]

    async def ask(places: Sequence[int]) -> None:
        answers = await all_answers(*(_opinion(task, row, episode, gateway.jury[i]) for i in places))
        for i, opinion in zip(places, answers, strict=True):
            opinions[i] = opinion

    await ask([i for i in range(len(opinions)) if i not in between])
    first = opinions[0].verdict
    await ask([i for i, (low, high) in between.items() if first is None or low <= first.reward <= high])
    verdicts = [opinion.verdict for opinion in opinions if opinion.verdict is not None]
    asked = [opinion for opinion in opinions if opinion.verdict or opinion.failure]
    if len(verdicts) < (quorum := len(asked) // 2 + 1):
        causes = ", ".join(f"{o.judge}: {o.failure}" for o in opinions if o.failure)
        raise JudgeFailure(
            next((o.failure for o in opinions if o.failure in SYSTEMIC), "quorum"),
            f"{len(verdicts)} of {len(asked)} judges gave a verdict, but {quorum} are needed ({causes})",
        )
    names = dict.fromkeys(name for verdict in verdicts for name in verdict.metrics)
    # Not `fmean`, which turns three times 0.7 into 0.6999999999999998.
    metrics = {name: statistics.mean([v.metrics[name] for v in verdicts if name in v.metrics]) for name in names}
    critique = "\n\n".join(dict.fromkeys(v.critique for v in verdicts if v.critique)) or None
    return Verdict(statistics.mean([v.reward for v in verdicts]), metrics, critique, tuple(opinions))


async def canary_opinion(task: Task[Any], row: Row, episode: Episode, gateway: Gateway) -> Opinion | None:
    """Return the canary's opinion of an episode: a verdict or a failure; None if there is nothing to judge."""
    assert gateway.canary is not None
    try:
        return await _opinion(task, row, episode, gateway.canary)
    except Contentless:
        return None
    except Exception:  # noqa: BLE001 - a bug in a task's code fails the judge's own call too, which records it
        logger.debug("the canary gave no verdict", exc_info=True)
        return Opinion(gateway.canary.endpoint.name, None, "task_error")


async def _opinion(task: Task[Any], row: Row, episode: Episode, judge: Judge) -> Opinion:
    try:
        verdict = await task.judge(row, episode, judge)
    except JudgeFailure as failure:
        logger.debug("a member of the jury gave no verdict: %s", failure)
        return Opinion(judge.endpoint.name, None, failure.cause)
    if task.headline.problem(verdict.reward):
        return Opinion(judge.endpoint.name, None, "invalid")
    return Opinion(judge.endpoint.name, verdict)


def agreement(juries: Sequence[Sequence[OpinionRecord]]) -> dict[str, float]:
    """Agreement of the members of a jury, over many episodes.

    Args:
        juries: for each episode, the recorded opinions in the jury's order.

    Returns:
        For the reward and every metric: `alpha/<name>`, Krippendorff's alpha for interval data (absent if it is
        undefined), and `exact/<name>`, the share of episodes in which all members with a verdict agree. `saved` is
        the number of opinions that were not asked for (absent if all were).
    """
    names = dict.fromkeys(name for jury in juries for o in jury for name in ("reward", *o.metrics))
    saved = sum(o.reward is None and o.failure is None for jury in juries for o in jury)
    numbers: dict[str, float] = {"saved": saved} if saved else {}
    for name in names:
        values = ([o.reward if name == "reward" else o.metrics.get(name) for o in jury] for jury in juries)
        ratings = list(zip(*values, strict=True))
        alpha, exact = krippendorff_alpha(ratings), exact_match_share(ratings)
        numbers |= {f"alpha/{name}": alpha} if alpha is not None else {}
        numbers |= {f"exact/{name}": exact} if exact is not None else {}
    return numbers
