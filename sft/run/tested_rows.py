"""Refuse to train on rows that the run's own generative test asks about.

A corpus of `sft.distill` names the task file and row of each conversation, in whatever format it is now. Other corpora
do not, so they cannot be compared. Rows are compared by group (`soul.rows.overlap`); texts count as the same by the
share of words that the corpus was distilled with (`--near`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from ditto.settings import BadConfig
from sft.corpus.columns import NEAR_COLUMN, ORIGIN, origin
from sft.formats.reading import Record, columns_of, has_schema, read_records
from soul.record import record_hash
from soul.rows.near_text import NEAR
from soul.rows.overlap import HeldOut
from soul.rows.task_files import TaskRow, read_rows

# Task file -> row number -> the hash of the record that was played.
_Played = dict[str, dict[int, str]]


def check_overlap(corpus: Iterable[Path], tested: Iterable[Path], allowed: bool) -> list[str]:
    """Compare a training corpus with the task files of the generative test.

    Args:
        allowed: accept overlaps (`data.allow_overlap`).

    Returns:
        Lines for the plan: accepted overlaps, and task files that are missing or have changed.

    Raises:
        BadConfig: a conversation is about a group of the test.
        BadShard: a file of the corpus cannot be read. BadRow: a task file cannot be read.
    """
    asked = read_rows([str(file) for file in tested])
    lines: list[str] = []
    overlaps: list[str] = []
    for near, played in sorted(_played(corpus).items()):
        held_out = HeldOut(asked, near)
        for file, records in sorted(played.items()):
            if not Path(file).is_file():
                lines.append(f"not compared with the test: conversations on {file}, because that file is missing")
                continue
            rows = [row for row in read_rows([file]) if row.number in records]
            overlaps += map(str, held_out.overlaps(rows))
            lines += _changed(file, records, rows)
    if overlaps and not allowed:
        raise BadConfig(
            "data.train_files holds conversations about the same stories, conversations, books or users as "
            f"trainer.rl_test_files, so the test would reward memorisation. {'. '.join(overlaps)}. Build "
            "the corpus again with --not-in (python -m sft.distill --help), or set data.allow_overlap=true to train on "
            "it anyway."
        )
    return [*lines, *(f"OVERLAP {overlap} (data.allow_overlap=true)" for overlap in overlaps)]


def _changed(file: str, records: dict[int, str], rows: list[TaskRow]) -> Iterator[str]:
    """A line if rows of a task file are no longer those that were played."""
    same = sum(record_hash(row.row) == records[row.number] for row in rows)
    if same < len(records):
        yield (
            f"compared with the test by the rows of today: {file} has changed since {len(records) - same:,} of its "
            "rows were played"
        )


def _played(corpus: Iterable[Path]) -> dict[float, _Played]:
    """The rows that the conversations of a corpus are about, by the share of words that makes two texts the same."""
    played: defaultdict[float, defaultdict[str, dict[int, str]]] = defaultdict(lambda: defaultdict(dict))
    for path in corpus:
        for row in _origins(path):
            played[row.get(NEAR_COLUMN, NEAR)][row["file"]][row["row"]] = row["record"]
    return {near: dict(files) for near, files in played.items()}


def _origins(path: Path) -> Iterator[Record]:
    """The origins of the conversations of a file, if the file says so."""
    columns = columns_of(path)
    wanted = [name for name in (*ORIGIN, "train_role") if name in columns]
    if wanted or not has_schema(path):
        yield from filter(None, map(origin, read_records(path, wanted)))
