"""Refuse to train on rows that the run's own generative test asks about.

A corpus of `sft.distill` names the task file and row of each conversation, in whatever format it is now. Other corpora
do not, so they cannot be compared. Rows are compared by group (`soul.rows.overlap`); texts count as the same by the
share of words that the corpus was distilled with (`--near`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from ditto.settings import BadConfig
from sft.corpus.columns import NEAR_COLUMN, ORIGIN, origin
from sft.formats.reading import columns_of, family_of, read_records
from soul.rows.near_text import NEAR
from soul.rows.overlap import HeldOut
from soul.rows.task_files import read_rows


def check_overlap(corpus: Iterable[Path], tested: Iterable[Path], allowed: bool) -> list[str]:
    """Compare a training corpus with the task files of the generative test.

    Args:
        allowed: accept overlaps (`data.allow_overlap`).

    Returns:
        Lines for the plan: accepted overlaps, and task files that are missing.
    """
    asked = read_rows([str(file) for file in tested])
    lines: list[str] = []
    overlaps: list[str] = []
    for (near, file), numbers in sorted(_played(corpus).items()):
        if not Path(file).is_file():
            lines.append(f"not compared with the test: conversations on {file}, because that file is missing")
            continue
        rows = [row for row in read_rows([file]) if row.number in numbers]
        overlaps += map(str, HeldOut(asked, near).overlaps(rows))
    if overlaps and not allowed:
        raise BadConfig(
            "data.train_files holds conversations about the same stories, conversations, books or users as "
            f"trainer.rl_test_files, so the test would reward memorisation. {'. '.join(overlaps)}. Build "
            "the corpus again with --not-in (python -m sft.distill --help), or set data.allow_overlap=true to train on "
            "it anyway."
        )
    return [*lines, *(f"OVERLAP {overlap} (data.allow_overlap=true)" for overlap in overlaps)]


def _played(corpus: Iterable[Path]) -> dict[tuple[float, str], set[int]]:
    """The rows that the conversations of a corpus are about, by the corpus' `--near` and by task file."""
    played: defaultdict[tuple[float, str], set[int]] = defaultdict(set)
    for path in corpus:
        present = set(columns_of(path))
        # The columns of a JSON file are those of its first rows only.
        if {"file", "row", "record"} <= present or family_of(path) == "json":
            wanted = [name for name in (*ORIGIN, "train_role") if name in present]
            for row in filter(None, map(origin, read_records(path, wanted))):
                played[row.get(NEAR_COLUMN, NEAR), row["file"]].add(row["row"])
    return dict(played)
