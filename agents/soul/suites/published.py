"""The numbers that the authors published, by evaluation set: what a run is compared with.

Two tables: the model card of Ditto-8B (23 benchmarks) and the complete results of the paper (its ten tasks). They name
different base models and different protocols, so a column always carries its source. All numbers are on the card's
scale, 0 to 100. The card has one number for AlignX, under the key "alignx"; AlignX's single sets have none.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

Source = Literal["card", "paper"]
FILE = Path(__file__).with_name("published.json")


@dataclass(frozen=True)
class PublishedRow:
    """A row of a published table.

    Attributes:
        key: the evaluation set, or the group of sets that the row is about.
        name: what the source calls it.
        dimension: the card's (CONV, SS, COG, ROLE, EVAL); empty for the paper.
        sets: the evaluation sets that it stands for: itself, or those of the group.
    """

    key: str
    name: str
    dimension: str
    sets: tuple[str, ...]


@dataclass(frozen=True)
class Column:
    """One model of one source.

    Attributes:
        scores: set or group -> score, 0 to 100.
        average: over all rows of the source, as it prints it; None where it prints none (the card).
    """

    source: Source
    model: str
    scores: Mapping[str, float]
    average: float | None = None

    @property
    def title(self) -> str:
        return f"{self.model} ({self.source})"

    def of(self, key: str) -> float | None:
        """The score of a set or group; None where the source has none."""
        return self.scores.get(key)

    def macro(self, sets: Iterable[str]) -> float | None:
        """The mean over these sets; None unless the source has a number for every one.

        A group counts once for each of its sets, if all of them are among these: its number stands for their mean.
        Over just the sets of the source it is the average that the source prints.
        """
        wanted = set(sets)
        if self.average is not None and wanted == {name for row in rows(self.source) for name in row.sets}:
            return self.average
        found = {name: self.scores[name] for name in wanted if name in self.scores}
        for row in rows(self.source):
            if row.key in self.scores and wanted.issuperset(row.sets):
                found |= {name: self.scores[row.key] for name in row.sets}
        return (
            statistics.fmean(found[name] for name in sorted(wanted)) if wanted and len(found) == len(wanted) else None
        )


@cache
def _tables() -> Mapping[str, Any]:
    tables: Mapping[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return tables


@cache
def rows(source: Source) -> tuple[PublishedRow, ...]:
    """The rows of that table, in its order."""
    return tuple(
        PublishedRow(row["set"], row["name"], row.get("dimension", ""), tuple(row.get("sets", [row["set"]])))
        for row in _tables()[source]["rows"]
    )


def models(source: Source) -> tuple[str, ...]:
    """The models of that table, in its order."""
    return tuple(_tables()[source]["models"])


@cache
def column(source: Source, model: str) -> Column:
    """What that source says of that model.

    Raises:
        ValueError: it says nothing of it.
    """
    if model not in models(source):
        raise ValueError(f"the {source} has no model {model!r}; it has {', '.join(models(source))}")
    table, at = _tables()[source], models(source).index(model)
    average = table["average"][at] if "average" in table else None
    return Column(source, model, {row["set"]: row["values"][at] for row in table["rows"]}, average)
