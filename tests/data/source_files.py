"""The source files of the builders' tests: published ones, which may be absent, and small ones that a test writes."""

import json
from pathlib import Path
from typing import Any

import pytest

from data import train
from soul.testing import FakeOpenAI
from tests.soul.samples import DATA


def needs(*published: Path) -> pytest.MarkDecorator:
    """A mark that skips a test where none of these files or folders is there."""
    absent = not any(path.exists() for path in published)
    return pytest.mark.skipif(absent, reason=f"no such benchmark records in {DATA} (SOUL_DATA_SOURCES)")


def write_json(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def write_lines(path: Path, *records: Any) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return path


def table_of(printed: str) -> dict[str, list[str]]:
    """The other cells of each row of a printed table, by the first; notes of several lines become one text."""
    table: dict[str, list[str]] = {}
    lines = (line for line in printed.splitlines() if "│" in line)
    for cells in ([cell.strip() for cell in line.strip("│").split("│")] for line in lines):
        if cells[0]:
            table[cells[0]] = cells[1:]
        else:
            table[list(table)[-1]][-1] += f" {cells[-1]}"
    return table


def build_training(fake: FakeOpenAI, sources: Path, task: str, *words: str) -> int:
    """Run `python -m data.train` for one task, with a stand-in for all models, into `out` beside the sources."""
    where = (f"judge.base_url={fake.url}", "judge.api_key_env=none", "judge.max_attempts=1")
    return train.main([str(sources), "--out", str(sources.parent / "out"), "--tasks", task, *words, *where])
