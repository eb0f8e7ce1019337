"""Copy a task file without the rows that share a group with evaluated ones, one batch of rows in memory at a time.

Every row is validated by its task's schema on the way. Groups are those of `Task.group_keys`: rows that share a key,
directly or through other rows, are one group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from soul.files.whole_file import whole_file
from soul.rows.overlap import HeldOut, ScopedKey, group_keys
from soul.rows.task_files import TaskRow, parse_row

_BATCH = 250
_EXAMPLES = 3


@dataclass(frozen=True)
class Kept:
    """What the copy holds.

    Attributes:
        rows, groups: in the copy.
        left_out_rows, left_out_groups: of the rows that share a group with evaluated ones.
        examples: names of the first groups that were left out.
    """

    rows: int
    groups: int
    left_out_rows: int
    left_out_groups: int
    examples: tuple[str, ...]


class GroupCount:
    """Counts groups: rows that share a key, directly or through other rows, are one group."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}  # by the key's hash: a conversation has a key for each of its lines

    def add(self, keys: Iterable[ScopedKey]) -> None:
        """Add the keys of one row."""
        roots = [self._root(hash(key)) for key in keys]
        for root in roots[1:]:
            self._parent[self._root(root)] = self._root(roots[0])

    def _root(self, key: int) -> int:
        parent = self._parent.setdefault(key, key)
        while parent != self._parent[parent]:
            self._parent[key] = self._parent[parent]
            key, parent = parent, self._parent[parent]
        return parent

    def __len__(self) -> int:
        return sum(key == parent for key, parent in self._parent.items())


def copy_kept(
    source: Path,
    out: Path,
    held_out: HeldOut,
    on_row: Callable[[TaskRow], None] = lambda row: None,
    on_left_out: Callable[[TaskRow, ScopedKey], None] = lambda row, shared: None,
) -> Kept:
    """Copy the task file `source` to `out`, completely or not at all.

    Args:
        held_out: the groups of the evaluation rows.
        on_row: called with each row of the copy, in order.
        on_left_out: called with each other row, and a key that it shares.

    Raises:
        BadRow: a row does not satisfy its task's schema.
        ValueError: every row shares a group with evaluated ones.
    """
    kept, left_out = GroupCount(), GroupCount()
    examples: dict[str, None] = {}
    rows = number = 0
    out.parent.mkdir(parents=True, exist_ok=True)
    reader = pq.ParquetFile(source)
    with whole_file(out, shared=True) as partial, pq.ParquetWriter(partial, reader.schema_arrow) as writer:
        for batch in reader.iter_batches(_BATCH):
            chosen = []
            for place, record in enumerate(batch.to_pylist()):
                row = parse_row(record["data_source"], record["extra_info"], str(source), number)
                number += 1
                keys = group_keys(row)
                if shared := held_out.shared_keys(keys):
                    left_out.add(shared)
                    on_left_out(row, shared[0])
                    examples |= {str(shared[0][1]): None} if len(examples) < _EXAMPLES else {}
                else:
                    kept.add(keys)
                    on_row(row)
                    chosen.append(place)
            rows += len(chosen)
            if chosen:  # an empty list has no type by which rows could be taken
                writer.write_table(pa.Table.from_batches([batch]).take(chosen))
        if not rows:
            raise ValueError(f"every one of its {number:,} rows shares a group with an evaluation set; use other rows")
    return Kept(rows, len(kept), number - rows, len(left_out), tuple(examples))
