"""Rows of token ids as a tree: what several rows begin with is one node, and their continuations are its children.

The tokens of the tree are laid out node by node, parents before their children and each node directly before all that
follows from it. So the tokens of a node are one slice, and those of all its descendants the slice behind it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ids: TypeAlias = NDArray[np.int64]

# A shared beginning that is shorter than this is computed in every row: a node costs one more call of the attention
# kernel in every layer, and a few tokens cost less.
SHORTEST = 16


@dataclass(frozen=True)
class Node:
    """A run of tokens that the same rows share.

    Attributes:
        start, end: the slice of its tokens.
        last: the end of its last descendant; `end` if it has none.
        parent: the number of the node that it continues, or -1.
    """

    start: int
    end: int
    last: int
    parent: int


@dataclass(frozen=True)
class Tree:
    """Rows as a tree.

    Attributes:
        nodes: parents before their children.
        source: for each token of the tree, its place in the rows, one after the other.
        places: for each token of the rows, its place in the tree.
    """

    nodes: list[Node]
    source: Ids
    places: Ids


@dataclass(frozen=True)
class SortedRows:
    """Rows in the order in which those that share the most are neighbours.

    Attributes:
        order: numbers of the rows.
        lengths: of the rows, in this order.
        shared: how many tokens each row has in common with the one before it; 0 for the first.
    """

    order: list[int]
    lengths: Ids
    shared: Ids

    def cost(self, first: int, end: int) -> int:
        """Tokens of a tree of the rows from `first` to `end`, of which each beginning is computed once."""
        return int(self.lengths[first:end].sum() - self.shared[first + 1 : end].sum())


def sort_rows(rows: Sequence[Ids]) -> SortedRows:
    """Sort rows by their ids, as words are sorted by their letters."""
    letters = [row.astype(">u8").tobytes() for row in rows]  # big-endian: bytes compare like the ids
    order = sorted(range(len(rows)), key=letters.__getitem__)
    pairs = zip(order[:-1], order[1:], strict=True)
    shared = [0, *(_shared(rows[a], rows[b]) for a, b in pairs)]
    return SortedRows(order, np.array([len(rows[i]) for i in order]), np.array(shared))


def _shared(one: Ids, other: Ids) -> int:
    length = min(len(one), len(other))
    differs = one[:length] != other[:length]
    return int(differs.argmax()) if differs.any() else length


def grow(rows: Sequence[Ids]) -> Tree:
    """The tree of these rows. Rows that are equal share everything, also if they are shorter than `SHORTEST`."""
    known = sort_rows(rows)
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    source, places = np.empty(starts[-1], np.int64), np.empty(starts[-1], np.int64)
    spans: list[list[int]] = []  # of each node: start, end, parent
    tokens = 0
    pending = [(0, len(rows), 0, -1)]  # (first row, end of rows, tokens that are placed, parent)
    while pending:
        first, end, depth, parent = pending.pop()
        alone = end - first == 1
        longest = int(known.lengths[end - 1])
        common = longest if alone else int(known.shared[first + 1 : end].min())
        if common > depth and (alone or common - depth >= SHORTEST or common == longest):
            size = common - depth
            for row in known.order[first:end]:
                places[starts[row] + depth : starts[row] + common] = np.arange(tokens, tokens + size)
            of_first = starts[known.order[first]]
            source[tokens : tokens + size] = np.arange(of_first + depth, of_first + common)
            spans.append([tokens, tokens + size, parent])
            tokens, depth, parent = tokens + size, common, len(spans) - 1
        if not alone:
            splits = [first, *(first + 1 + np.flatnonzero(known.shared[first + 1 : end] == common)), end]
            children = [(int(a), int(b), depth, parent) for a, b in zip(splits[:-1], splits[1:], strict=True)]
            pending += reversed(children)
    return Tree(_nodes(spans), source[:tokens], places)


def _nodes(spans: list[list[int]]) -> list[Node]:
    last = [end for _, end, _ in spans]
    for number in reversed(range(len(spans))):
        parent = spans[number][2]
        if parent >= 0:
            last[parent] = max(last[parent], last[number])
    return [Node(start, end, last[i], parent) for i, (start, end, parent) in enumerate(spans)]
