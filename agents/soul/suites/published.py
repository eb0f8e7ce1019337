"""The numbers that the authors published for each evaluation set, to compare a run with.

There are two tables: the model card of Ditto-8B (23 benchmarks) and the complete results of the paper (its ten tasks).
Their base models and protocols differ, so a column always names its source. All numbers are on the card's
scale, 0 to 100. The card has one number for AlignX, under the key "alignx"; AlignX's single sets have none.
"""

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
        key: the evaluation set or group of sets.
        name: its name in the source.
        dimension: the card's (CONV, SS, COG, ROLE, EVAL); "" for the paper.
        sets: the evaluation sets that the row covers.
    """

    key: str
    name: str
    dimension: str
    sets: tuple[str, ...]


@dataclass(frozen=True)
class Column:
    """The numbers of one model in one source.

    Attributes:
        scores: set or group -> score, 0 to 100.
        average: over all rows, as the source prints it; None for the card, which does not print one.
    """

    source: Source
    model: str
    scores: Mapping[str, float]
    average: float | None = None

    @property
    def title(self) -> str:
        return f"{self.model} ({self.source})"

    def macro(self, sets: Iterable[str]) -> float | None:
        """The mean over these sets; None unless the source has a number for each of them.

        A group's number counts once for each of its sets, provided that all of them are among these. For exactly the
        sets of the source, this is the average that the source prints.
        """
        wanted = set(sets)
        if self.average is not None and wanted == {name for row in rows(self.source) for name in row.sets}:
            return self.average
        scores = {name: self.scores[name] for name in wanted if name in self.scores}
        for row in rows(self.source):
            if row.key in self.scores and wanted.issuperset(row.sets):
                scores |= {name: self.scores[row.key] for name in row.sets}
        return (
            statistics.fmean(scores[name] for name in sorted(wanted)) if wanted and len(scores) == len(wanted) else None
        )


@cache
def _tables() -> Mapping[str, Any]:
    tables: Mapping[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return tables


@cache
def rows(source: Source) -> tuple[PublishedRow, ...]:
    """The rows of a source's table, in their order."""
    return tuple(
        PublishedRow(row["set"], row["name"], row.get("dimension", ""), tuple(row.get("sets", [row["set"]])))
        for row in _tables()[source]["rows"]
    )


def models(source: Source) -> tuple[str, ...]:
    """The models of a source's table, in their order."""
    return tuple(_tables()[source]["models"])


@cache
def column(source: Source, model: str) -> Column:
    """The numbers of a model in a source. Raises ValueError: the source has no such model."""
    if model not in models(source):
        raise ValueError(f"the {source} has no model {model!r}; it has {', '.join(models(source))}")
    table, at = _tables()[source], models(source).index(model)
    average = table["average"][at] if "average" in table else None
    return Column(source, model, {row["set"]: row["values"][at] for row in table["rows"]}, average)
