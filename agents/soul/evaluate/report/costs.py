"""Costs in the report. A note explains unknown prices once, instead of every cell."""

from __future__ import annotations

from collections.abc import Iterable

from soul.judge.call.usage import Usage
from soul.judge.ledger import money

UNKNOWN = money(Usage(requests=1, unpriced=1))  # the text in the terminal's table
DASH = "\N{EN DASH}"
NOTE = (
    f"A {DASH} under cost means that the price of a model is unknown. To set it, give policy.price_in and "
    "policy.price_out, judge.price_in and judge.price_out, in US dollars per million tokens."
)


def cell(text: str) -> str:
    """The text of a cost cell; a dash if the price is unknown."""
    return DASH if text == UNKNOWN else text


def any_known(usages: Iterable[Usage]) -> bool:
    """Whether at least one of these costs is known, so that a column is worth showing."""
    return any(money(usage) != UNKNOWN for usage in usages)
