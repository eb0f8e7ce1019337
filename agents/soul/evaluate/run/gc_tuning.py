"""How often Python's garbage collector runs during an evaluation."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 50_000  # objects created and not freed before the youngest generation is collected; Python's default is 700
OLDER = 20  # collections of a generation before the next older one is collected


@contextmanager
def infrequent_gc() -> Iterator[None]:
    """Collect garbage less often, and never among the objects that exist already; also a decorator.

    A run keeps every sample. With Python's defaults, a fifth of its CPU time goes into scanning all imported and kept
    objects again and again for reference cycles, which are rare here.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(YOUNG, OLDER, OLDER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
