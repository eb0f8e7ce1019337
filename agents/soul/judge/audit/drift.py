"""Notice a judge that has changed: it grades twelve honest replies (biases.py) again, and the means are compared.

An endpoint can change behind its name: a new version of a hosted model, a server with other weights or settings. The
first grades are the reference of all later checks. The cache is passed by.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from soul.judge import Judge
from soul.judge.audit.biases import POINTS, REPLIES, SMALLEST, grades
from soul.judge.audit.canaries import instructions
from soul.metrics.intervals import difference_of, p_of_pairs

CERTAIN = 0.01  # a smaller p-value of no change is one; most checks compare with the same first grades
_CASES = hashlib.sha256(repr([(instructions(one), text) for one, text in REPLIES]).encode()).hexdigest()[:8]


async def grade(judge: Judge) -> dict[str, Any]:
    """The judge's grades of all replies, as JSON values: [score, reason], or the cause of a failure."""
    answers = await grades(replace(judge, cached=False), [text for _, text in REPLIES])
    known = [one if isinstance(one, str) else [one.score, one.reason] for one in answers]
    return {"cases": _CASES, "date": datetime.now(UTC).isoformat(timespec="seconds"), "grades": known}


def is_reference(first: Mapping[str, Any] | None) -> bool:
    """True if later grades can be compared with these: of the same replies, and most of them known."""
    graded = first["grades"] if first and first["cases"] == _CASES else []
    return sum(not isinstance(one, str) for one in graded) > len(REPLIES) / 2


def compare(model: str, first: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[float | None, str]:
    """Compare a judge's grades with its first ones, which are a reference.

    Returns:
        The mean change in points of 10 (None if nothing is known), and what has changed, with both verdicts on the
        reply that changed most; "" if nothing did.
    """
    pairs = zip(first["grades"], now["grades"], strict=True)
    known = [(old, new) for old, new in pairs if not isinstance(old, str) and not isinstance(new, str)]
    if not known:
        return None, ""
    change = difference_of([(old[0], new[0]) for old, new in known], POINTS)
    p = p_of_pairs([new[0] - old[0] for old, new in known], change)
    if p is None or p >= CERTAIN or abs(change.mean) < SMALLEST * POINTS[1]:
        return change.mean, ""
    (before, why_before), (after, why_after) = max(known, key=lambda pair: abs(pair[1][0] - pair[0][0]))
    interval = " [{:+.2f}, {:+.2f}]".format(*change.interval) if change.interval else ""
    return change.mean, (
        f"The judge {model} grades the same {len(known)} replies {change.mean:+.2f}{interval} points of 10 away from "
        f"its grades of {first['date'][:16]}, so scores of then and now cannot be compared. One reply got {before:g} "
        f'("{why_before}"), and now gets {after:g} ("{why_after}").'
    )
