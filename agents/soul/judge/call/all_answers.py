"""Ask several questions at the same time, for a verdict that needs all the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

AnswerT = TypeVar("AnswerT")


async def all_answers(*questions: Coroutine[Any, Any, AnswerT]) -> list[AnswerT]:
    """The answers, in the order of the questions.

    If a question fails, the others are still awaited: the cost of a call that outlives its session would not be
    counted.

    Raises:
        JudgeFailure: the failure of the first question that failed, in the order of the arguments. There is no partial
            result.
    """
    tasks = [asyncio.ensure_future(question) for question in questions]
    await asyncio.gather(*tasks, return_exceptions=True)
    return [task.result() for task in tasks]
