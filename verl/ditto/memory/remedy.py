"""Find the overrides that make a run fit: smaller micro-batches, more offloading, or more devices for the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Change = dict[str, Any]  # field of a setup -> its value
Knobs = Iterable[list[Change]]  # the cheapest knob first; its values, the mildest first
TOKEN_STEP = 4096  # tokens between two suggested limits of a micro-batch


def find_remedy(knobs: Knobs, fits: Callable[[Change], bool]) -> Change | None:
    """Turn one knob after the other all the way until the run fits, then each one back as far as it still fits.

    Args:
        fits: computes the memory with some changes.
    """
    turned: list[list[Change]] = []
    for knob in knobs:
        if knob:
            turned.append(knob)
            if fits(_merged([values[-1] for values in turned])):
                break
    else:
        return None
    chosen = [values[-1] for values in turned]
    for place, values in reversed(list(enumerate(turned))):  # the dearest knob first
        for value in ({}, *values):
            if fits(_merged([*chosen[:place], value, *chosen[place + 1 :]])):
                chosen[place] = value
                break
    return _merged(chosen)


def _merged(changes: Iterable[Change]) -> Change:
    return {field: value for change in changes for field, value in change.items()}


def lower_limits(limit: int, longest: int) -> list[int]:
    """Lower token limits of a micro-batch. The lowest is the longest sequence, which must fit."""
    steps = range((limit - 1) // TOKEN_STEP * TOKEN_STEP, longest, -TOKEN_STEP)
    return [*steps, longest] if limit > longest else []


def overrides(change: Change, keys: Mapping[str, str]) -> list[str]:
    """A change as overrides for the command line.

    Args:
        keys: field -> key of the config.
    """
    return [f"{keys[field]}={str(value).lower()}" for field, value in change.items()]
