"""The rows of evaluations, which must not be trained on (`--not-in`).

A training row is held out if it shares a group with an evaluation row: a story and its paraphrases, a conversation, a
book or a user. `soul.rows.overlap` defines the groups.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from pathlib import Path

from soul import tasks
from soul.errors import BadSettings
from soul.evaluate.run.settings import choose_sets
from soul.record import digest, record_hash
from soul.rows.overlap import group_keys, held_out_keys
from soul.rows.task_files import TaskRow, read_rows
from soul.suites import soul_v1


class HeldOut:
    """The groups that evaluations hold out from training."""

    def __init__(self, rows: Iterable[TaskRow] = ()) -> None:
        self._keys = {digest(key) for row in rows for key in held_out_keys(row)}

    @classmethod
    def read(cls, words: Sequence[str], data_dir: Path) -> HeldOut:
        """Read the rows of files (paths and globs) and of evaluation sets (names).

        Raises:
            BadSettings: a word names neither a file nor a set. BadRow: a file cannot be read.
        """
        return cls(read_rows([str(file) for word in words for file in _files(word, data_dir)]))

    def contains(self, fingerprints: Iterable[str]) -> bool:
        """Whether a row with these fingerprints shares a group with an evaluation row."""
        return not self._keys.isdisjoint(fingerprints)

    def __bool__(self) -> bool:
        return bool(self._keys)


def fingerprints(row: TaskRow) -> tuple[str, ...]:
    """Hashes of the record without its index (this one identifies the row) and of each group that the row is in."""
    return record_hash(row.row), *(digest(key) for key in group_keys(row))


def _files(word: str, data_dir: Path) -> list[Path]:
    if word in soul_v1.SETS or word in tasks.names():
        return list(choose_sets([word], data_dir).values())
    files = [Path(file) for file in sorted(glob.glob(word, recursive=True))]
    if not files:
        raise BadSettings(f"--not-in {word}: no such file, and no evaluation set has this name. Globs are allowed.")
    return files
