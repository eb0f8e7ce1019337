"""Mistakes task files from Eedi's tables: a row for each labelled option, with all options that are right."""

import csv

import pyarrow.parquet as pq

from data import mistakes
from soul.rows.overlap import HeldOut
from soul.rows.task_files import read_rows

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
    records, left_out, *_ = mistakes.convert(tables(tmp_path, QUESTION))
    assert [(r["id"], r["TargetOption"], r["TargetAnswer"], r["MisconceptionName"]) for r in records] == [
        ("7_B", "B", "20", "Left to right"),
        ("7_D", "D", "9", "Adds"),
    ]
    assert not left_out and records[0]["CorrectAnswer"] == "A" and records[0]["question"] == "What is 2 + 3 x 4?"


def test_a_misconception_on_two_options_makes_both_right(tmp_path):
    records, left_out, *_ = mistakes.convert(tables(tmp_path, {**QUESTION, "MisconceptionCId": "1507"}))
    assert not left_out
    assert [(r["TargetOption"], r["AcceptedOptions"]) for r in records] == [
        ("B", ["B", "C"]),
        ("C", ["B", "C"]),
        ("D", ["D"]),
    ]


def test_questions_whose_options_are_images_are_left_out(tmp_path, capsys):
    image = "![A line through [0, 1]](x.png)"
    pictures = {f"Answer{letter}Text": f" {image}\n" for letter in "ABCD"}
    half = {**QUESTION, "AnswerAText": image, "QuestionId": "8", "QuestionText": "Which line?"}
    sources = tables(tmp_path, {**QUESTION, **pictures}, half)
    records, left_out, *_ = mistakes.convert(sources)
    assert left_out == {"all options are images": 2}
    assert [record["id"] for record in records] == ["8_B", "8_D"]
    mistakes.BUILDER.main(["convert", *map(str, sources), "--out", str(tmp_path / "out.parquet")])
    shown = capsys.readouterr().out
    assert "left out: 2 (all options are images)" in shown and "with the description of an image: 2" in shown
    rows = read_rows([str(tmp_path / "out.parquet")])
    assert [row.task.groups(row.row) for row in rows] == [{"image": "described"}] * 2


def test_whole_questions_are_drawn(tmp_path):
    questions = [{**QUESTION, "QuestionId": str(n), "QuestionText": f"What is {n}?"} for n in range(9)]
    sources = [*map(str, tables(tmp_path, *questions))]
    train, val = tmp_path / "train.parquet", tmp_path / "val.parquet"
    built = mistakes.BUILDER.build(
        ["convert", *sources, "--rows", "7", "--train-out", str(train), "--val-out", str(val)]
    )
    assert [file.rows for file in built.files] == [12, 6]
    assert not HeldOut(read_rows([str(val)])).overlaps(read_rows([str(train)]))
    alone = mistakes.BUILDER.build(["convert", *sources, "--rows", "7", "--out", str(tmp_path / "out.parquet")])
    assert pq.read_table(tmp_path / "out.parquet") == pq.read_table(val)
    assert alone.left_out["in questions that were not drawn"] == 12
    mistakes.BUILDER.build(["convert", *sources, "--rows", "7", "--seed", "5", "--out", str(tmp_path / "out.parquet")])
    assert pq.read_table(tmp_path / "out.parquet") != pq.read_table(val)
