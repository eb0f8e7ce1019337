"""The numbers of a run under flat names, for tools that draw curves.

Scores are on the table's scale (the headline times 100); a task's other metrics keep their own. What is not
known has no entry: a set without a valid sample has no score, a model without a price no cost.
"""

from __future__ import annotations

from soul.evaluate.numbers.results import Average, Results
from soul.evaluate.numbers.set_result import SetResult, total


def scalars(results: Results) -> dict[str, float]:
    """`hitom/score`, `hitom/score_low`, `hitom/invalid_share`, ..., and `average/...` over the sets."""
    found: dict[str, float] = {}
    for name, of_set in results.sets.items():
        found |= {f"{name}/{key}": value for key, value in _of_set(of_set).items()}
    averages = {"macro": results.macro, "paper": results.paper, "alignx": results.alignx}
    for name, average in averages.items():
        if average is not None:
            found |= {f"average/{name}{key}": value for key, value in _of_average(average).items()}
    return found


def _of_set(result: SetResult) -> dict[str, float]:
    found = {"samples": float(result.samples), "invalid": float(result.invalid)}
    if result.samples:
        found["invalid_share"] = result.invalid / result.samples
        found["contentless_share"] = result.contentless / result.samples
    if result.mean is not None:
        found["score"] = 100 * result.mean
    found |= _ends("score", result.interval) | _ends("score_bound", result.bounds)
    cost = total(result.usage.values())
    if cost.cost_usd or not cost.unpriced:
        found["cost_usd"] = cost.cost_usd
    return found | {f"metrics/{name}": value for name, value in result.metrics.items()}


def _of_average(average: Average) -> dict[str, float]:
    found = {} if average.mean is None else {"": 100 * average.mean}
    return {**found, "_sets": float(average.sets), **_ends("", average.interval), **_ends("_bound", average.bounds)}


def _ends(name: str, ends: tuple[float, float] | None) -> dict[str, float]:
    return {} if ends is None else {f"{name}_low": 100 * ends[0], f"{name}_high": 100 * ends[1]}
