"""Write a task's parquet file, and draw whole groups of its rows.

Every task file has three columns: `data_source` (the task that plays the row), `prompt` (one user message with the
question; verl wants the column to exist, the task renders its own prompt) and `extra_info` (the task's fields). The
first record fixes the fields and their types, and all others must have them.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from soul.files.whole_file import whole_file

Record = dict[str, Any]
_ROW_GROUP = 500
_PROMPT_TYPE = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


def write_rows(path: str | Path, data_source: str, records: Iterable[Record]) -> None:
    """Write `records` (one `extra_info` dict per row) to the parquet file `path`, completely or not at all.

    Each record needs `index` (int, unique in the file) and `question` (str); all records have the same fields, each a
    str, int, float, bool or list[str].

    Raises:
        ValueError: a record does not fit the first one.
    """
    path, rows = Path(path), list(records)
    for number, row in enumerate(rows):
        if different := sorted(row.keys() ^ rows[0].keys()):  # pyarrow would write null
            raise ValueError(f"{path}: row {number}: field {different[0]!r} is in some rows only; add it to every row")
    fields = pa.struct([(name, pa.infer_type([value])) for name, value in rows[0].items()])
    columns = {
        "data_source": pa.array([data_source] * len(rows), pa.string()),
        "prompt": pa.array([[{"role": "user", "content": r["question"]}] for r in rows], _PROMPT_TYPE),
        "extra_info": pa.array(rows, fields),
    }
    write_table(pa.table(columns), path)


def write_table(table: pa.Table, path: Path) -> None:
    """Write a parquet file completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, shared=True) as partial:
        pq.write_table(table, partial, row_group_size=_ROW_GROUP)


def numbered(records: Iterable[Record]) -> list[Record]:
    """The records, each with its number as the field `index`."""
    return [{"index": index, **record} for index, record in enumerate(records)]


def draw_groups(groups: Sequence[str], seed: int, *, count: int | None = None, rows: int | None = None) -> set[str]:
    """Draw whole groups by `seed`: `count` of them, or as many as fit into `rows` rows; all if there are fewer.

    A draw depends on the groups' names and the seed, not on the order of the rows.
    """
    sizes = Counter(groups)
    drawn: set[str] = set()
    left = len(groups) if rows is None else rows
    for group in sorted(sizes, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())[:count]:
        if sizes[group] <= left:
            drawn.add(group)
            left -= sizes[group]
    return drawn
