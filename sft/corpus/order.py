"""The order in which the rows are trained: a full shuffle that needs no memory and no state.

An epoch is a permutation of all its positions by a keyed bijection that is computed, not stored: a Feistel network over
the next power of four, applied until the result lies within the epoch (short orders use a table instead). Seed and
epoch are the key. So the endless order of a run (epoch after epoch) can be computed at any position, and a resumed run
only has to know its step.

A group of files with ratio r gives floor(r) whole passes per epoch. The remaining fraction is a part of the group that
moves on from epoch to epoch through one fixed shuffle: half of the group now, the other half in the next epoch.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

ROUNDS = 8
FEW = 4096  # up to this size an order is a table, sorted by hashes: a small network is slow and shuffles badly


class Permutation:
    """A pseudo-random permutation of range(size), computed on demand; equal keys give equal permutations."""

    def __init__(self, size: int, *key: object) -> None:
        self.size = size
        half = -(-max(1, (size - 1).bit_length()) // 2)
        self._half, self._mask = np.uint64(half), np.uint64((1 << half) - 1)
        digest = b"".join(hashlib.sha256(repr((key, size, part)).encode()).digest() for part in range(ROUNDS // 4))
        self._keys = np.frombuffer(digest, dtype="<u8")[:ROUNDS]
        few: np.ndarray | None = np.arange(size, dtype=np.uint64) if size <= FEW else None
        self._table = None if few is None else np.argsort(_mix(_mix(few ^ self._keys[0]) ^ self._keys[1]))

    def at(self, places: np.ndarray) -> np.ndarray:
        """The permuted numbers at these places (int64)."""
        if self._table is not None:
            return self._table[places]
        numbers: np.ndarray = places.astype(np.uint64)
        todo = np.arange(numbers.size)
        while todo.size:  # cycle walking: apply the network again to numbers that lie outside of range(size)
            numbers[todo] = self._network(numbers[todo])
            todo = todo[numbers[todo] >= np.uint64(self.size)]
        return numbers.astype(np.int64)

    def _network(self, numbers: np.ndarray) -> np.ndarray:
        left, right = numbers >> self._half, numbers & self._mask
        for key in self._keys:
            left, right = right, left ^ (_mix(right ^ key) & self._mask)
        return (left << self._half) | right


def _mix(numbers: np.ndarray) -> np.ndarray:
    """Hash each number: two rounds of multiplying and folding, modulo 2**64."""
    mixed: np.ndarray = numbers * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return mixed ^ (mixed >> np.uint64(32))


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
            rows[partial] = Permutation(self.count, seed, "rest", self.first).at(
                (begin + places[partial] - whole) % self.count
            )
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
            shuffled = Permutation(len(self), self.seed, "epoch", epoch).at(positions[here] % len(self))
            rows[here] = self._unshuffled(shuffled, epoch)
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
