"""Write a task's parquet file, and split rows into train and validation without leaks.

Every task file has three columns: `data_source` (which task plays the row), `prompt` (one user message with
the question; verl wants the column to exist, the task renders its own prompt) and `extra_info` (the task's
fields). The type of each field is fixed by the first record and enforced for all others, because parquet
would otherwise turn a stray int or a missing key into a silent null that only shows up in the middle of a
training run.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from soul.files.whole_file import whole_file

Record = dict[str, Any]

_ARROW_TYPES: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "str": pa.string(),
    "list[str]": pa.list_(pa.string()),
}
_ROW_GROUP = 500  # rows that are in memory at once
_PROMPT_TYPE = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


def write_rows(path: str | Path, data_source: str, records: Iterable[Record]) -> None:
    """Write `records` (one `extra_info` dict per row) to the parquet file `path`, completely or not at all.

    Each record needs `index` (int, unique in the file) and `question` (str); all records have the same
    fields, each a str, int, float, bool or list[str]. No more than a few hundred records of an iterator are in memory.
    Raises ValueError naming file, row and field if one does not fit.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, shared=True) as partial, closing(_Writer(path, partial, data_source)) as writer:
        for record in records:
            writer.add(record)
        if not writer.rows:
            raise ValueError(f"{path}: no rows to write; check the source file and the filters (--limit, --orders)")


class _Writer:
    """Appends rows to a parquet file, and checks that they agree on fields and kinds."""

    def __init__(self, path: Path, partial: Path, data_source: str) -> None:
        """`path` names the file in errors; `partial` is where it is written."""
        self.path, self.partial, self.data_source = path, partial, data_source
        self.rows = 0
        self._kinds: dict[str, str] = {}
        self._first_row: dict[int, int] = {}  # index -> the row that has it
        self._waiting: list[Record] = []
        self._file: pq.ParquetWriter | None = None

    def add(self, record: Record) -> None:
        """Append a row."""
        self._check(record)
        self.rows += 1
        self._waiting.append(record)
        if len(self._waiting) == _ROW_GROUP:
            self._flush()

    def close(self) -> None:
        """Write what is left."""
        try:
            self._flush()
        finally:
            if self._file is not None:
                self._file.close()

    def _flush(self) -> None:
        if not self._waiting:
            return
        rows, self._waiting = self._waiting, []
        info_type = pa.struct([(name, _ARROW_TYPES[kind]) for name, kind in self._kinds.items()])
        columns = {
            "data_source": pa.array([self.data_source] * len(rows), pa.string()),
            "prompt": pa.array([[{"role": "user", "content": r["question"]}] for r in rows], _PROMPT_TYPE),
            "extra_info": pa.array(rows, info_type),
        }
        table = pa.table(columns)
        self._file = self._file or pq.ParquetWriter(self.partial, table.schema)
        self._file.write_table(table)

    def _check(self, record: Record) -> None:
        path, row = self.path, self.rows
        if not self._kinds:
            self._kinds = {name: _kind(path, row, name, value) for name, value in record.items()}
            for name, kind in (("index", "int"), ("question", "str")):
                if self._kinds.get(name) != kind:
                    found = self._kinds.get(name, "nothing")
                    raise ValueError(f"{path}: row {row}: field '{name}' must be {kind}, got {found}")
        different = sorted(set(record) ^ set(self._kinds))
        if different:
            raise ValueError(f"{path}: row {row}: field '{different[0]}' is in some rows only; add it to every row")
        for name, value in record.items():
            kind = _kind(path, row, name, value)
            if kind != self._kinds[name]:
                raise ValueError(f"{path}: row {row}: field '{name}' is {kind}, but {self._kinds[name]} in row 0")
        first = self._first_row.setdefault(record["index"], row)
        if first != row:
            raise ValueError(
                f"{path}: row {row}: field 'index' repeats {record['index']} of row {first}; number the rows again"
            )


def write_table(table: pa.Table, path: Path) -> None:
    """Write a parquet file completely or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, shared=True) as partial:
        pq.write_table(table, partial)


def _kind(path: Path, row: int, name: str, value: Any) -> str:
    if type(value).__name__ in ("bool", "int", "float", "str"):
        return type(value).__name__
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return "list[str]"
    raise ValueError(
        f"{path}: row {row}: field '{name}' is {type(value).__name__} {str(value)[:60]!r}; allowed: str, int, float, "
        "bool, non-empty list of str (store anything richer as a JSON string)"
    )


def numbered(records: Iterable[Record]) -> list[Record]:
    """The records, each with its number as the field `index`."""
    return [{"index": index, **record} for index, record in enumerate(records)]


def draw_groups(groups: Sequence[str], seed: int, *, count: int | None = None, rows: int | None = None) -> set[str]:
    """Draw whole groups by `seed`: `count` of them, or as many as fit into `rows` rows; all if there are fewer.

    `groups` names the group (story, conversation) of each row. Like the split, the draw depends on the names and
    the seed, not on the order of the rows.
    """
    sizes = Counter(groups)
    drawn: set[str] = set()
    left = len(groups) if rows is None else rows
    for group in _ranked(groups, seed)[:count]:
        if sizes[group] <= left:
            drawn.add(group)
            left -= sizes[group]
    return drawn


def _ranked(groups: Sequence[str], seed: int) -> list[str]:
    """The distinct groups in an order that depends on names and seed only."""
    return sorted(set(groups), key=lambda group: hashlib.sha256(f"{seed}:{group}".encode()).digest())


def split_groups(groups: Sequence[str], val_fraction: float, seed: int) -> tuple[list[int], list[int]]:
    """Split row numbers into (train, validation) so that all rows of one group land on one side.

    `groups` names the group (story, conversation) of each row; `val_fraction` in (0, 1) is the share of
    groups. Membership depends on the names and the seed, not on the order of the rows. Both sides get at
    least one group.
    """
    if not 0 < val_fraction < 1:
        raise ValueError(f"--val-fraction must lie between 0 and 1, got {val_fraction}")
    ranked = _ranked(groups, seed)
    if len(ranked) < 2:
        raise ValueError(f"a split needs at least 2 stories or conversations, got {len(ranked)}; use --out instead")
    n_val = min(max(1, round(len(ranked) * val_fraction)), len(ranked) - 1)
    return divide(groups, set(ranked[:n_val]))


def divide(groups: Sequence[str], held_out: Set[str]) -> tuple[list[int], list[int]]:
    """The row numbers of the training side, and of the validation side, which holds the groups `held_out`.

    Raises:
        ValueError: no group is left for training.
    """
    sides: tuple[list[int], list[int]] = ([], [])
    for row, group in enumerate(groups):
        sides[group in held_out].append(row)
    if not sides[0]:
        raise ValueError(
            f"all {len(set(groups))} groups are drawn for --val-out, so --train-out would be empty; draw fewer"
        )
    return sides
