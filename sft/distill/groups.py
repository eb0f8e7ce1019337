"""The groups that rows belong to: a story with its paraphrases, a conversation, a book or a user.

A row can have several keys (`soul.rows.overlap`). Rows that share one, directly or through other rows, are one group.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from sft.distill.sample import ExpertSample
from soul.rows.overlap import ScopedKey

Node = TypeVar("Node")


def group_names(samples: Iterable[ExpertSample]) -> dict[str, str]:
    """Row (the fingerprint of its record) -> a name of its group, which does not depend on the order of the samples.

    A row without keys is a group of its own.
    """
    rows = {sample.row: sample.keys for sample in samples}
    parents: dict[ScopedKey, ScopedKey] = {}
    for keys in rows.values():
        for key in keys:
            first, other = sorted((_root(parents, keys[0]), _root(parents, key)))
            parents[other] = first  # the smallest key is the root, and so the name
    return {row: repr(_root(parents, keys[0])) if keys else row for row, keys in rows.items()}


def _root(parents: dict[Node, Node], node: Node) -> Node:
    """The root of a node's tree; the path to it becomes shorter."""
    while (parent := parents.setdefault(node, node)) != node:
        parents[node] = node = parents[parent]
    return node
