"""The groups that rows belong to: a story with its paraphrases, a conversation, a book or a user.

A row can have several keys (`soul.rows.overlap`). Rows that share one, directly or through other rows, are one group.
"""

from __future__ import annotations

from collections.abc import Iterable

from scipy.cluster.hierarchy import DisjointSet

from sft.distill.sample import ExpertSample


def group_names(samples: Iterable[ExpertSample]) -> dict[str, str]:
    """Row (the fingerprint of its record) -> a name of its group, which does not depend on the order of the samples.

    A row without keys is a group of its own.
    """
    rows = {sample.row: sample.keys for sample in samples}
    groups = DisjointSet(key for keys in rows.values() for key in keys)
    for keys in rows.values():
        for key in keys[1:]:
            groups.merge(keys[0], key)
    name_of = {key: repr(min(group)) for group in groups.subsets() for key in group}
    return {row: name_of[keys[0]] if keys else row for row, keys in rows.items()}
