"""Rows that an evaluation asks about: none of them may be trained on (`--not-in`).

A training row is such a row if its record holds the same values, whatever its place in its file, or if it shows the
policy the very same prompt: training and evaluation files do not always have the same columns.
"""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from agents import tasks
from agents.errors import BadSettings
from agents.evaluate.settings import choose_sets
from agents.rows import TaskRow, read_rows


class Unseen:
    """The rows of evaluations, by what tells rows apart."""

    def __init__(self, rows: Iterable[TaskRow] = ()) -> None:
        self._known = {print_ for row in rows for print_ in fingerprints(row)}

    @classmethod
    def read(cls, words: Sequence[str], data_dir: Path) -> Unseen:
        """The rows of these files (paths and globs) and evaluation sets (names).

        Raises:
            BadSettings: a word is neither, or names no file. BadRow: a file cannot be read.
        """
        return cls(read_rows([str(file) for word in words for file in _files(word, data_dir)]))

    def holds(self, prints: Iterable[str]) -> bool:
        """Whether a row with these fingerprints is one of an evaluation."""
        return not self._known.isdisjoint(prints)

    def __bool__(self) -> bool:
        return bool(self._known)


def fingerprints(row: TaskRow) -> tuple[str, str]:
    """Of the record without its index, and of the prompt that the policy sees first."""
    record = row.row.model_dump(mode="json", exclude={"index"})
    return _hash(["record", record]), _hash(["prompt", row.task.prompt(row.row)])


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _files(word: str, data_dir: Path) -> list[Path]:
    if word in tasks.SETS or word in tasks.names():
        return list(choose_sets([word], data_dir).values())
    found = [Path(file) for file in sorted(glob.glob(word, recursive=True))]
    if not found:
        raise BadSettings(f"--not-in {word}: no such file, and no evaluation set of that name. (It may be a glob.)")
    return found
