"""The table of sub-metrics from evaluations: every metric of a set beside its score, as Sotopia's seven dimensions.

The numbers are those of `soul evaluate`: over all valid samples of a set, in the metrics' own ranges, no intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from soul.evaluate.tables.table import NONE, ordered
from soul.figures.evaluations import Evaluations
from soul.figures.table import Cell, Mark, Table
from soul.figures.training import DOWN, UP, better


def metrics_table(evals: Sequence[Evaluations]) -> Table | None:
    """A line for each metric of each set, a column for each name; None if no set has metrics beside its score."""
    body: list[list[Cell]] = []
    data: list[tuple[Any, ...]] = [("set", "metric", "name", "mean", "sha256")]
    for name in ordered(list(dict.fromkeys(name for each in evals for name in each.results.sets))):
        sets = {each.name: each.results.sets[name] for each in evals if name in each.results.sets}
        for metric in dict.fromkeys(metric for one in sets.values() for metric in one.metrics):
            arrow = better(next(iter(sets.values())).task, metric)
            means = {label: one.metrics[metric] for label, one in sets.items() if metric in one.metrics}
            marks = _best(means, arrow)
            cells = [
                Cell(f"{means[each.name]:.3f}", marks.get(each.name, "")) if each.name in means else Cell(NONE)
                for each in evals
            ]
            body.append([Cell(f"{name}: {metric}{arrow}"), *cells])
            hashes = {each.name: " ".join(sha256 for _, _, sha256 in each.sources) for each in evals}
            data += [(name, metric, label, mean, hashes[label]) for label, mean in means.items()]
    if not body:
        return None
    caption = "Every metric beside the score, over all valid samples; an arrow says what is better."
    head = ("metric", *(each.name for each in evals))
    return Table("metrics", caption, head, body, data, (), [source for each in evals for source in each.sources])


def _best(means: Mapping[str, float], arrow: str) -> dict[str, Mark]:
    """The best of each line, where the task says what is better."""
    if arrow not in (UP, DOWN) or len(means) < 2:
        return {}
    best = max(means.values()) if arrow == UP else min(means.values())
    return {label: "best" for label, mean in means.items() if mean == best}
