"""`soul rows`: jsonl, csv, parquet and a data set of the hub become the same task file."""

import csv
import json
from pathlib import Path

import pandas as pd
import pytest

from soul.cli.main import main
from soul.rows.task_files import read_rows

RECORDS = [
    {
        "who": f"Ann {n}, who hates boats",
        "story": "A ferry leaves at 10.",
        "question": "What does Ann do?",
        "options": ["She swims.", "She stays."],
        "label": "B" if n else "A",
        "year": 1990 + n,
    }
    for n in range(3)
]
COLUMNS = ["character_name=who", "input_text=story", "correct_answer=label"]


def test_a_value_that_some_rows_lack_is_absent_there_and_digits_stay_text(tmp_path) -> None:
    file, out = tmp_path / "rows.jsonl", tmp_path / "out.parquet"
    file.write_text("\n".join(json.dumps(RECORDS[n] | extra) for n, extra in enumerate([{}, {"book": "007"}])))
    assert main(["rows", str(file), "--task", "lifechoices", "--columns", *COLUMNS, "--out", str(out)]) == 0
    assert [found.row.book for found in read_rows([str(out)])] == ["", "007"]


def source(kind: str, folder: Path) -> str:
    """A file of that kind; `hub`: the folder of a data set as the hub has it."""
    file = folder / f"rows.{kind}"
    if kind == "hub":
        file = folder / "set" / "data" / "train-00000-of-00001.parquet"
        file.parent.mkdir(parents=True)
    if kind in ("parquet", "hub"):
        pd.DataFrame(RECORDS).to_parquet(file)
    elif kind == "jsonl":
        file.write_text("\n".join(map(json.dumps, RECORDS)))
    elif kind == "json":
        file.write_text(json.dumps(RECORDS))
    else:
        with file.open("w", newline="") as opened:
            writer = csv.DictWriter(opened, RECORDS[0])
            writer.writeheader()
            writer.writerows({**record, "options": json.dumps(record["options"])} for record in RECORDS)
    return str(folder / "set") if kind == "hub" else str(file)


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "parquet", "hub"])
def test_every_source_gives_the_same_rows(kind, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    out = tmp_path / "out.parquet"
    words = ["rows", source(kind, tmp_path), "--task", "lifechoices", "--columns", *COLUMNS, "--out", str(out)]
    assert main(words) == 0
    rows = [found.row for found in read_rows([str(out)])]
    assert [row.index for row in rows] == [0, 1, 2]
    for row, record in zip(rows, RECORDS, strict=True):
        assert (row.character_name, row.input_text, row.correct_answer) == tuple(
            record[column.partition("=")[2]] for column in COLUMNS
        )
        assert row.options == record["options"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["{rows}", "--columns", "character_name=wo"], "has no column 'wo'. It has who, story"),
        (["{rows}", "--columns", "character_name=who"], "row 0"),
        (["{folder}/none.txt"], "none.txt"),
        (["{folder}/none.csv"], "none.csv does not exist"),
    ],
)
def test_what_is_wrong_is_named(words, says, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    values = {"rows": source("jsonl", tmp_path), "folder": str(tmp_path)}
    out = tmp_path / "out.parquet"
    assert main(["rows", *(w.format(**values) for w in words), "--task", "lifechoices", "--out", str(out)]) == 2
    assert says in capsys.readouterr().err and not out.exists()
