"""Suites: named, fixed selections of sets and rows, so that two people who name one evaluate the same thing.

    SUITE=paper bash recipe/ditto/eval.sh api        soul evaluate --suite paper

The judges of all suites are the paper's (`soul.judge.roles.PAPER_JUDGES`) unless you name your own.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from soul.errors import BadSettings
from soul.suites import soul_v1
from soul.suites.published import Column


@dataclass(frozen=True)
class Suite:
    """The sets and rows that are evaluated under one name.

    Attributes:
        rows: number of rows of each set, drawn by the seed; None: all.
        columns: the published numbers to show beside the results.
    """

    name: str
    sets: tuple[str, ...]
    rows: int | None
    columns: tuple[Column, ...]


SUITES: Mapping[str, Suite] = {
    "paper": Suite(
        "paper",
        soul_v1.PAPER,
        soul_v1.PAPER_ROWS,
        soul_v1.PAPER_COLUMNS,  # section 5: 100 sampled rows of each of the ten tasks
    ),
    "soul_v1": Suite(
        "soul_v1",
        tuple(soul_v1.SETS),
        None,
        soul_v1.COLUMNS,  # the model card of Ditto-8B does not say how many rows of each
    ),
}


def suite(name: str) -> Suite:
    """The suite with this name. Raises BadSettings if there is none."""
    named = SUITES.get(name)
    if named is None:
        raise BadSettings(
            f"There is no suite {name!r}. Choose {' or '.join(SUITES)}, or list sets, for example "
            f"{','.join(soul_v1.PAPER[:2])}."
        )
    return named
