"""Suites: fixed choices of sets and rows, so that two people who name the same suite evaluate the same thing.

    SUITE=paper bash recipe/ditto/eval.sh api        soul evaluate --suite paper
    soul evaluate --suite hitom,sotopia              these sets, all rows

The judges of all suites are the paper's (`soul.judge.roles.PAPER_JUDGES`) unless you name your own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from soul.errors import BadSettings
from soul.suites import soul_v1
from soul.suites.published import Column


@dataclass(frozen=True)
class Suite:
    """The sets and rows that are evaluated under one name.

    Attributes:
        rows: of each set, drawn by the seed; None: all rows of the file.
        columns: the published numbers to show beside it.
        source: where the protocol is described.
    """

    name: str
    sets: tuple[str, ...]
    rows: int | None
    columns: tuple[Column, ...]
    source: str


SUITES: Mapping[str, Suite] = {
    "paper": Suite(
        "paper",
        soul_v1.PAPER,
        soul_v1.PAPER_ROWS,
        soul_v1.PAPER_COLUMNS,
        "paper, section 5: 100 sampled rows of each of the ten tasks",
    ),
    "soul_v1": Suite(
        "soul_v1",
        tuple(soul_v1.SETS),
        None,
        soul_v1.COLUMNS,
        "model card of Ditto-8B: 27 sets in 23 rows; it does not say how many rows of each",
    ),
}
ALIASES: Mapping[str, str] = {"all": "soul_v1", "card": "soul_v1"}


def suite(name: str) -> Suite:
    """The suite of that name.

    Raises:
        BadSettings: there is none.
    """
    named = SUITES.get(ALIASES.get(name, name))
    if named is None:
        raise BadSettings(
            f"There is no suite {name!r}. There are: {', '.join([*SUITES, *ALIASES])}; or name sets: {_EXAMPLE}."
        )
    return named


_EXAMPLE = ",".join(soul_v1.PAPER[:2])
