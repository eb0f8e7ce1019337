"""The rows of evaluations, which must not be trained on (`--not-in`).

A training row is held out if it shares a group with an evaluation row: a story and its paraphrases, a conversation, a
book or a user. `soul.rows.overlap` defines the groups. A text that differs from an evaluated one in spaces, case,
punctuation or a few words only counts as the same (`--near`).
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from soul import tasks
from soul.errors import BadSettings
from soul.evaluate.run.settings import choose_sets
from soul.record import record_hash
from soul.rows.overlap import HeldOut, ScopedKey, group_keys
from soul.rows.task_files import TaskRow, read_rows
from soul.suites import soul_v1
from soul.task_types import GroupKey


@dataclass(frozen=True)
class RowIdentity:
    """The identity of a row, before it is shortened for a model."""

    record: str  # a hash of the record without its index
    keys: tuple[ScopedKey, ...] = ()  # the groups that the row is in

    @classmethod
    def from_row(cls, row: TaskRow) -> RowIdentity:
        return cls(record_hash(row.row), tuple(group_keys(row)))

    @classmethod
    def from_json(cls, value: Any) -> RowIdentity:
        """Read `to_json`; raises ValueError or TypeError if the value has another form."""
        record, keys = value
        return cls(str(record), tuple((scope, GroupKey(*key)) for scope, key in keys))

    def to_json(self) -> Any:
        return [self.record, self.keys]


def read_held_out(words: Sequence[str], data_dir: Path, near: float) -> HeldOut:
    """The groups that files (paths and globs) and evaluation sets (names) hold out from training.

    Args:
        near: the share of word pairs from which two texts count as the same, above 0 to 1 (`NearTexts`).
    """
    files: list[Path] = []
    for word in words:
        if word in soul_v1.SETS or word in tasks.names():
            files += choose_sets([word], data_dir).values()
        elif found := sorted(glob.glob(word, recursive=True)):
            files += map(Path, found)
        else:
            raise BadSettings(f"--not-in {word}: no such file, and no evaluation set has this name.")
    return HeldOut(read_rows([str(file) for file in files]), near)
