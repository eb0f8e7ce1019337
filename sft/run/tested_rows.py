"""Refuse to train on rows that the run's own generative test asks about.

A corpus of `sft.distill` names the task file and row of each conversation. Other corpora do not, so they cannot be
compared. Rows are compared by group (`soul.rows.overlap`); a text with a few other words counts as the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ditto.settings import BadConfig
from sft.corpus.columns import ORIGIN
from soul.rows.near_text import NEAR
from soul.rows.overlap import HeldOut
from soul.rows.task_files import read_rows

DISTILLED = {*ORIGIN, "train_role"}  # columns of `sft.distill.dataset`; "file" and "row" alone could mean anything


def check_overlap(corpus: Iterable[Path], tested: Iterable[Path], allowed: bool) -> list[str]:
    """Compare a training corpus with the task files of the generative test.

    Args:
        allowed: accept overlaps (`data.allow_overlap`).

    Returns:
        Lines for the plan: accepted overlaps, and missing task files that could not be compared.

    Raises:
        BadConfig: a conversation is about a group of the test.
        BadRow: a task file cannot be read.
    """
    held_out = HeldOut(read_rows([str(file) for file in tested]), NEAR)
    lines: list[str] = []
    overlaps: list[str] = []
    for file, numbers in sorted(_played(corpus).items()):
        if Path(file).is_file():
            rows = (row for row in read_rows([file]) if row.number in numbers)
            overlaps += map(str, held_out.overlaps(rows))
        else:
            lines.append(f"not compared with the test: conversations on {file}, because that file is missing")
    if overlaps and not allowed:
        raise BadConfig(
            "data.train_files holds conversations about the same stories, conversations, books or users as "
            f"trainer.rl_test_files, so the test would reward memorisation. {'. '.join(overlaps)}. Build "
            "the corpus again with --not-in (python -m sft.distill --help), or set data.allow_overlap=true to train on "
            "it anyway."
        )
    return [*lines, *(f"OVERLAP {overlap} (data.allow_overlap=true)" for overlap in overlaps)]


def _played(corpus: Iterable[Path]) -> dict[str, set[int]]:
    """The rows that the conversations of a corpus are about: task file -> row numbers."""
    played: defaultdict[str, set[int]] = defaultdict(set)
    for path in corpus:
        try:
            distilled = set(pq.read_schema(path).names) >= DISTILLED
        except (pa.ArrowException, OSError):
            continue  # `open_corpus` reports this file
        if distilled:
            columns = pq.read_table(path, columns=["file", "row"]).to_pydict()
            for file, number in zip(columns["file"], columns["row"], strict=True):
                played[file].add(number)
    return played
