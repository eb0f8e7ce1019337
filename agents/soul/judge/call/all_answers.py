"""Asks several questions at the same time, for a verdict that needs all the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

AnswerT = TypeVar("AnswerT")


async def all_answers(*questions: Coroutine[Any, Any, AnswerT]) -> list[AnswerT]:
    """The answers in the order of the questions.

    When a question fails, the others are still awaited: the cost of a call that outlives its session would not be
    counted.

    Raises:
        JudgeFailure: of the first question, in their order, that failed. There is no partial result.
    """
    asked = [asyncio.ensure_future(question) for question in questions]
    await asyncio.gather(*asked, return_exceptions=True)
    return [one.result() for one in asked]
