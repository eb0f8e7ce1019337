"""The order in which the rows are trained: a full shuffle for each epoch, which seed and epoch determine.

So the endless order of a run (epoch after epoch) is known at any position, and a resumed run only has to know its step.

A group of files with ratio r gives floor(r) whole passes per epoch. The remaining fraction is a part of the group that
moves on from epoch to epoch through one fixed shuffle: half of the group now, the other half in the next epoch.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache

import numpy as np

SHUFFLE = "numpy"  # recorded in checkpoints: a run does not resume with another shuffle


def shuffled(size: int, *key: object) -> np.ndarray:
    """The numbers of range(size) in random order; equal keys give equal orders in every version of numpy."""
    seed = np.frombuffer(hashlib.sha256(repr(key).encode()).digest(), dtype="<u4")
    return np.random.RandomState(seed).permutation(size).astype(np.uint32)  # 4 bytes per row are kept in memory


_order_of_epoch = lru_cache(maxsize=2)(shuffled)  # a step may end one epoch and begin the next
_order_of_group = cache(shuffled)


@dataclass(frozen=True)
class Part:
    """The rows of one group of files."""

    first: int  # number of its first row
    count: int
    ratio: Fraction = Fraction(1)  # passes per epoch

    @property
    def passes(self) -> int:
        """Whole passes per epoch."""
        return int(self.ratio)

    @property
    def rest(self) -> int:
        """Rows of the partial pass; at least one, so that a small group with a small ratio is not lost."""
        rest = self.ratio - self.passes
        return max(1, round(rest * self.count)) if rest and self.count else 0

    def __len__(self) -> int:
        return self.passes * self.count + self.rest

    def rows(self, places: np.ndarray, epoch: int, seed: int) -> np.ndarray:
        """The rows at these places of the part in an epoch, before the shuffle."""
        whole = self.passes * self.count
        rows: np.ndarray = places % self.count
        partial = places >= whole
        if partial.any():
            begin = epoch * self.rest
            order = _order_of_group(self.count, seed, "rest", self.first)
            rows[partial] = order[(begin + places[partial] - whole) % self.count]
        return self.first + rows


class Order:
    """The endless order of the rows of several parts; `len` is the length of an epoch."""

    def __init__(self, parts: Sequence[Part], seed: int) -> None:
        self.parts = [part for part in parts if len(part)]
        self.seed = seed
        self._first = np.cumsum([0, *(len(part) for part in self.parts)])

    def __len__(self) -> int:
        return int(self._first[-1])

    def at(self, positions: np.ndarray) -> np.ndarray:
        """The rows at positions of the endless order."""
        rows: np.ndarray = np.empty(len(positions), dtype=np.int64)
        epochs: np.ndarray = positions // len(self)
        for epoch in np.unique(epochs).tolist():
            here = np.flatnonzero(epochs == epoch)
            order = _order_of_epoch(len(self), self.seed, "epoch", epoch)
            rows[here] = self._unshuffled(order[positions[here] % len(self)], epoch)
        return rows

    def step(self, step: int, size: int) -> np.ndarray:
        """The rows of a step (from 0), for all ranks; an epoch's last step continues into the next epoch."""
        return self.at(np.arange(step * size, (step + 1) * size))

    def epoch_rows(self, epoch: int) -> np.ndarray:
        """The rows of an epoch in ascending order."""
        return np.sort(self._unshuffled(np.arange(len(self)), epoch))

    def _unshuffled(self, places: np.ndarray, epoch: int) -> np.ndarray:
        rows: np.ndarray = np.empty(len(places), dtype=np.int64)
        parts = np.searchsorted(self._first, places, side="right") - 1
        for part in np.unique(parts).tolist():
            here = np.flatnonzero(parts == part)
            rows[here] = self.parts[part].rows(places[here] - self._first[part], epoch, self.seed)
        return rows
