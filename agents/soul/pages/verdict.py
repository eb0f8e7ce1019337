"""A sentence about a training run: whether the drafts' reward changed, what became of the gap, which alarms there were.

It compares the first and the last quarter of the steps, so it also reports a flat or falling reward. The error treats
the spread inside each quarter as noise. A trend inside a quarter increases it, so the test rather misses a rise than
reports a false one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

CERTAIN = 2.0  # standard errors that a difference must exceed to be reported as a change
CLOSED = 0.1  # share of the first quarter's gap; a smaller one is closed
FEWEST = 4  # steps


def verdict(drafts: Sequence[float], gaps: Mapping[int, float], alarms: Mapping[str, int]) -> str:
    """The sentence, from the mean reward of each step's drafts, the gaps of steps, and the first step of each alarm."""
    if len(drafts) < FEWEST:
        parts = [f"Only {len(drafts)} steps have a reward: too few to tell whether it rose"]
    else:
        first, last, error = _quarters(drafts)
        word = changed(last - first, error, ("rose", "fell", "did not clearly change"))
        quarters = f"means of the first and the last quarter; the standard error of the change is {error:.3f}"
        parts = [f"Drafts {word} over {len(drafts)} steps: {first:.3f} to {last:.3f} ({quarters})"]
    if len(gaps) >= FEWEST:
        parts.append(_of_gap(gaps))
    if alarms:
        raised = ", ".join(f"{name} (step {step})" for name, step in alarms.items())
        parts.append(f"{len(alarms)} alarm{'s' if len(alarms) > 1 else ''}: {raised}")
    return "; ".join(parts) + "."


def changed(change: float, error: float, words: tuple[str, str, str]) -> str:
    """The word for an increase, a decrease, or neither."""
    more, less, neither = words
    if abs(change) <= max(CERTAIN * error, 1e-9):
        return neither
    return more if change > 0 else less


def _of_gap(gaps: Mapping[int, float]) -> str:
    values = list(gaps.values())
    first, last, _ = _quarters(values)
    for place, step in enumerate(list(gaps)[:-1]):  # closed in this step and, on average, from it on
        if 0 < first and max(values[place], statistics.fmean(values[place:])) <= CLOSED * first:
            return f"the gap closed at step {step}"
    return f"the gap went from {first:+.3f} to {last:+.3f}"


def _quarters(values: Sequence[float]) -> tuple[float, float, float]:
    """The means of the first and the last quarter, and the standard error of their difference."""
    count = max(2, len(values) // 4)
    first, last = values[:count], values[-count:]
    error = math.sqrt((statistics.variance(first) + statistics.variance(last)) / count)
    return statistics.fmean(first), statistics.fmean(last), error
