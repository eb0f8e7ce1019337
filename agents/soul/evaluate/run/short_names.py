"""Short names for sets and checkpoints: the last part of a path, with parent folders if two would share it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def short_names(paths: Sequence[tuple[str, ...]], least: Sequence[int] | None = None) -> list[str]:
    """A name for each path: `run`; or `seed_1-run` and `seed_2-run`.

    Args:
        paths: the parts of each path, outermost first.
        least: the least number of trailing parts in each name; None: 1.

    Returns:
        The names, in the same order. Two are equal only if one path is a suffix of the other.
    """
    counts = list(least or [1] * len(paths))
    while True:
        names = ["-".join(parts[-count:]) for parts, count in zip(paths, counts, strict=True)]
        shared = {name for name, count in Counter(names).items() if count > 1}
        growing = [i for i, name in enumerate(names) if name in shared and counts[i] < len(paths[i])]
        if not growing:
            return names
        for i in growing:
            counts[i] += 1
