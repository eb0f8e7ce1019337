"""How often Python looks for garbage during an evaluation."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 50_000  # objects made and not yet freed before the youngest are looked at; Python's own number is 700
OLDER = 20  # such looks before one at the next older ones


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Look for garbage seldom, and not among what is there already; also a decorator.

    A run keeps every sample. At Python's usual pace a fifth of its CPU goes into looking through all that was imported
    and kept, again and again, for cycles that hardly anybody makes here.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(YOUNG, OLDER, OLDER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
