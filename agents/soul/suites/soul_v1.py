"""Suites: fixed choices of sets and rows, so that two people who name the same suite evaluate the same thing.

    SUITE=paper bash recipe/ditto/eval.sh api        python -m soul.evaluate --suite paper

Suites are frozen: a new task or a new set changes none of them. The judges of all suites are the paper's
(`soul.judge.roles.PAPER_JUDGES`) unless you name your own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from soul import tasks
from soul.errors import BadSettings
from soul.suites.published import Column, column

_CARD = ("Qwen3 8B Inst", "Ditto-8B", "GPT 5.5")
_PAPER = ("GPT-5.4", "GPT-5 nano", "Base 8B", "GRPO 8B", "Ditto 8B")


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
        ("fantom", "hitom", "paratomi", "coser", "lifechoices")
        + ("sotopia", "mistakes", "mirrorbench", "userllm", "twinvoice"),
        100,
        tuple(column("paper", model) for model in _PAPER),
        "paper, section 5: 100 sampled rows of each of the ten tasks",
    ),
    "card": Suite(
        "card",
        tuple(tasks.SETS),
        None,
        (*(column("card", model) for model in _CARD), *(column("paper", model) for model in ("Base 8B", "Ditto 8B"))),
        "model card of Ditto-8B: 27 sets in 23 rows; it does not say how many rows of each",
    ),
}
ALIASES: Mapping[str, str] = {"all": "card"}


def suite(name: str) -> Suite:
    """The suite of that name.

    Raises:
        BadSettings: there is none.
    """
    found = SUITES.get(ALIASES.get(name, name))
    if found is None:
        raise BadSettings(f"There is no suite {name!r}. There are: {', '.join([*SUITES, *ALIASES])}.")
    return found
