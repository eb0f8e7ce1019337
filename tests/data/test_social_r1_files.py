"""Social-R1 task files from ToMBench: NaN options, letters with dots, both languages."""

import math

import pyarrow.parquet as pq

from data import social_r1
from tests.data.source_files import needs, write_lines
from tests.soul.samples import DATA

SOURCES = sorted((DATA / "social_r1").glob("*.jsonl"))
needs_records = needs(*SOURCES)
RECORD = {
    "能力\nABILITY": "Belief",
    "STORY": "Bo leaves.",
    "QUESTION": "Is Bo here?",
    "OPTION-A": "A. Yes",
    "OPTION-B": "B. No",
    "OPTION-C": math.nan,
    "OPTION-D": math.nan,
    "答案\nANSWER": "B. ",
}


def test_absent_options_and_letters_with_dots(tmp_path):
    (record,) = social_r1.convert([write_lines(tmp_path / "Belief Task.jsonl", RECORD)])
    assert record["prompt_text"] == "Bo leaves.\n\nQuestion: Is Bo here?\nA. Yes\nB. No"
    assert (record["answer_letter"], record["answer_text"]) == ("B", "No")
    assert (record["subtask"], record["ability"], record["index"]) == ("Belief Task", "Belief", 0)


@needs_records
def test_stories_do_not_cross_the_split(tmp_path):
    files = [tmp_path / "train.parquet", tmp_path / "val.parquet"]
    social_r1.main(["convert", *map(str, SOURCES), "--train-out", str(files[0]), "--val-out", str(files[1])])
    train, val = ({row["extra_info"]["story_id"] for row in pq.read_table(file).to_pylist()} for file in files)
    assert train and val and not train & val
