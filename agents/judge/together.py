"""Ask several questions at the same time, where a verdict needs the answer to each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

AnswerT = TypeVar("AnswerT")


async def all_answers(*questions: Coroutine[Any, Any, AnswerT]) -> list[AnswerT]:
    """The answers in the order of the questions.

    All questions are waited for, also when one has failed: a call that goes on after its session has ended would be on
    nobody's bill.

    Raises:
        JudgeFailure: the failure of the first question that has none, in their order. There is no partial result.
    """
    asked = [asyncio.ensure_future(question) for question in questions]
    await asyncio.gather(*asked, return_exceptions=True)
    return [one.result() for one in asked]
