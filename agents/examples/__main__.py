"""`python -m agents.examples TASK --rows N --out FILE` writes invented rows of a task to a parquet file.

For trying things out: the file has the form of a real task file, and nothing can be learned from it about people.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from agents import examples


def write(names: list[str], count: int, out: Path) -> None:
    """Write `count` rows of each task to one file; what is no plain value, or not of one type, travels as JSON."""
    columns: dict[str, list[Any]] = {"data_source": [], "prompt": [], "extra_info": []}
    for name in names:
        example = examples.load(name)
        for number in range(count):
            record = {"index": number, **example.record(number)}
            columns["data_source"].append(name)
            columns["prompt"].append(example.task.prompt(example.row(number)))
            columns["extra_info"].append({key: _plain(value) for key, value in record.items() if value is not None})
    types: dict[str, set[type]] = {}
    for info in columns["extra_info"]:
        for key, value in info.items():
            types.setdefault(key, set()).add(type(value))
    for info in columns["extra_info"]:  # a column has one type: FanToM's answers are indices, names and texts
        mixed = [key for key, value in info.items() if len(types[key]) > 1 and not isinstance(value, str)]
        info.update({key: json.dumps(info[key]) for key in mixed})
    out.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), out)


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else json.dumps(value, ensure_ascii=False)


def main(arguments: list[str] | None = None) -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(prog="python -m agents.examples", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("task", nargs="+", choices=[*examples.names(), "all"], metavar="TASK")
    parser.add_argument("--rows", type=int, default=64, help="rows of each task (default 64)")
    parser.add_argument("--out", type=Path, required=True, help="the parquet file")
    given = parser.parse_args(arguments)
    names = list(examples.names()) if "all" in given.task else given.task
    write(names, given.rows, given.out)
    print(f"{given.out}: {given.rows} invented rows of {', '.join(names)}")


if __name__ == "__main__":
    main()
