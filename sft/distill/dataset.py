"""Write train.parquet and val.parquet: the kept conversations as SFT rows, with their provenance.

All conversations of a task's row go into the same file. Which one depends only on the seed and the row's record, so a
row stays in its file when the selection changes.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sft.corpus.columns import NEAR_COLUMN
from sft.distill.conversation import TRAINED, Fingerprints, trainable
from sft.distill.sample import ExpertSample

TRAIN, VAL = "train.parquet", "val.parquet"
ROW_GROUP = 512
SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("train_role", pa.string()),
        ("task", pa.string()),
        ("file", pa.string()),
        ("row", pa.int64()),
        ("record", pa.string()),
        (NEAR_COLUMN, pa.float64()),
        ("seat", pa.string()),
        ("sample", pa.int64()),
        ("origin", pa.string()),
        ("context", pa.string()),
        ("expert", pa.string()),
        ("fingerprint", pa.string()),
        ("reward", pa.float64()),
        ("metrics", pa.string()),
        ("judge", pa.string()),
        ("prompts", pa.list_(pa.string())),
    ]
)


def in_validation(record: str, share: float, seed: int) -> bool:
    """Whether a row belongs to the validation file."""
    return random.Random(f"{seed}:held back:{record}").random() < share


def write(
    kept: Sequence[tuple[ExpertSample, tuple[Fingerprints, ...]]], out: Path, val_share: float, seed: int, near: float
) -> Counter[str]:
    """Write the two files. Each is written as a whole or not at all; a file without rows is removed.

    Args:
        kept: the samples, each with the conversations to write.
        val_share: share of the rows that goes into val.parquet, 0 to 1.
        near: the share of words by which the texts were compared with those of evaluations (`--near`).

    Returns:
        File name -> number of rows.
    """
    counts: Counter[str] = Counter()
    out.mkdir(parents=True, exist_ok=True)
    partials = {name: out / f"{name}.partial" for name in (TRAIN, VAL)}
    with ExitStack() as stack:
        writers = {name: stack.enter_context(pq.ParquetWriter(path, SCHEMA)) for name, path in partials.items()}
        buffers: dict[str, list[dict[str, Any]]] = {TRAIN: [], VAL: []}
        for sample, seats in kept:
            name = VAL if in_validation(sample.row, val_share, seed) else TRAIN
            buffers[name] += _rows(sample, seats, near)
            if len(buffers[name]) >= ROW_GROUP:
                counts[name] += _flush(writers[name], buffers[name])
        for name, rows in buffers.items():
            counts[name] += _flush(writers[name], rows)
    for name, path in partials.items():
        if counts[name]:
            path.replace(out / name)
        else:
            path.unlink()
            (out / name).unlink(missing_ok=True)
    return counts


def _rows(sample: ExpertSample, seats: Sequence[Fingerprints], near: float) -> Iterator[dict[str, Any]]:
    record = sample.place.read()
    provenance = sample.source.provenance(sample, record)
    conversations = sample.source.conversations(record)
    for seat in seats:
        yield {
            "data_source": sample.data_source,
            "messages": trainable(conversations[seat.seat]),
            "train_role": TRAINED,
            "task": sample.task,
            "file": provenance.file,
            "row": sample.number,
            "record": sample.row,
            NEAR_COLUMN: near,
            "seat": seat.seat,
            "sample": sample.sample,
            "origin": sample.source.origin,
            "context": provenance.context,
            "expert": provenance.expert,
            "fingerprint": provenance.fingerprint,
            "reward": sample.reward,
            "metrics": json.dumps(dict(provenance.metrics)),
            "judge": provenance.judge,
            "prompts": list(provenance.prompts),
        }


def _flush(writer: pq.ParquetWriter, rows: list[dict[str, Any]]) -> int:
    """Write the rows, empty the list, and return how many there were."""
    count = len(rows)
    if rows:
        writer.write_table(pa.Table.from_pylist(rows, schema=SCHEMA))
        rows.clear()
    return count
