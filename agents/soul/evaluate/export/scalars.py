"""The numbers of a run under flat names, for tools that draw curves.

Scores are on the table's scale (the headline times 100); a task's other metrics keep their own. Unknown values have no
entry: a set without a valid sample has no score, and a model without a price has no cost.
"""

from __future__ import annotations

from soul.evaluate.numbers.results import Average, Results
from soul.evaluate.numbers.set_result import SetResult
from soul.judge.call.usage import total


def scalars(results: Results) -> dict[str, float]:
    """`hitom/score`, `hitom/score_low`, `hitom/invalid_share`, ..., and `average/...` over the sets."""
    values: dict[str, float] = {}
    for name, result in results.sets.items():
        values |= {f"{name}/{key}": value for key, value in _set_scalars(result).items()}
    for name, average in results.averages.items():
        values |= {f"average/{name}{key}": value for key, value in _average_scalars(average).items()}
    return values


def _set_scalars(result: SetResult) -> dict[str, float]:
    values = {"samples": float(result.samples), "invalid": float(result.invalid)}
    if result.samples:
        values["invalid_share"] = result.invalid / result.samples
        values["contentless_share"] = result.contentless / result.samples
    if result.mean is not None:
        values["score"] = 100 * result.mean
    values |= _ends("score", result.interval) | _ends("score_bound", result.bounds)
    cost = total(result.usage.values())
    if cost.cost_usd or not cost.unpriced:
        values["cost_usd"] = cost.cost_usd
    return values | {f"metrics/{name}": value for name, value in result.metrics.items()}


def _average_scalars(average: Average) -> dict[str, float]:
    mean = {} if average.mean is None else {"": 100 * average.mean}
    return {**mean, "_sets": float(average.sets), **_ends("", average.interval), **_ends("_bound", average.bounds)}


def _ends(name: str, ends: tuple[float, float] | None) -> dict[str, float]:
    return {} if ends is None else {f"{name}_low": 100 * ends[0], f"{name}_high": 100 * ends[1]}
