"""Read task files: parquet files in, validated rows out. Error messages name file, row, field and remedy.

A file may contain rows of several tasks. Columns: `data_source` (the name of the row's task), `extra_info` (a struct
with the task's fields and `index`) and, for verl, `prompt`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from soul import tasks
from soul.errors import BadRow, UnknownTask, one_line
from soul.files.downloads import remedy
from soul.host_resources import free_memory
from soul.row_fields import without_nulls
from soul.task import Task
from soul.task_types import Row
from soul.validation_errors import first_problem

COLUMNS = ("data_source", "extra_info")


_MEMINFO = Path("/proc/meminfo")  # of Linux
_EXPANSION, _ROW_BYTES = 3, 1000  # rows as Python objects, per stored byte and at least


@dataclass(frozen=True)
class TaskRow:
    """A validated row and its task."""

    task: Task[Any]
    row: Row
    file: str
    number: int  # position in the file, from 0

    @property
    def where(self) -> str:
        """The row's place, for messages."""
        return f"{self.file}, row {self.number}"


def read_rows(files: Sequence[str]) -> list[TaskRow]:
    """All rows of the files, in order. Raises BadRow: a file, a column or a row is missing or invalid."""
    return [
        parse_row(record["data_source"], record["extra_info"], file, number)
        for file in files
        for number, record in enumerate(read_table(file).select(list(COLUMNS)).to_pylist())
    ]


def _check_size(file: str, metadata: pq.FileMetaData) -> None:
    """Refuse a file whose rows would not fit into memory. The footer knows; a small file may hold billions of rows."""
    stored = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    needed = max(_EXPANSION * stored, _ROW_BYTES * metadata.num_rows)
    if _MEMINFO.exists() and needed > (free := free_memory(_MEMINFO)):
        raise BadRow(
            f"{file}: its {metadata.num_rows:,} rows need about {needed / 1e9:.1f} GB of memory, "
            f"and {free / 1e9:.1f} GB are free. Take fewer of them, or a machine with more memory."
        )


def read_table(file: str) -> pa.Table:
    """The table of a task file, whose rows are not validated.

    Raises:
        BadRow: it is not a parquet file, lacks a column, or has no rows.
    """
    if Path(file).is_dir():
        raise BadRow(f"{file} is a folder. Name the parquet files in it.")
    if not Path(file).is_file():
        raise BadRow(
            f"{file} does not exist. Build it in a checkout of the repository with python -m data.train --out DATA_DIR "
            f"(docs/data.md), write invented rows with soul examples TASK --out {file}, or pass the paths of other "
            "files in TRAIN_FILES and VAL_FILES."
        )
    try:
        with pq.ParquetFile(file) as parquet:  # `read_table` imports pandas
            _check_size(file, parquet.metadata)
            table = parquet.read()
    except (pa.ArrowException, OSError) as error:
        advice = remedy(file, "Build it again with python -m data.<task>; `soul rows` makes one of a csv or JSON file.")
        raise BadRow(f"{file}: not a readable parquet file ({one_line(error, 200)}). {advice}") from error
    missing = [column for column in COLUMNS if column not in table.column_names]
    if missing:
        raise BadRow(
            f"{file}: the column {missing[0]!r} is missing (it has: {', '.join(table.column_names) or 'none'}). A task "
            "file needs data_source and extra_info; python -m data.<task> writes such files."
        )
    if table.num_rows == 0:
        raise BadRow(f"{file}: the file has no rows. Build it again, or remove it from the list of files.")
    return table


def parse_row(data_source: Any, extra_info: Any, file: str = "<memory>", number: int = 0) -> TaskRow:
    """Validate one record. Raises BadRow: the record is invalid; the message names file, row and field."""
    where = f"{file}, row {number}"

    def bad(field: str, problem: str) -> BadRow:
        return BadRow(f"{where}, field {field}: {problem}. Fix the record or build the file again.")

    if not isinstance(data_source, str):
        raise bad("data_source", f"expected the name of a task, got {data_source!r}")
    try:
        task = tasks.load(data_source)
    except UnknownTask as error:
        raise BadRow(f"{where}, field data_source: {error}") from error
    if not isinstance(extra_info, dict):
        raise bad("extra_info", f"expected a struct of the task's fields, got {type(extra_info).__name__}")
    try:
        row = task.row_type.model_validate({"index": number, **without_nulls(extra_info)})
        task.check(row)
    except ValidationError as error:
        problem = first_problem(error)
        schema = f"schema: {task.row_type.__name__} in {task.row_type.__module__}"
        raise bad(problem.field or "extra_info", f"{problem.message} ({schema})") from error
    except ValueError as error:
        name, _, message = str(error).partition(": ")
        raise bad(name, message) from error
    return TaskRow(task, row, file, number)
