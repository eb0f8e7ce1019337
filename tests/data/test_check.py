"""`python -m data.check`: what it counts, what it refuses, and its exit codes."""

import json
from pathlib import Path

import pytest

from data.check import main, reports
from data.rows import write_rows

STORY = {"story": "1 Mia and Tom entered the hall.", "choices": "A. box, B. crate", "correct_answer": "box"}


def questions(*texts: str) -> list[dict[str, object]]:
    return [{"index": n, "question": text, **STORY} for n, text in enumerate(texts)]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    train, val = tmp_path / "train.parquet", tmp_path / "val.parquet"
    write_rows(train, "hitom", questions("Where is it?", "Where  is it?", "Where was it?"))
    write_rows(val, "hitom", questions("Where was it?", "Where will it be?"))
    return str(train), str(val)


def test_rows_duplicates_and_overlap_are_counted(files: tuple[str, str], tmp_path: Path) -> None:
    train, val = files
    assert main([train, "--against", val, "--json", str(tmp_path / "report.json")]) == 1
    (report,) = json.loads((tmp_path / "report.json").read_text())
    assert (report["task"], report["rows"], report["duplicates"], report["overlap"]) == ("hitom", 3, 1, 1)
    low, median, high = report["words"]
    assert 20 < low <= median <= high


def test_a_file_without_overlap_is_fine(files: tuple[str, str]) -> None:
    assert main([files[0]]) == 0
    assert reports(files[1])[0].duplicates == 0


def test_a_bad_row_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.parquet"
    write_rows(bad, "hitom", [{**questions("Where?")[0], "correct_answer": "moon"}])
    assert main([str(bad)]) == 2
    assert "bad.parquet, row 0, field correct_answer" in capsys.readouterr().err
