"""The numbers of a comparison: set by set, and the macro average (the headline).

Rows are compared as pairs: a row's difficulty affects both scores and cancels out of their difference, so the interval
is narrower than two separate intervals suggest. The macro average is over sets, never over pooled rows, and only over
sets whose scores are comparable. A star stands for a p-value below 0.05 that is adjusted for the number of sets (Holm);
the headline is one test, and its p-value needs no adjustment.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from soul.metrics.intervals import (
    LEVEL,
    Estimate,
    Interval,
    difference_of,
    holm,
    p_of_mean,
    p_of_pairs,
    pooled,
    score_of_rows,
)
from soul.metrics.set_metrics import SetScore
from soul.record import SessionRecord
from soul.task_types import Metric

Kind = Literal["draft", "refined"]
_EQUAL = 1e-12  # two means of equal rewards may differ by rounding


class Side(Protocol):
    """One side of a comparison: a model's evaluations or a training run, in a folder for each seed."""

    @property
    def kind(self) -> str: ...

    @property
    def label(self) -> str: ...

    @property
    def folders(self) -> Sequence[Path]: ...

    def sessions(self, name: str, row: str) -> Sequence[SessionRecord]:
        """The sessions of a row of a set, over all seeds."""
        ...


class Row(NamedTuple):
    """A row with a score on both sides.

    Attributes:
        id: names it for `pair_texts`.
        base, other: means over its samples and seeds.
    """

    id: str
    base: float
    other: float


@dataclass(frozen=True)
class SetComparison:
    """One set on both sides.

    Attributes:
        kind: the answers that are scored.
        seeds: the score of each seed over the rows, of both sides.
        averaged: the macro average includes it, if it is comparable.
        reasons: why the scores are not comparable; empty if they are.
        notes: further remarks.
        not_paired: reason -> number of rows.
        joint: each side's score of the rows as a set; None if the score is the mean of the rewards.
    """

    name: str
    metric: Metric
    rows: Sequence[Row]
    kind: Kind = "draft"
    seeds: tuple[Sequence[float], Sequence[float]] = ((), ())
    averaged: bool = True
    reasons: Sequence[str] = ()
    notes: Sequence[str] = ()
    not_paired: Mapping[str, int] = field(default_factory=dict)
    joint: tuple[SetScore, SetScore] | None = None

    @property
    def comparable(self) -> bool:
        """Check whether both sides were scored in the same way."""
        return not self.reasons

    @property
    def means(self) -> tuple[float, float] | None:
        """The scores of both sides over the rows."""
        if not self.rows:
            return None
        if self.joint is None:
            return statistics.fmean(row.base for row in self.rows), statistics.fmean(row.other for row in self.rows)
        base, other = (score.mean for score in self.joint)
        return None if base is None or other is None else (base, other)

    @cached_property
    def estimate(self) -> Estimate | None:
        """The other side's score minus the baseline's, with its spread over rows; None without one."""
        if (means := self.means) is None:
            return None
        range_ = self.metric.low, self.metric.high
        if self.joint is None:
            return difference_of([(row.base, row.other) for row in self.rows], range_)
        base, other = self.joint
        width = range_[1] - range_[0]

        def difference(weights: Any) -> Any:
            return other.values(weights) - base.values(weights)

        return score_of_rows(difference, means[1] - means[0], len(self.rows), self.name, (-width, width))

    @cached_property
    def p_value(self) -> float | None:
        """The p-value of the difference (`soul.metrics.intervals`), before any adjustment."""
        if self.estimate is None:
            return None
        differences = [row.other - row.base for row in self.rows]
        return p_of_pairs(differences, self.estimate) if self.joint is None else p_of_mean(self.estimate)

    @property
    def effect(self) -> float | None:
        """The gain of the other side, as a share of the metric's range if it has one; negative if it is worse."""
        if self.estimate is None:
            return None
        width = self.metric.high - self.metric.low
        return self._better(self.estimate.mean) / (width if math.isfinite(width) else 1.0)

    def _better(self, difference: float) -> float:
        return difference if self.metric.higher_is_better else -difference

    @cached_property
    def tally(self) -> tuple[int, int, int]:
        """Number of rows that the other side wins, ties and loses."""
        gains = [self._better(row.other - row.base) for row in self.rows]
        wins, losses = sum(gain > _EQUAL for gain in gains), sum(gain < -_EQUAL for gain in gains)
        return wins, len(gains) - wins - losses, losses

    def to_json(self, adjusted: float | None) -> dict[str, Any]:
        """All numbers, in the metric's own range."""
        estimate, names = self.estimate, ("name", "kind", "comparable", "averaged", "means", "seeds", "p_value")
        return {
            **{name: getattr(self, name) for name in names},
            "metric": {
                "name": self.metric.name,
                "higher_is_better": self.metric.higher_is_better,
                # JSON has no infinity: None where the metric has no end.
                **{end: v if math.isfinite(v := getattr(self.metric, end)) else None for end in ("low", "high")},
            },
            "rows": len(self.rows),
            "difference": estimate and estimate.mean,
            "interval": estimate and estimate.interval,
            "effect": self.effect,
            "p_adjusted": adjusted,
            "star": is_star(adjusted),
            **dict(zip(("wins", "ties", "losses"), self.tally, strict=True)),
            **{name: getattr(self, name) for name in ("reasons", "notes", "not_paired")},
        }


def is_star(p: float | None) -> bool:
    """Check whether a p-value has a star."""
    return p is not None and p < LEVEL


class Macro(NamedTuple):
    """The mean of the sets' differences.

    Attributes:
        interval: 95 %, from each set's own spread over its rows; None if one of the sets has none.
        sets: number of averaged sets, which are comparable and have a row; `of`: number of sets on both sides.
    """

    difference: float | None
    interval: Interval | None
    p_value: float | None
    sets: int
    of: int


@dataclass(frozen=True)
class Comparison:
    """One side against the baseline; within a run, its refined answers against its drafts.

    Attributes:
        notes: remarks about the sides.
    """

    base: Side
    other: Side
    sets: Mapping[str, SetComparison]
    notes: Sequence[str] = ()

    @property
    def labels(self) -> tuple[str, str]:
        """The names of both sides."""
        if self.base is self.other:
            return f"{self.base.label}: draft", f"{self.base.label}: refined"
        return self.base.label, self.other.label

    @cached_property
    def adjusted(self) -> dict[str, float | None]:
        """Set -> its p-value, adjusted for the number of comparable sets."""
        return dict(
            zip(self.sets, holm([s.p_value if s.comparable else None for s in self.sets.values()]), strict=True)
        )

    @property
    def by_effect(self) -> list[SetComparison]:
        """The sets, most improved first; then those that are not comparable or share no row."""
        return sorted(self.sets.values(), key=lambda s: (not s.comparable, s.effect is None, -(s.effect or 0.0)))

    @property
    def macro(self) -> Macro:
        """The headline: the average over all sets that count."""
        return self.average([name for name, one in self.sets.items() if one.averaged])

    def average(self, names: Sequence[str]) -> Macro:
        """The average over those of these sets whose scores are comparable."""
        parts = [s for name in names if (s := self.sets.get(name)) and s.comparable and s.estimate]
        estimates = [part.estimate for part in parts if part.estimate]
        if not estimates:
            return Macro(None, None, None, 0, len(names))
        known = all(part.interval for part in estimates)
        total = pooled(estimates)
        p = parts[0].p_value if len(parts) == 1 else p_of_mean(total) if known else None
        return Macro(total.mean, total.interval if known else None, p, len(parts), len(names))

    def to_json(self) -> dict[str, Any]:
        """The comparison with its headline first, and its sets by effect."""
        sides = (
            {"label": label, "folders": [str(folder) for folder in side.folders]}
            for label, side in zip(self.labels, (self.base, self.other), strict=True)
        )
        return {
            **dict(zip(("baseline", "compared"), sides, strict=True)),
            "headline": {**self.macro._asdict(), "star": is_star(self.macro.p_value)},
            "sets": [one.to_json(self.adjusted[one.name]) for one in self.by_effect],
            "notes": self.notes,
        }


@dataclass(frozen=True)
class ComparisonTable:
    """Every side against the baseline, or the refined answers of every run against its drafts."""

    scope: Literal["across", "within"]
    comparisons: Sequence[Comparison]

    def to_json(self) -> dict[str, Any]:
        """All numbers, as JSON values."""
        kind = self.comparisons[0].base.kind
        found = [one.to_json() for one in self.comparisons]
        return {"scope": self.scope, "kind": kind, "level": LEVEL, "comparisons": found}
