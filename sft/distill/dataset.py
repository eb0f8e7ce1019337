"""Write train.parquet and val.parquet: the kept conversations as SFT rows, with their provenance.

All conversations of a group (a story, a conversation, a book, a user) go into the same file: else the
validation would ask about what is trained. Which file depends only on the seed and the group, so a row stays in its
file when the selection changes.
"""

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from scipy.cluster.hierarchy import DisjointSet

from sft.distill.sample import TRAINED, ExpertSample, Fingerprints, trainable
from sft.distill.select import Selection
from soul.files.whole_file import whole_file

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
        ("seat", pa.string()),
        ("sample", pa.int64()),
        ("expert", pa.string()),
        ("fingerprint", pa.string()),
        ("reward", pa.float64()),
        ("metrics", pa.string()),
        ("judge", pa.string()),
        ("prompts", pa.list_(pa.string())),
    ]
)


def held_back(groups: Iterable[str], share: float, seed: int) -> set[str]:
    """The groups of the validation file; none if that would leave nothing to train, unless the share says so."""
    names = set(groups)
    drawn = {name for name in names if random.Random(f"{seed}:held back:{name}").random() < share}
    return drawn if drawn != names or share >= 1 else set()


def group_names(samples: Iterable[ExpertSample]) -> dict[str, str]:
    """Row (the fingerprint of its record) -> a name of its group, which does not depend on the order of the samples.

    A row can have several keys (`soul.rows.overlap`). Rows that share one, directly or through other rows, are one
    group. A row without keys is a group of its own.
    """
    rows = {sample.row: sample.keys for sample in samples}
    groups = DisjointSet(key for keys in rows.values() for key in keys)
    for keys in rows.values():
        for key in keys[1:]:
            groups.merge(keys[0], key)
    name_of = {key: repr(min(group)) for group in groups.subsets() for key in group}
    return {row: name_of[keys[0]] if keys else row for row, keys in rows.items()}


def write(selection: Selection, out: Path, val_share: float, seed: int) -> Counter[str]:
    """Write the two files. Each is written as a whole or not at all; a file without rows is removed.

    Args:
        selection: all samples, which say what rows belong together, and the kept ones, which are written.
        val_share: share of the groups that goes into val.parquet, 0 to 1.

    Returns:
        File name -> number of rows.
    """
    groups = group_names(selection.samples)
    validated = held_back((groups[sample.row] for sample, _ in selection.kept), val_share, seed)
    rows: dict[str, list[dict[str, Any]]] = {TRAIN: [], VAL: []}
    for sample, seats in selection.kept:
        rows[VAL if groups[sample.row] in validated else TRAIN] += _rows(sample, seats)
    out.mkdir(parents=True, exist_ok=True)
    for name, own in rows.items():
        if own:
            with whole_file(out / name) as partial:
                pq.write_table(pa.Table.from_pylist(own, schema=SCHEMA), partial, row_group_size=ROW_GROUP)
        else:
            (out / name).unlink(missing_ok=True)
    return Counter({name: len(own) for name, own in rows.items()})


def _rows(sample: ExpertSample, seats: Sequence[Fingerprints]) -> Iterator[dict[str, Any]]:
    journal, record = sample.journal, sample.record()
    conversations = record.draft.seats or {}
    for seat in seats:
        yield {
            "data_source": sample.data_source,
            "messages": trainable(conversations[seat.seat]),
            "train_role": TRAINED,
            "task": sample.task,
            "file": journal.sets[record.set],
            "row": sample.number,
            "record": sample.row,
            "seat": seat.seat,
            "sample": sample.sample,
            "expert": journal.name,
            "fingerprint": journal.fingerprint,
            "reward": sample.reward,
            "metrics": json.dumps(record.draft.metrics or {}),
            "judge": journal.judge(record.task),
            "prompts": list(record.prompts),
        }
