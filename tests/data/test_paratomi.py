"""ParaToMi task files, and what all builders share: writing rows and splitting them (`data.rows`)."""

import csv
import os
from ast import literal_eval

import pandas as pd
import pytest

from data import paratomi
from data.rows import write_rows
from soul.tasks.paratomi import places, story_key
from tests.data.source_files import needs
from tests.soul.samples import DATA

TEXT = DATA / "paratomi" / "paraphrased_tomi_test.txt"
TRAINING = DATA / "paratomi" / "train_sample.txt"
TABLE = DATA / "paratomi" / "percept_tomi_sample.csv"
needs_records = needs(TEXT)


def key(record):
    return story_key(record["story"], record["question"])


@needs_records
def test_every_paraphrased_question_has_its_answer_among_its_candidates():
    records = paratomi.convert(TEXT)
    assert len(records) == len(TEXT.with_suffix(".trace").read_text().splitlines())
    for record in records:
        assert record["correct_answer"] in record["cands"] and 2 <= len(record["cands"]) <= 4
        assert len(set(record["cands"])) == len(record["cands"])
        assert not any(sentence[0].isdigit() or "\t" in sentence for sentence in record["story"])


@needs_records
def test_question_types_fit_the_questions():
    wording = {
        "reality": " really?",
        "memory": " at the beginning?",
        "first": " will ",
        "second": " think that ",
    }
    for record in paratomi.convert(TEXT):
        assert wording[record["qType"].split("_")[0]] in record["question"]


@needs_records
def test_without_a_trace_the_wording_tells_the_type(tmp_path):
    (tmp_path / "test.txt").write_text(TEXT.read_text())
    pairs = list(zip(paratomi.convert(TEXT), paratomi.convert(tmp_path / "test.txt"), strict=True))
    assert {worded["qType"] for _, worded in pairs} == {"first_order", "second_order", "memory", "reality"}
    assert all(traced["qType"].startswith(worded["qType"]) for traced, worded in pairs)
    assert [{**traced, "qType": ""} for traced, _ in pairs] == [{**worded, "qType": ""} for _, worded in pairs]


@needs_records
def test_the_documented_training_file_shares_no_story_with_the_evaluation():
    evaluation = {key(record) for record in paratomi.convert(TABLE)}
    training = {key(record) for record in paratomi.convert(TRAINING)}
    assert len(training) > 50 and not training & evaluation
    assert len({key(record) for record in paratomi.convert(TEXT)} & evaluation) >= len(evaluation) / 2
    assert "convert train.txt" in paratomi.__doc__ and "convert paraphrased_tomi_test.txt" not in paratomi.__doc__


@needs_records
def test_candidates_give_no_answer_away_by_their_order():
    records = paratomi.convert(TEXT)
    first = sum(record["cands"][0] == record["correct_answer"] for record in records)
    expected = sum(1 / len(record["cands"]) for record in records)
    assert abs(first - expected) < 0.06 * len(records)


@needs_records
def test_derived_candidates_are_those_of_percept_tomi_without_likings():
    with TABLE.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            derived, given = (
                places(literal_eval(row["story"])),
                literal_eval(row["cands"]),
            )
            assert set(derived) <= set(given)
            liked = set(given) - set(derived)
            assert all(any(f"s the {thing}" in s for s in literal_eval(row["story"])) for thing in liked)


@needs_records
def test_split_keeps_paraphrases_of_a_story_together(tmp_path, capsys):
    train, val = tmp_path / "train.parquet", tmp_path / "val.parquet"
    paratomi.main(["convert", str(TEXT), "--train-out", str(train), "--val-out", str(val), "--val-fraction", "0.25"])
    assert capsys.readouterr().out.count("rows=") == 2
    infos = [[dict(i, story=list(i["story"])) for i in pd.read_parquet(p)["extra_info"]] for p in (train, val)]
    left, right = ({key(info) for info in side} for side in infos)
    assert not left & right and 0.2 < len(right) / len(left | right) < 0.3
    assert sum(map(len, infos)) == len(paratomi.convert(TEXT))


def test_places_are_whole_words():
    story = [
        "Mia went to the master_bedroom.",
        "A t-shirt fills the treasure chest.",
        "She told of hallways and boxes.",
    ]
    assert places(story) == ["master_bedroom", "treasure chest"]


def test_one_story_in_other_words_has_the_same_key():
    asked = {"question": "Where is the hat really?"}
    one = {**asked, "story": ["Mia entered the den.", "The hat is in the treasure chest."]}
    other = {**asked, "story": ["The den is where Mia went.", "Inside the treasure_chest is a hat."]}
    third = {**asked, "story": ["Ava entered the den.", "The hat is in the treasure chest."]}
    assert key(one) == key(other) != key(third)


def test_table_lists_are_read_as_literals_never_run(tmp_path):
    with (tmp_path / "x.csv").open("w", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(["story", "cands", "question", "answer", "qType"])
        writer.writerow(["__import__('os').getcwd()", "['a', 'b']", "Where?", "a", "reality"])
    with pytest.raises(ValueError, match=r"x\.csv: row 1: field 'story' is not a Python list"):
        paratomi.convert(tmp_path / "x.csv")


# ---- data.rows ----

ROW = {"index": 0, "question": "Where?", "gold": True, "cands": ["a", "b"]}


def test_rows_come_back_as_written(tmp_path):
    write_rows(tmp_path / "new" / "x.parquet", "paratomi", [ROW, ROW | {"index": 1, "gold": False}])
    frame = pd.read_parquet(tmp_path / "new" / "x.parquet")
    assert list(frame.columns) == ["data_source", "prompt", "extra_info"]
    assert dict(frame["extra_info"][1], cands=list(frame["extra_info"][1]["cands"])) == ROW | {
        "index": 1,
        "gold": False,
    }
    assert list(frame["prompt"][0]) == [{"role": "user", "content": "Where?"}]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"index": 0}, "row 1: field 'index' repeats 0 of row 0"),
        ({"index": 1, "gold": 1}, "row 1: field 'gold' is int, but bool in row 0"),
        ({"index": 1, "extra": "x"}, "row 1: field 'extra' is in some rows only"),
        ({"index": 1, "cands": []}, "row 1: field 'cands' is list"),
        ({"index": 1, "question": None}, "row 1: field 'question' is NoneType"),
    ],
)
def test_a_bad_row_is_refused_and_leaves_the_old_file(tmp_path, second, message):
    path = tmp_path / "x.parquet"
    write_rows(path, "paratomi", [ROW])
    before = path.read_bytes()
    with pytest.raises(ValueError, match=message):
        write_rows(path, "paratomi", [ROW, ROW | second])
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["x.parquet"]
