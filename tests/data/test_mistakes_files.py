"""Mistakes task files from Eedi's tables: one row a (question, misconception), and none with two right answers."""

import csv

import pyarrow.parquet as pq
import pytest

from agents.tasks.mistakes import Mistakes
from data import mistakes
from tests.agents.samples import DATA

SOURCES = [DATA / "mistakes" / name for name in ("eedi_train_sample.csv", "eedi_misconception_mapping_sample.csv")]
needs_records = pytest.mark.skipif(
    not SOURCES[0].exists(), reason=f"no benchmark records at {SOURCES[0]} (SOUL_DATA_SOURCES)"
)
QUESTION = {
    "QuestionId": "7",
    "QuestionText": "What is 2 + 3 x 4?",
    "CorrectAnswer": "A",
    **{f"Answer{letter}Text": text for letter, text in zip("ABCD", ("14", "20", "24", "9"), strict=True)},
    "MisconceptionAId": "",
    "MisconceptionBId": "1507.0",  # pandas wrote the column, which has gaps
    "MisconceptionCId": "",
    "MisconceptionDId": "1416",
}
NAMES = [
    {"MisconceptionId": "1507", "MisconceptionName": "Left to right"},
    {"MisconceptionId": "1416", "MisconceptionName": "Adds"},
]


def tables(folder, *questions, names=NAMES):
    paths = [folder / "train.csv", folder / "names.csv"]
    for path, rows in zip(paths, (questions, names), strict=True):
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return paths


def test_each_misconception_is_a_row(tmp_path):
    records, left_out = mistakes.convert(tables(tmp_path, QUESTION))
    assert [(r["id"], r["TargetOption"], r["TargetAnswer"], r["MisconceptionName"]) for r in records] == [
        ("7_B", "B", "20", "Left to right"),
        ("7_D", "D", "9", "Adds"),
    ]
    assert not left_out and records[0]["CorrectAnswer"] == "A" and records[0]["question"] == "What is 2 + 3 x 4?"


def test_cases_without_one_answer_or_without_a_name_are_left_out(tmp_path):
    twice = {**QUESTION, "MisconceptionCId": "1507"}
    unnamed = {**QUESTION, "MisconceptionDId": "99"}
    on_the_right_one = {**QUESTION, "MisconceptionAId": "1416", "MisconceptionDId": ""}
    records, left_out = mistakes.convert(tables(tmp_path, twice, unnamed, on_the_right_one))
    assert [record["TargetOption"] for record in records] == ["D", "B", "B"]
    assert left_out == {
        "the misconception leads to several options": 2,
        "the misconception has no name": 1,
        "the option is the correct one": 1,
    }


@pytest.mark.parametrize("field, value", [("AnswerBText", " "), ("QuestionText", ""), ("CorrectAnswer", "E")])
def test_errors_name_file_row_and_field(tmp_path, field, value):
    with pytest.raises(ValueError, match=rf"train\.csv: row 2: field '{field}'"):
        mistakes.convert(tables(tmp_path, QUESTION, {**QUESTION, field: value}))


def test_the_names_are_needed(tmp_path):
    with pytest.raises(ValueError, match="misconception_mapping"):
        mistakes.convert(tables(tmp_path, QUESTION)[:1])


@needs_records
def test_real_records_through_the_command_line_and_the_task(tmp_path, capsys):
    out = tmp_path / "train.parquet"
    mistakes.main(["convert", *map(str, SOURCES), "--out", str(out)])
    assert "left out: 7 (the misconception leads to several options)" in capsys.readouterr().out
    task, rows = Mistakes(), pq.read_table(out).to_pylist()
    # 33 annotated options in the sample, of which seven share their misconception with another
    assert len(rows) == 26
    asked = set()
    for record in rows:
        row = task.row_type.model_validate(record["extra_info"])
        task.check(row)
        assert row.options[ord(task.gold(row)) - ord("A")] == record["extra_info"]["TargetAnswer"]
        asked.add((row.question, row.misconception))
        assert row.misconception in task.prompt(row)[0]["content"]
    assert len(asked) == len(rows)


@needs_records
def test_questions_do_not_cross_the_split(tmp_path):
    files = [tmp_path / "train.parquet", tmp_path / "val.parquet"]
    mistakes.main(["convert", *map(str, SOURCES), "--train-out", str(files[0]), "--val-out", str(files[1])])
    train, val = ({row["extra_info"]["question_id"] for row in pq.read_table(file).to_pylist()} for file in files)
    assert train and val and not train & val
