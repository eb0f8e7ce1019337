"""Write rows of your own as a task file: from jsonl, json, csv or parquet, or a data set of the Hugging Face hub.

    soul rows answers.csv --task lifechoices --out data/sim_rl_data/lifechoices_rl_train.parquet
    soul rows me/decisions --split train --task night_shift --columns person=bio choice=label --out rows.parquet

A task's page (docs/tasks) lists its fields. `--columns FIELD=COLUMN` maps columns with other names; all others keep
their names, also those that the task does not read. Every row is checked before anything is written.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from soul import tasks
from soul.cli.arguments import output_file
from soul.cli.error_border import Parser, reports_errors
from soul.errors import BadSettings, SoulError, one_line
from soul.files.downloads import remedy
from soul.files.whole_file import whole_file
from soul.rows.task_files import parse_row

# Types stay as they are written: pandas would make 7 of the text "007", and a number of a field that some rows lack.
_READERS: Mapping[str, Callable[[Path], Iterable[Any]]] = {
    ".jsonl": lambda file: map(json.loads, filter(str.strip, file.read_text(encoding="utf-8").split("\n"))),
    ".json": lambda file: json.loads(file.read_text(encoding="utf-8")),
    ".csv": lambda file: csv.DictReader(io.StringIO(file.read_text(encoding="utf-8-sig"), newline="")),
    ".parquet": lambda file: pq.read_table(file).to_pylist(),
}


def read_records(source: str, split: str = "train") -> list[dict[str, Any]]:
    """The records of a file, or of a data set of the hub (a name, or its folder).

    Raises:
        BadSettings: it cannot be read.
    """
    path = Path(source)
    try:
        if path.is_file():
            if (reader := _READERS.get(path.suffix)) is None:
                raise BadSettings(f"{path}: use a file that ends in {', '.join(_READERS)}.")
            return [dict(record) for record in reader(path)]
        if path.suffix in _READERS:
            raise BadSettings(f"{path} does not exist.")
        from datasets import load_dataset  # of the training environment

        return list(load_dataset(source, split=split))
    except SoulError:
        raise
    except ImportError as error:
        raise BadSettings(f"{source} does not exist. To read a data set of the hub, pip install datasets.") from error
    except Exception as error:  # noqa: BLE001 - json, csv, datasets and the network raise many kinds
        raise BadSettings(f"{source} cannot be read: {one_line(error, 300)}. {remedy(path, '')}".strip()) from error


def with_fields(record: Mapping[str, Any], columns: Mapping[str, str], where: str) -> dict[str, Any]:
    """A record whose columns (field -> column) have the names of the task's fields.

    Raises:
        BadSettings: a column does not exist.
    """
    if absent := [column for column in columns.values() if column not in record]:
        raise BadSettings(f"{where} has no column {absent[0]!r}. It has {', '.join(record)}.")
    others = {name: value for name, value in record.items() if name not in columns.values()}
    return {**others, **{field: record[column] for field, column in columns.items()}}


def write_task_file(rows: Iterable[tuple[str, Mapping[str, Any]]], out: Path, source: str) -> int:
    """Write rows (task, record) as a task file, completely or not at all. Returns their number.

    Lists and objects are written as JSON, and so are values of a field whose type differs between rows: a parquet
    column has one type.

    Raises:
        BadRow: a record is not valid; it names `source`, row and field.
    """
    columns: dict[str, list[Any]] = {"data_source": [], "prompt": [], "extra_info": []}
    for number, (name, record) in enumerate(rows):
        info = {key: _plain(value) for key, value in {"index": number, **record}.items() if value is not None}
        row = parse_row(name, info, source, number)
        columns["data_source"].append(name)
        columns["prompt"].append(row.task.prompt(row.row))
        columns["extra_info"].append(info)
    types: dict[str, set[type]] = {}
    for info in columns["extra_info"]:
        for key, value in info.items():
            types.setdefault(key, set()).add(type(value))
    for info in columns["extra_info"]:
        mixed = [key for key, value in info.items() if len(types[key]) > 1 and not isinstance(value, str)]
        info.update({key: json.dumps(info[key]) for key in mixed})
    out.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(out, shared=True) as partial:
        pq.write_table(pa.table(columns), partial)
    return len(columns["data_source"])


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else json.dumps(value, ensure_ascii=False)


@reports_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = Parser(prog="soul rows", description=__doc__)
    parser.add_argument("source", metavar="SOURCE", help="a file, or the name of a data set of the hub")
    parser.add_argument("--task", required=True, help="the task that plays the rows (soul tasks)")
    parser.add_argument("--columns", nargs="+", default=(), metavar="FIELD=COLUMN", help="names of columns")
    parser.add_argument("--split", default="train", help="of a data set of the hub (default train)")
    parser.add_argument("--out", type=output_file, required=True, metavar="FILE.parquet", help="the task file")
    given = parser.parse_args(arguments)
    pairs = [word.partition("=") for word in given.columns]
    if wrong := next((word for word, pair in zip(given.columns, pairs, strict=True) if not all(pair)), None):
        parser.error(f"--columns {wrong}: write FIELD=COLUMN")
    name = tasks.load(given.task).name
    columns = {field: column for field, _, column in pairs}
    records = read_records(given.source, given.split)
    rows = ((name, with_fields(record, columns, given.source)) for record in records)
    print(f"{given.out}: {write_task_file(rows, given.out, given.source):,} rows of {name}")
