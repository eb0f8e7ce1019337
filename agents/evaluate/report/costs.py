"""Costs in the report, where "price unknown" is said once and not in every cell."""

from __future__ import annotations

from collections.abc import Iterable

from agents.judge.ledger import money
from agents.judge.usage import Usage

UNKNOWN = money(Usage(requests=1, unpriced=1))  # what tables for the terminal say
DASH = "\N{EN DASH}"
NOTE = (
    f"A {DASH} under cost: the price of a model is not known. You can give it: policy.price_in and policy.price_out, "
    "judge.price_in and judge.price_out, in US dollars for a million tokens."
)


def cell(text: str) -> str:
    """What a cell shows: a dash where the price is not known."""
    return DASH if text == UNKNOWN else text


def any_known(usages: Iterable[Usage]) -> bool:
    """Whether a column of these costs would show anything."""
    return any(money(usage) != UNKNOWN for usage in usages)
